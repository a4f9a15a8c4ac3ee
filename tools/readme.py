"""Renew the tables of README.md and docs/, each made by the command that its marker names."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(
    r"(<!-- (course|autograde) (\w+) --markdown -->\n)(.*?)(<!-- end -->)", re.DOTALL
)


def table(package: str, command: str) -> str:
    """What `course COMMAND --markdown` prints, or `autograde COMMAND --markdown`."""
    words = [sys.executable, "-m", f"{package}.cli", command, "--markdown"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def renewed(text: str) -> str:
    """A page with every marked table made again."""
    return BLOCK.sub(lambda block: block[1] + table(block[2], block[3]) + block[5], text)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(renewed(page.read_text("utf-8")), "utf-8")
