"""Write environment.yml for conda users from requirements.lock: the same pins, through pip."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEAD = """\
# For conda users: conda env create -f environment.yml
# Made by `make lock` from requirements.lock; the same pins, installed through pip.
name: deep-training-course
channels:
  - conda-forge
dependencies:
  - python=3.11
  - pip
  - pip:
"""


def pins(lock: str) -> list[str]:
    """The lock's requirements without their hashes, as `name==version ; marker`."""
    return re.findall(r"^([\w.\-\[\]]+==[^\\\n]*?) *\\?$", lock, flags=re.MULTILINE)


def environment(lock: str) -> str:
    """The text of environment.yml."""
    lines = [f"      - {pin}" for pin in pins(lock)]
    return HEAD + "\n".join([*lines, "      - -e ."]) + "\n"


if __name__ == "__main__":
    text = environment((ROOT / "requirements.lock").read_text("utf-8"))
    (ROOT / "environment.yml").write_text(text, "utf-8")
