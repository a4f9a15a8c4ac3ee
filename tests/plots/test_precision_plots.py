"""The figures of precision, memory and clipping show the numbers they were given."""

import math

import pytest
import torch

from course.plots.precision import (
    plot_gaps,
    plot_gradient_sizes,
    plot_layer_norms,
    plot_memory,
    plot_scale,
    plot_seeds,
    plot_spacing,
    relative_spacing,
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("exponent", [-140, -20, -16, 0, 5, 15, 16, 100])
def test_the_gap_is_the_one_to_torchs_next_number(dtype, exponent):
    value = torch.tensor(2.0**exponent, dtype=torch.float64).to(dtype)
    gap = relative_spacing(exponent, torch.finfo(dtype))
    if value == 0 or value.isinf():
        assert math.isinf(gap)
    else:
        after = torch.nextafter(value, torch.tensor(math.inf, dtype=dtype))
        assert gap == (after.double() - value.double()).item() / 2.0**exponent


def test_a_format_ends_where_its_line_ends():
    (ax,) = plot_spacing({"FP16": torch.finfo(torch.float16)}).axes
    line = ax.lines[0].get_xdata()
    assert line[0] == 2.0**-24 and line[-1] == 2.0**15
    assert len(ax.lines) == 3  # a mark at either end


def test_gradients_are_counted_and_lost_ones_lie_in_the_grey():
    figure = plot_gradient_sizes({"a": [1e-3, 1e-9, 0.0], "b": [1.0]}, low=1e-7, high=1e4)
    assert [sum(bar.get_height() for bar in ax.patches[:48]) for ax in figure.axes] == [2, 1]
    assert [ax.get_title() for ax in figure.axes] == ["a", "b"]


def test_scales_are_drawn_with_their_skips():
    (ax,) = plot_scale([8.0, 4.0, 4.0], [0]).axes
    assert list(ax.lines[0].get_ydata()) == [8.0, 4.0, 4.0]
    assert list(ax.lines[1].get_xdata()) == [0] and list(ax.lines[1].get_ydata()) == [8.0]


def test_each_seed_has_a_point_and_each_row_its_mean():
    (ax,) = plot_seeds({"a": [0.5, 0.7], "b": [0.9]}, xlabel="accuracy").axes
    assert list(ax.lines[0].get_xdata()) == [0.5, 0.7]
    assert list(ax.lines[1].get_xdata()) == pytest.approx([0.6, 0.6])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b"]


def test_a_bar_is_as_long_as_its_parts_together():
    (ax,) = plot_memory(
        {"SGD": {"weights": 2.0}, "Adam": {"weights": 2.0, "m": 4.0}}, unit="GB"
    ).axes
    assert [text.get_text().strip() for text in ax.texts] == ["2", "6"]
    assert [bar.get_width() for bar in ax.patches] == [2.0, 2.0, 0.0, 4.0]


def test_a_gap_above_rounding_is_marked_otherwise():
    (ax,) = plot_gaps({"right": 1e-16, "none": 0.0, "wrong": 0.5}, rounding=1e-12).axes
    points = [line for line in ax.lines if len(line.get_xdata()) == 1]
    assert [line.get_marker() for line in points] == ["o", "o", "X"]


def test_norms_keep_their_layers():
    (ax,) = plot_layer_norms({"before": [300.0, 0.4]}, ["first", "second"]).axes
    assert list(ax.lines[0].get_ydata()) == [300.0, 0.4] and ax.get_yscale() == "log"
    assert [label.get_text() for label in ax.get_xticklabels()] == ["first", "second"]
