"""The page of all claims in a real browser: wide and narrow, closed and with its evidence open."""

import pytest

from course.claims import compute
from course.claims.contradictions import contradictions
from course.claims.page import page as page_of

SOME = ("F02", "F07", "F33", "F43", "F112")


@pytest.fixture(scope="module")
def html() -> str:
    return page_of([compute(id) for id in SOME])


@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 700, 1280])
def test_nothing_stands_beside_the_page(page, html, width):
    page.set_viewport_size({"width": width, "height": 900})
    page.set_content(html)
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.get_by_text(
        "combinations of network and dtype whose .grad is not FP32: 0 of 4"
    ).is_visible()


@pytest.mark.slow
def test_an_id_stays_on_one_line_and_a_contradiction_leads_to_its_claim(page, html):
    page.set_content(html)
    lines = page.evaluate(
        "[...document.querySelectorAll('tr[id] > td:first-child')].map("
        "cell => { const range = document.createRange(); range.selectNodeContents(cell);"
        " return range.getClientRects().length })"
    )
    assert len(lines) == len(SOME) + len(contradictions()) and set(lines) == {1}
    assert page.locator("#K23 a[href='#F33']").count() == 1
    ids = page.evaluate("[...document.querySelectorAll('a')].map(a => a.getAttribute('href'))")
    assert "#F33" in ids and "#F44" not in ids  # K08 cites F44; it is not on this page
    for id in ids:
        assert page.locator(id).count() == 1, f"{id} leads nowhere"
