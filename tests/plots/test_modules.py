"""Pictures of modules and losses show the numbers that they were given."""

import math

import pytest
from matplotlib.colors import to_hex

from course.analysis.reach import Reach
from course.plots.modules import (
    plot_first_weights,
    plot_floors,
    plot_gate,
    plot_overflow,
    plot_reach,
    plot_targets,
)
from course.plots.style import BLUE, RED


def test_a_full_dot_stands_where_an_attribute_is_reached():
    figure = plot_reach({"layer": Reach(True, True, True), "mask": Reach(False, True, False)})
    (ax,) = figure.axes
    full = {
        (line.get_xdata()[0], line.get_ydata()[0])
        for line in ax.lines
        if line.get_markerfacecolor() != "none"
    }
    assert full == {(0, 0), (1, 0), (2, 0), (1, 1)}
    assert [label.get_text() for label in ax.get_yticklabels()] == ["layer", "mask"]


def test_each_layer_has_its_bounds():
    figure = plot_first_weights({"4 inputs": [0.1, -0.4], "16 inputs": [0.2, 0.0]}, [0.5, 0.25])
    edges = [sorted(line.get_xdata()[0] for line in ax.lines) for ax in figure.axes]
    assert edges == [[-0.5, 0.5], [-0.25, 0.25]]


def test_a_gate_has_what_arrives_and_what_is_passed_back():
    figure = plot_gate([-1, 0, 1], [0, 0, 1], [3, 3, 3], [0, 0, 3])
    arriving, back = figure.axes[1].lines[:2]
    assert list(arriving.get_ydata()) == [3, 3, 3] and list(back.get_ydata()) == [0, 0, 3]


def test_what_is_not_finite_is_not_drawn():
    figure = plot_overflow([-1, 0, 1], {"naive": [-math.inf, 1.0, math.inf], "shifted": [0, 1, 2]})
    naive, shifted = figure.axes[0].lines
    assert [math.isnan(y) for y in naive.get_ydata()] == [True, False, True]
    assert list(shifted.get_ydata()) == [0, 1, 2]


@pytest.mark.parametrize("panels", [1, 3])
def test_bars_below_zero_are_red(panels):
    figure = plot_targets({f"ε = {i}": [0.5, -0.5] for i in range(panels)})
    assert len(figure.axes) == panels
    for ax in figure.axes:
        assert [to_hex(bar.get_facecolor()) for bar in ax.patches] == [BLUE.lower(), RED.lower()]


def test_the_right_class_is_marked_in_every_panel():
    figure = plot_targets({"p": [0.2, 0.8], "slope": [-0.8, 0.8]}, right=0)
    for ax in figure.axes:
        assert [tick.get_text() for tick in ax.get_xticklabels()] == ["0\nright", "1"]


def test_floors_are_lines_with_their_numbers():
    figure = plot_floors({"a": [2.0, 1.6], "b": [2.0, 0.1]}, {"floor": 1.46115, "chance": 2.3})
    (ax,) = figure.axes
    assert ax.get_yscale() == "log" and len(ax.lines) == 4
    assert {text.get_text() for text in ax.texts} == {"floor 1.461", "chance 2.300"}
