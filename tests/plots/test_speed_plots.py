"""The figures of speed show the times, multiples and gaps that they were given."""

import numpy as np
import pytest

from course.analysis.timing import Timing
from course.plots.speed import (
    NONE,
    plot_costs,
    plot_gaps,
    plot_pace,
    plot_products,
    plot_timings,
)


def line_of(ax, label):
    (found,) = [line for line in ax.lines if line.get_label() == label]
    return [np.asarray(values).tolist() for values in found.get_data()]


def test_timings_show_every_repeat_in_milliseconds():
    (ax,) = plot_timings({"a": Timing(times=(0.002, 0.001, 0.004), first=0.5),
                          "b": Timing(times=(0.1,), first=0.1)}).axes  # fmt: skip
    assert line_of(ax, "repeats") == [[2.0, 1.0, 4.0], [0, 0, 0]]
    assert line_of(ax, "median") == [[2.0], [0]] and line_of(ax, "first call") == [[500.0], [0]]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["a", "b"]


def test_products_have_a_line_of_cubes_through_the_last_of_the_first_device():
    (ax,) = plot_products([1, 2, 4], {"cpu": [0.1, 0.2, 0.64], "cuda": [1, 1, 1]}).axes
    assert line_of(ax, "cuda")[1] == [1000, 1000, 1000]
    assert line_of(ax, "∝ n³")[1] == pytest.approx([10, 80, 640])


def test_the_pace_is_drawn_up_to_the_most_workers():
    (ax,) = plot_pace(lambda n: 0.01 * (n + 1), {0: 0.02, 6: 0.03}, 0.005).axes
    assert line_of(ax, "predicted")[1] == pytest.approx([10, 20, 30, 40, 50, 60, 70])
    assert line_of(ax, "measured") == [[0, 6], [20, 30]]
    assert line_of(ax, "step alone")[1] == [5, 5]
    assert plot_pace(lambda n: 1.0, {}, 1.0).axes[0].get_xlim()[1] >= 4


def test_costs_reach_from_1_to_their_multiples():
    left, right = plot_costs({"plain": (1.0, 1.0), "x": (20.0, 0.5)}).axes
    ends = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in left.patches]
    assert ends == [(1, 1), (1, 20)]
    assert [text.get_text() for text in right.texts] == ["1.00", "0.50"]
    low, high = left.get_xlim()
    assert low < 1 and high > 20


def test_a_gap_of_nothing_stands_on_the_floor():
    (ax,) = plot_gaps({"equal": {"mean": 0.0, "by": 0.5}, "unequal": {"mean": 0.3, "by": 0.1}}).axes
    assert [bar.get_height() for bar in ax.patches] == [NONE, 0.3, 0.5, 0.1]
    assert [text.get_text() for text in ax.get_xticklabels()] == ["equal", "unequal"]
