"""Renew the README's tables, each made by the command that its marker names."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"
BLOCK = re.compile(r"(<!-- course (\w+) --markdown -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def table(command: str) -> str:
    """What `course COMMAND --markdown` prints."""
    words = [sys.executable, "-m", "course.cli", command, "--markdown"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def renewed(text: str) -> str:
    """The README with every marked table made anew."""
    return BLOCK.sub(lambda block: block[1] + table(block[2]) + block[4], text)


if __name__ == "__main__":
    README.write_text(renewed(README.read_text("utf-8")), "utf-8")
