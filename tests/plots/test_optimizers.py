"""The figures of the optimizers show the numbers they were given."""

import math

from course.plots.optimizers import plot_losses, plot_paths, plot_race, plot_rates


def test_a_way_down_is_drawn_point_by_point():
    (ax,) = plot_paths({"a": [[-4.0, 1.0], [-1.0, 0.5]], "b": [[-4.0, 1.0]]}, (1.0, 10.0)).axes
    named = {line.get_label(): line.get_xydata().tolist() for line in ax.lines}
    assert named["a"] == [[-4.0, 1.0], [-1.0, 0.5]] and named["b"] == [[-4.0, 1.0]]


def test_rates_and_losses_keep_their_order_and_names():
    (ax,) = plot_rates({"cosine": [1.0, 0.5], "step": [1.0, 0.1]}).axes
    assert [line.get_label() for line in ax.lines] == ["cosine", "step"]
    assert list(ax.lines[1].get_ydata()) == [1.0, 0.1]
    (ax,) = plot_losses({"run": ([1, 2], [0.5, 0.25])}, xlabel="epoch").axes
    assert ax.get_yscale() == "log" and ax.get_xlabel() == "epoch"


def test_a_run_that_did_not_arrive_is_said_to():
    (ax,) = plot_race({"fast": [20, 30], "slow": [math.inf, 90, math.inf]}, most=100).axes
    assert [text.get_text() for text in ax.texts] == ["2 did not get there"]
    assert list(ax.lines[0].get_xdata()) == [20, 30]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["fast", "slow"]
