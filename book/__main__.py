"""`python -m book [FOLDER] [--only 01a]`: build the book, and print where it is."""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path

NEEDS = ("sphinx", "myst_nb", "pydata_sphinx_theme")


def main() -> int:
    """Build the book; return 1 if that fails, with the reason on stderr."""
    reads = argparse.ArgumentParser(prog="python -m book", description=__doc__)
    reads.add_argument("folder", nargs="?", type=Path, default=Path("build/book"))
    reads.add_argument("--only", action="append", metavar="NOTEBOOK", help="run only these")
    given = reads.parse_args()
    if lacking := [name for name in NEEDS if find_spec(name) is None]:
        print(f"book: {', '.join(lacking)} missing. In a clone: make setup", file=sys.stderr)
        return 1
    from book.build import BookError, build
    from book.evidence import EvidenceError
    from book.links import LinkError

    try:
        print(build(given.folder, only=given.only))
    except (BookError, EvidenceError, LinkError, OSError) as fault:
        print(f"book: {fault}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
