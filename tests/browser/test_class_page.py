"""The class page as an instructor sees it: wide and narrow, light and dark, nothing cut or torn."""

from __future__ import annotations

from pathlib import Path

import pytest

from autograde.classroom.page import write_page
from tests.autograde.paper_class import ASSIGNMENT, Paper, make

SEEN = {"03a.clip": "raised NotImplementedError", "03a.accumulate": "divided-by-k"}
LINE_PX = 24
"""Of the page's text; a row has its padding besides."""


@pytest.fixture(scope="module")
def class_page(tmp_path_factory) -> Path:
    papers = {f"student-number-{n:02}": Paper(why=None) for n in range(12)}
    papers["much-seen"] = Paper(clip=0, accumulate=1, status=SEEN)
    papers["ended"] = Paper(ended="the process left by itself (exit code 3).")
    papers["lost"] = Paper(not_graded=f"submitted/lost/{'long-' * 12}name.ipynb: is not there.")
    return write_page(make(tmp_path_factory.mktemp("page") / "class", papers), ASSIGNMENT)


@pytest.mark.slow
@pytest.mark.parametrize("width", [600, 1280])
def test_the_page_fits_and_its_rows_are_a_few_lines_high(page, class_page, width):
    page.set_viewport_size({"width": width, "height": 900})
    page.set_content(class_page.read_text("utf-8"))
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    heights = page.locator("#students tbody tr, #people tbody tr").evaluate_all(
        "rows => rows.map(row => row.getBoundingClientRect().height)"
    )
    assert len(heights) == 15 + 3 and max(heights) < 7 * LINE_PX
    lines = page.locator("#people td.warn").evaluate_all(
        """cells => cells.map(cell => {
            const range = document.createRange(); range.selectNodeContents(cell);
            return new Set([...range.getClientRects()].map(r => Math.round(r.top))).size })"""
    )
    assert set(lines) == {1}, "a kind is not broken into 'crashe' and 'd'"


@pytest.mark.slow
def test_a_name_stays_in_sight_while_a_narrow_table_is_scrolled(page, class_page):
    page.set_viewport_size({"width": 400, "height": 900})
    page.set_content(class_page.read_text("utf-8"))
    page.locator("#students .scroll").evaluate("box => box.scrollLeft = box.scrollWidth")
    cell = page.locator("#students tbody td").first.bounding_box()
    assert page.locator("#students .scroll").evaluate("box => box.scrollLeft") > 100
    assert 0 <= cell["x"] < 40


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_paper(page, class_page, scheme):
    """WCAG 2's contrast of 4.5 for all kinds of text on the page."""
    page.emulate_media(color_scheme=scheme)
    page.set_content(class_page.read_text("utf-8"))
    paper = luminance(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    for kind in ("p", "a", ".quiet", ".warn", "td"):
        ink = luminance(page.locator(kind).first.evaluate("e => getComputedStyle(e).color"))
        high, low = max(ink, paper), min(ink, paper)
        assert (high + 0.05) / (low + 0.05) >= 4.5, kind


def luminance(color: str) -> float:
    """Relative luminance of `rgb(r, g, b)`; Source: WCAG 2.2."""
    red, green, blue = (int(part) / 255 for part in color[4:-1].split(","))
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (red, green, blue)
    ]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
