"""A figure inside a page takes the page's ink and paper, and leaves the rest of the page alone."""

import xml.etree.ElementTree as ElementTree

import matplotlib
import pytest

from course.plots import theme
from course.plots.style import BLUE


@pytest.fixture
def figure():
    from matplotlib.figure import Figure

    inked = {name: theme.INK for name in theme.INKED}
    with matplotlib.rc_context(inked | {name: theme.PAPER for name in theme.PAPERED}):
        figure = Figure()
        ax = figure.subplots()
        ax.plot([1, 2], [3, 4], color=BLUE, label="loss")
        ax.legend()
        ax.text(1, 3, "written on a cell", color="black")
        ax.set(title='a < b & "c"', xlabel="epoch", ylabel="loss")
        yield figure


def test_ink_and_paper_are_the_pages_and_data_keep_their_colours(figure):
    svg = theme.themed_svg(figure)
    assert theme.INK not in svg and theme.PAPER not in svg
    assert svg.count("currentColor") > 10 and "var(--jp-layout-color0, Canvas)" in svg
    assert BLUE.lower() in svg.lower()


def test_it_is_well_formed_named_and_styles_nothing_else(figure):
    svg = theme.themed_svg(figure)
    root = ElementTree.fromstring(svg)
    assert root.get("role") == "img"
    assert root.get("aria-label") == 'Figure: a < b & "c", loss over epoch'
    assert root.get("width") is None and "max-width:" in root.get("style")
    assert "<style" not in svg and "<script" not in svg


def test_a_figure_of_very_many_points_stays_a_png(figure):
    figure.axes[0].plot(range(60_000), [hash(str(i)) % 997 for i in range(60_000)], "o")
    assert theme.themed_svg(figure) is None
