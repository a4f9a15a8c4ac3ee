"""The figures about seeds show the scores they were given, and the intervals of scipy."""

import numpy as np
import pytest
from scipy import stats

from course.plots.seeds import plot_pairs, plot_scores, plot_widths


def test_every_seed_is_a_point_and_the_line_is_their_mean():
    (ax,) = plot_scores({"small": [90.0, 92.0, 94.0], "large": [95.0, 95.0, 95.5]}).axes
    dots, mean = ax.lines[0], ax.lines[1]
    assert sorted(dots.get_xdata()) == [90.0, 92.0, 94.0]
    assert list(mean.get_xdata()) == [92.0, 92.0]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["small", "large"]
    same = ax.lines[2].get_xydata()
    assert len(np.unique(same, axis=0)) == 3, "two equal scores lie on each other"


def test_a_pair_that_went_down_is_dashed_and_differences_are_variant_less_baseline():
    left, right = plot_pairs([90.0, 91.0], [92.0, 90.5], ("a", "b")).axes
    assert [line.get_linestyle() for line in left.lines] == ["-", "--"]
    assert list(right.lines[1].get_xdata()) == [2.0, -0.5]
    assert right.get_legend().get_texts()[0].get_text() == "mean +0.75"


def test_the_width_is_scipys_interval_of_a_mean():
    (ax,) = plot_widths({"pairs": 0.4}, most=12).axes
    (line,) = ax.lines
    for n, width in zip(line.get_xdata(), line.get_ydata(), strict=True):
        low, high = stats.t.interval(0.95, n - 1, loc=0, scale=0.4 / np.sqrt(n))
        assert width == pytest.approx((high - low) / 2)
