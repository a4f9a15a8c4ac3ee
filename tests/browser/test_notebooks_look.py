"""The notebooks in a real JupyterLab, worked through, light and dark: screens in build/screens/.

Looked for: what overflows its page, words broken in the middle, widgets that cannot be shown again,
errors on the console, text without contrast in figures.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbformat.sign import NotebookNotary

from autograde.sources import source_paths
from course.desk import lay_out
from tests.browser.lab import ROOT, jupyter_lab
from tests.sampling import THOROUGH, sample
from tests.worked_through import worked_through

SCREENS = ROOT / "build" / "screens"
NAMES = sample(list(source_paths()), 16)
WIDTHS = {"light": (480, 760, 1280), "dark": (480, 760, 1280) if THOROUGH else (1280,)}
"""Of the screens; what overflows does so in either theme."""
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
TALLEST = 16_000
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def desk(tmp_path_factory) -> Path:
    """Folder of a desk's notebooks."""
    return lay_out(tmp_path_factory.mktemp("desk") / "mine", say=str)


@pytest.fixture(scope="module")
def lab(desk, home) -> Iterator[str]:
    with jupyter_lab(desk.parent, home, "--expose-app-in-browser") as address:
        yield address


OVERFLOWING = """() => {
    const scrolls = element => /auto|scroll|hidden/.test(getComputedStyle(element).overflowX);
    const found = [];
    for (const output of document.querySelectorAll(".jp-OutputArea-output, .jp-MarkdownOutput")) {
        const edge = output.getBoundingClientRect().right + 1;
        for (const inside of output.querySelectorAll("*")) {
            if (inside.getBoundingClientRect().right <= edge) continue;
            let box = inside.parentElement;
            while (box !== output && !scrolls(box)) box = box.parentElement;
            if (box === output) found.push(inside.outerHTML.slice(0, 200));
        }
    }
    return found;
}"""
BROKEN_WORDS = """() => {
    const found = [];
    const texts = ".jp-RenderedHTMLCommon :is(td, th, p, li, pre)";
    for (const root of document.querySelectorAll(texts)) {
        const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
        while (walker.nextNode()) {
            for (const word of walker.currentNode.data.matchAll(/[A-Za-z]{3,}/g)) {
                const range = document.createRange();
                range.setStart(walker.currentNode, word.index);
                range.setEnd(walker.currentNode, word.index + word[0].length);
                const lines = new Set([...range.getClientRects()].map(box => Math.round(box.top)));
                if (lines.size > 1) found.push(word[0]);
            }
        }
    }
    return found;
}"""


CHANGE_THEME = "theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})"
IS_DARK = "document.body.dataset.jpThemeLight === 'false'"


@pytest.mark.parametrize("name", NAMES)
def test_a_worked_through_notebook_looks_right(browser, lab, desk, home, shared, name):
    _answer_and_run(name, desk, home, shared)
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    page = context.new_page()
    page.set_default_timeout(60_000)
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else 0)
    page.on("pageerror", lambda fault: said.append(str(fault)))
    page.goto(f"{lab}/doc/tree/notebooks/{name}.ipynb")
    page.locator(".jp-Notebook .jp-Cell").first.wait_for()
    page.locator(".jp-OutputArea-output").last.wait_for(state="attached")
    page.wait_for_timeout(2000)
    SCREENS.mkdir(parents=True, exist_ok=True)
    for theme, widths in WIDTHS.items():
        page.evaluate(CHANGE_THEME, THEMES[theme])
        page.wait_for_function(IS_DARK if theme == "dark" else f"!({IS_DARK})")
        for width in widths:
            _look(page, width, SCREENS / f"{name}-{theme}-{width}.png")
    assert "Error displaying widget" not in page.locator(".jp-Notebook").inner_text()
    assert page.locator(".jp-OutputArea-output svg[role=img]").count() >= 1
    assert said == [], said
    context.close()


def _answer_and_run(name: str, desk: Path, home: Path, shared: Path) -> None:
    """Put the worked-through notebook in its place, as one that the user trusts."""
    path = desk / f"{name}.ipynb"
    nbformat.write(worked_through(name, shared).notebook, path)
    (home / "data").mkdir(exist_ok=True)
    notary = NotebookNotary(data_dir=str(home / "data"))
    notary.sign(nbformat.read(path, as_version=4))
    notary.store.close()


def _look(page, width: int, file: Path) -> None:
    page.set_viewport_size({"width": width, "height": 1000})
    page.wait_for_timeout(500)
    height = page.locator(".jp-WindowedPanel-outer").evaluate("box => box.scrollHeight")
    page.set_viewport_size({"width": width, "height": min(height + 120, TALLEST)})
    page.wait_for_timeout(500)
    page.screenshot(path=file)
    assert page.evaluate(OVERFLOWING) == [], width
    assert page.evaluate(BROKEN_WORDS) == [], width
