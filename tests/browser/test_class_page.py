"""The class page as an instructor sees it, wide and narrow: nothing cut, nothing torn."""

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
    kinds = page.locator("#people td.warn").evaluate_all(
        """cells => cells.map(cell => {
            const range = document.createRange(); range.selectNodeContents(cell);
            const lines = new Set([...range.getClientRects()].map(r => Math.round(r.top))).size;
            return [lines, cell.textContent.split(" ").length] })"""
    )
    assert all(lines <= words for lines, words in kinds), "a kind is broken into 'crashe' and 'd'"


@pytest.mark.slow
def test_a_name_stays_in_sight_while_a_narrow_table_is_scrolled(page, class_page):
    page.set_viewport_size({"width": 400, "height": 900})
    page.set_content(class_page.read_text("utf-8"))
    page.locator("#students .scroll").evaluate("box => box.scrollLeft = box.scrollWidth")
    cell = page.locator("#students tbody td").first.bounding_box()
    assert page.locator("#students .scroll").evaluate("box => box.scrollLeft") > 100
    assert 0 <= cell["x"] < 40
