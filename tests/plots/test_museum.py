"""The figure of a bug next to the healthy run shows the very numbers it was given."""

import math

import numpy as np
import pytest
from matplotlib.colors import to_rgba

from course.plots.museum import BUG, HEALTHY, Bars, Curves, bug_beside_healthy


def drawn(panel):
    (axes,) = bug_beside_healthy([panel], title="B00  a bug").axes
    return axes


def test_each_curve_holds_its_values_by_step_from_one():
    axes = drawn(Curves(label="loss", healthy=[3.0, 2.0, 1.0], bug=[3.0, 4.0]))
    healthy, bug = axes.lines
    assert healthy.get_xdata().tolist() == [1, 2, 3] and bug.get_xdata().tolist() == [1, 2]
    assert list(healthy.get_ydata()) == [3, 2, 1] and list(bug.get_ydata()) == [3, 4]
    assert (healthy.get_color(), bug.get_color()) == (HEALTHY, BUG)
    assert [text.get_text() for text in axes.get_legend().texts] == [
        "without the bug", "with the bug",
    ]  # fmt: skip


def test_a_cross_marks_the_last_step_before_an_error():
    axes = drawn(Curves(label="loss", healthy=[3.0] * 5, bug=[3.0, 2.5], stopped="ValueError"))
    cross = axes.lines[2]
    assert (cross.get_marker(), list(cross.get_xdata()), list(cross.get_ydata())) == (
        "x", [2], [2.5],
    )  # fmt: skip
    assert cross.get_label() == "ValueError"


@pytest.mark.parametrize(
    ("stopped", "said"),
    [
        ("", "with the bug: not a single step\nwithout an error"),
        ("KeyError", "with the bug: not a single step\nKeyError"),
    ],
)
def test_a_run_without_a_step_is_said_in_words(stopped, said):
    axes = drawn(Curves(label="loss", healthy=[1.0, 0.5], bug=[], stopped=stopped))
    assert [text.get_text() for text in axes.texts] == [said]


def test_steps_that_are_not_finite_are_counted():
    axes = drawn(Curves(label="loss", healthy=[1.0, 1.0], bug=[1.0, math.inf, math.nan]))
    assert axes.texts[0].get_text() == "with the bug: inf or nan in 2 steps"
    axes.figure.canvas.draw()  # and the axis can still be drawn


@pytest.mark.parametrize(
    ("bug", "scale"), [([1e6], "log"), ([2.0], "linear"), ([0.0], "linear"), ([math.nan], "linear")]
)
def test_the_axis_is_logarithmic_where_positive_values_are_far_apart(bug, scale):
    assert drawn(Curves(label="loss", healthy=[1.0], bug=bug)).get_yscale() == scale


def test_bars_have_their_heights_and_numbers():
    axes = drawn(Bars(label="steps", healthy=150.0, bug=0.25))
    assert [bar.get_height() for bar in axes.patches] == [150.0, 0.25]
    assert [text.get_text() for text in axes.texts] == ["150", "0.25"]
    assert [bar.get_facecolor() for bar in axes.patches] == [to_rgba(HEALTHY), to_rgba(BUG)]


def test_a_long_label_stays_inside_the_figure():
    label = "largest change of a weight of the best since the day on which it was kept in memory"
    figure = bug_beside_healthy([Bars(label=label, healthy=1.0, bug=2.0)] * 2, title="B00  a bug")
    figure.canvas.draw()
    box = figure.bbox
    for axes in figure.axes:
        title = axes._left_title.get_window_extent()
        assert title.x0 >= box.x0 and title.x1 <= box.x1 and title.y1 <= box.y1


def test_panels_stand_side_by_side_under_one_title():
    panels = [Curves(label="loss", healthy=[1.0], bug=[2.0]), Bars(label="x", healthy=1.0, bug=2.0)]
    figure = bug_beside_healthy(panels, title="B00  a bug", caption="seen twice")
    assert figure.get_suptitle() == "B00  a bug\nseen twice"
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["loss", "x"]
    assert np.diff([axes.get_position().x0 for axes in figure.axes]) > 0


def test_no_panel_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        bug_beside_healthy([], title="nothing")
