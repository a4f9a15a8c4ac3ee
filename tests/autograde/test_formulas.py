"""Formulas in feedback pages: drawn without a script, or shown as they were typed.

Oracle for what is a formula: nbconvert's own Markdown; for what was drawn: the SVG read back.
"""

import base64
import re
import time
from xml.etree import ElementTree

import pytest
from bs4 import BeautifulSoup
from nbconvert.filters.markdown_mistune import markdown2html_mistune

from autograde.classroom import formulas
from autograde.classroom.formulas import picture
from autograde.classroom.safe_html import sanitize, sanitize_page


def shown(markdown: str) -> BeautifulSoup:
    """A student's Markdown as it stands in a feedback page."""
    return BeautifulSoup(sanitize(markdown2html_mistune(markdown)), "html.parser")


def drawing(image) -> ElementTree.Element:
    coded = image["src"].removeprefix("data:image/svg+xml;base64,")
    return ElementTree.fromstring(base64.b64decode(coded))


def test_a_formula_in_a_sentence_becomes_a_picture_on_the_line():
    page = shown(r"It is $\frac{1}{K}\sum_i \ell_i$, by **size**.")
    (image,) = page("img")
    assert image["alt"] == r"\frac{1}{K}\sum_i \ell_i"
    assert page.get_text().strip() == "It is , by size."
    assert re.fullmatch(r"formula down-\d+", " ".join(image["class"]))
    svg = drawing(image)
    assert svg.tag.endswith("svg") and "script" not in ElementTree.tostring(svg, "unicode")
    assert len(svg.findall(".//{*}use")) >= 5, "a glyph each: 1, K, sum, i, l, i"


def test_a_formula_on_its_own_lines_is_a_block():
    (image,) = shown("Then\n\n$$\nw = \\sum_i x_i\n$$\n\nholds.")("img")
    assert image["alt"] == r"w = \sum_i x_i" and "block" in image["class"]


@pytest.mark.parametrize(
    "markdown",
    ["It costs $5, later $6.", "From $5 to $6", "`$x$` is code", "    $x$ in a block", "A $ sign"],
)
def test_dollars_that_are_no_formula_stay(markdown):
    page = shown(markdown)
    assert page("img") == [] and page.get_text().count("$") == markdown.count("$")


@pytest.mark.parametrize(
    "tex", [r"\begin{aligned} a &= b \end{aligned}", r"\mymacro{x}", r"\frac{1}{", "x" * 500]
)
def test_what_cannot_be_drawn_is_shown_as_it_was_typed(tex):
    page = shown(f"So ${tex}$ holds.")
    assert page("img") == [] and page.code.get_text() == tex
    assert "$" not in page.get_text()


def test_an_environment_without_dollars_is_shown_as_code():
    page = shown("\\begin{align}\na &= b < c\n\\end{align}")
    assert page.code.get_text() == "\\begin{align}\na &= b < c\n\\end{align}"


def test_a_formula_brings_nothing_that_runs_or_is_fetched():
    evil = r"x $\text{<script>alert(1)</script>}$ $\href{javascript:a()}{b}$ $a" + '"onload="a()$'
    page = shown(evil)
    assert page("script") == [] and page(attrs={"onload": True}) == []
    for image in page("img"):
        text = ElementTree.tostring(drawing(image), "unicode")
        assert (
            "<script" not in text
            and "javascript" not in text
            and "http"
            not in (
                re.sub(
                    r'"http[^"]*(w3|purl|creativecommons|matplotlib)[^"]*"|https://matplotlib.org/',
                    "",
                    text,
                )
            )
        )


def test_a_page_can_place_its_formulas():
    page = sanitize_page("<html><head></head><body><p>$x_i$</p></body></html>")
    (name,) = re.findall(r"formula (down-\d+)", page)
    assert f".{name} {{ vertical-align" in page and page.index("<style>") < page.index("<body>")


@pytest.mark.parametrize(
    "tex",
    [r"\frac{" * 60 + "x" + "}{y}" * 60, "x^{" * 90 + "y" + "}" * 90, r"\left(" * 40, "{" * 300],
)
def test_a_nested_formula_does_not_hold_up_the_page(tex):
    started = time.process_time()
    picture(tex)
    assert time.process_time() - started < 10


def test_a_page_of_formulas_draws_as_many_as_a_page_may(monkeypatch):
    monkeypatch.setattr(formulas, "MAX_FORMULAS", 3)
    page = shown("\n\n".join(f"$x_{number}$ and $y$" for number in range(5)))
    assert len(page("img")) == 3 and len(page("code")) == 7


def test_the_same_formula_is_the_same_picture():
    picture.cache_clear()
    first = picture("x_i")
    picture.cache_clear()
    again = picture("x_i")
    plain = [re.sub(rb"\b[mp][0-9a-f]{10}\b", b"", svg) for svg, _ in (first, again)]
    assert plain[0] == plain[1] and first[1] == again[1]
