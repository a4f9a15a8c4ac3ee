"""Check every internal link of the built pages: the file must exist, and the id in it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

LINK = re.compile(r"""<(?:a|img|link|script|iframe)\b[^>]*?\s(?:href|src)=(["'])(.*?)\1""", re.S)
ADDRESS = re.compile(r"""\s(?:id|name)=(["'])(.*?)\1""")
SHOWN = 20
"""The most broken links that the message names."""


class LinkError(RuntimeError):
    """A link is broken; the message names the page and the link."""


def check_links(folder: Path) -> int:
    """Check every link of every page that does not leave the folder.

    Returns:
        The number of links.

    Raises:
        LinkError: A link leads to no file, or to an address that its page does not have.
    """
    count, broken = 0, []
    for page in sorted(folder.rglob("*.html")):
        if "_static" in page.relative_to(folder).parts:
            continue
        for target in {found[1] for found in LINK.findall(page.read_text("utf-8"))}:
            parts = urlsplit(target.replace("&amp;", "&"))
            if parts.scheme or parts.netloc:
                continue
            count += 1
            if not _leads_somewhere(folder, page, unquote(parts.path), unquote(parts.fragment)):
                broken.append(f"{page.relative_to(folder)}: {target}")
    if broken:
        more = f"\nand {len(broken) - SHOWN} more" if len(broken) > SHOWN else ""
        raise LinkError(f"{len(broken)} links are broken:\n" + "\n".join(broken[:SHOWN]) + more)
    return count


def _leads_somewhere(folder: Path, page: Path, path: str, fragment: str) -> bool:
    there = (page.parent / path if path else page).resolve()
    if not there.is_file() or folder.resolve() not in there.parents:
        return False
    return not fragment or there.suffix != ".html" or fragment in _addresses(there)


@cache
def _addresses(page: Path) -> frozenset[str]:
    return frozenset(found[1] for found in ADDRESS.findall(page.read_text("utf-8"))) | {"top"}
