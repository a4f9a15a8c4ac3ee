"""The tables of README and docs are what the commands print, and every link leads somewhere."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from autograde.sources import source_paths

ROOT = Path(__file__).resolve().parent.parent


def tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TOOL = tool("readme")


def test_the_tables_are_what_the_commands_print():
    blocks = [found for page in TOOL.PAGES for found in TOOL.BLOCK.findall(page.read_text("utf-8"))]
    assert {command for _, _, command, _, _ in blocks} >= {"worked", "claims", "notebooks"}
    for _, package, command, shown, _ in blocks:
        assert shown == TOOL.table(package, command), "run make readme"


def test_the_road_has_every_notebook_and_is_as_drawn():
    drawn = (ROOT / "docs" / "pictures" / "road.svg").read_text("utf-8")
    assert drawn == tool("road").road(), "run make readme"
    for name in source_paths():
        assert f">{name.partition('-')[0]} " in drawn


def test_the_tables_name_every_number_and_every_claim():
    from course import claims, worked

    docs = ROOT / "docs"
    numbers = (docs / "worked-numbers.md").read_text("utf-8")
    assert all(f"| {id} |" in numbers for id in worked.catalogue())
    assert all(id in (docs / "claims.md").read_text("utf-8") for id in claims.catalogue())


def test_every_link_to_a_file_leads_to_one():
    for page in (*TOOL.PAGES, ROOT / "CONTRIBUTING.md"):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_room_of_the_house_is_in_the_readme():
    text = (ROOT / "README.md").read_text("utf-8")
    table = text[text.index("## What is where") : text.index("## What changed")]
    for room in ("course", "autograde"):
        for path in (ROOT / room).iterdir():
            if path.is_dir() and (path / "__init__.py").exists():
                assert f"`{path.name}/`" in table, f"{room}/{path.name}/ has no line"


@pytest.mark.slow
def test_the_readers_snippet_works_as_pasted(tmp_path):
    text = (ROOT / "README.md").read_text("utf-8")
    (snippet,) = re.findall(r"```python\n(import torch\n.*?)```", text, flags=re.DOTALL)
    run = subprocess.run(
        [sys.executable, "-c", snippet], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stderr
    assert "already trained" not in run.stdout and "FAILED" not in run.stdout, run.stdout
    assert (tmp_path / "runs" / "first").is_dir()
