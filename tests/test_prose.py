"""The words of the house: what CONTRIBUTING's list says not to write, nobody reads anywhere."""

import ast
import functools
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def words() -> dict[str, str]:
    """Pattern: what to write instead, from the table in CONTRIBUTING.md."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    table = text[text.index("## Words") :]
    rows = re.findall(r"^\| `(.+?)` \| (.+?) \|", table, flags=re.MULTILINE)
    return {pattern.replace("\\|", "|"): instead for pattern, instead in rows}


WORDS = words()


@functools.cache  # parsed once, not once per pattern
def prose(path: Path) -> list[tuple[int, str]]:
    """(line, text) of what a person reads: all of a page; of code its strings and comments."""
    if path.suffix != ".py":
        text = path.read_text("utf-8")
        return list(enumerate(text[: _end(path, text)].splitlines(), 1))
    found = [
        (node.lineno, node.value)
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    with tokenize.open(path) as lines:
        tokens = tokenize.generate_tokens(lines.readline)
        found += [(t.start[0], t.string) for t in tokens if t.type == tokenize.COMMENT]
    return found


def _end(path: Path, text: str) -> int:
    return text.index("## Words") if path.name == "CONTRIBUTING.md" else len(text)


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
CODE = [
    path
    for folder in ("course", "autograde", "notebooks/source", "examples")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if "example" not in path.parts  # what students of the demo class wrote, mistakes and all
]


def test_the_list_of_words_is_read():
    assert len(WORDS) >= 8
    assert "again" in WORDS[r"\banew\b"]


@pytest.mark.parametrize("pattern", WORDS)
def test_a_word_of_the_list_is_written_nowhere(pattern):
    hits = [
        f"{path.relative_to(ROOT)}:{line}: {' '.join(text.split())[:90]}"
        for path in (*PAGES, *CODE)
        for line, text in prose(path)
        if re.search(pattern, text, flags=re.IGNORECASE)
    ]
    assert not hits, f"write {WORDS[pattern]}\n" + "\n".join(hits)
