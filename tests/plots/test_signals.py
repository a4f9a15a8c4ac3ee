"""The figures of signals show the numbers that they were given."""

import numpy as np
import pytest

from course.plots.signals import LINES, plot_depth, plot_histograms


def test_a_curve_per_network_with_a_gap_where_nothing_arrives():
    ax = plot_depth({"a": [1.0, 0.1, 0.0, 0.01], "b": [2.0, 3.0]}).axes[0]
    first, second = ax.lines
    assert list(first.get_xdata()) == [1, 2, 3, 4] and ax.get_yscale() == "log"
    assert np.isnan(first.get_ydata()[2]) and list(second.get_ydata()) == [2.0, 3.0]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b"]


@pytest.mark.parametrize("number", [0, len(LINES) + 1])
def test_more_curves_than_styles_are_refused(number):
    with pytest.raises(ValueError, match="expected 1 to"):
        plot_depth({str(i): [1.0] for i in range(number)})


def test_histograms_hold_all_numbers_and_name_rows_and_columns():
    values = np.linspace(-3, 3, 50)
    figure = plot_histograms({"small": {"1": values, "2": 2 * values}, "large": {"1": values,
                              "2": values}}, limit=1.0)  # fmt: skip
    assert [ax.get_title() for ax in figure.axes] == ["1", "2", "", ""]
    assert [figure.axes[i].get_ylabel() for i in (0, 2)] == ["small", "large"]
    for ax in figure.axes:
        assert sum(bar.get_height() for bar in ax.patches) == 50
    with pytest.raises(ValueError, match="at least one network"):
        plot_histograms({})
