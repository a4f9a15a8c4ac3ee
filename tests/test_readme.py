"""The README's tables are what the commands print."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def readme_tool():
    spec = importlib.util.spec_from_file_location("readme", ROOT / "tools" / "readme.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_are_what_the_commands_print():
    tool = readme_tool()
    text = (ROOT / "README.md").read_text("utf-8")
    blocks = tool.BLOCK.findall(text)
    assert {command for _, command, _, _ in blocks} == {"worked", "claims"}
    for _, command, shown, _ in blocks:
        assert shown == tool.table(command), "run make readme"


def test_the_tables_name_every_number_and_every_claim():
    from course import claims, worked

    text = (ROOT / "README.md").read_text("utf-8")
    assert all(f"| {id} |" in text for id in worked.catalogue())
    assert all(id in text for id in claims.catalogue())
