"""The figures of the loaders show the counts, lengths and times they were given."""

import pytest
import torch
from matplotlib.colors import to_hex

from course.data import count_draws
from course.data.stages import StageTimes
from course.plots.loaders import (
    STAGE_COLOURS,
    plot_compositions,
    plot_draws,
    plot_padding,
    plot_stages,
)
from course.plots.style import BLUE, ORANGE


def bars_of(ax, colour):
    return [bar for bar in ax.patches if to_hex(bar.get_facecolor()).upper() == colour]


def test_a_batchs_bar_is_made_of_its_classes_counts():
    figure = plot_compositions(
        {"in order": [[0, 0, 1], [1, 1, 1]], "other": [[0], [1]]}, ["a", "b"]
    )
    first, second = figure.axes
    assert [bar.get_height() for bar in bars_of(first, BLUE)] == [2, 0]
    assert [(bar.get_y(), bar.get_height()) for bar in bars_of(first, ORANGE)] == [(2, 1), (0, 3)]
    assert [first.get_title(), second.get_title()] == ["in order", "other"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b"]
    assert len(plot_compositions({"one": [[0, 1]]}, ["a", "b"]).axes) == 1


def test_examples_are_counted_by_how_often_they_were_drawn():
    once, uneven = (count_draws(order, num_rows=4) for order in ([0, 1, 2, 3], [1, 1, 1, 2]))
    (ax,) = plot_draws({"plain": once, "weighted": uneven}).axes
    assert [bar.get_height() for bar in bars_of(ax, BLUE)] == [0, 4, 0, 0]
    assert [bar.get_height() for bar in bars_of(ax, ORANGE)] == [2, 1, 0, 1]
    assert sum(times * bar.get_height() for times, bar in enumerate(bars_of(ax, ORANGE))) == 4


def test_padding_fills_up_to_the_longest_and_its_share_is_said():
    figure = plot_padding({"two": [12, 47], "alike": [5, 5]})
    ax, alike = figure.axes
    assert [bar.get_width() for bar in bars_of(ax, BLUE)] == [12, 47]
    assert [(bar.get_x(), bar.get_width()) for bar in bars_of(ax, ORANGE)] == [(12, 35), (47, 0)]
    assert ax.get_title() == "two: 37% padding" and alike.get_title() == "alike: 0% padding"


def test_stages_follow_each_other_and_add_up():
    fast = StageTimes(sampler=0.001, items=0.002, collate=0.003, step=0.004, num_batches=5)
    slow = StageTimes(sampler=0.0, items=0.5, collate=0.0, step=0.004, num_batches=5)
    (ax,) = plot_stages({"fast": fast, "slow": slow}).axes
    pieces = [(bar.get_x(), bar.get_width()) for bar in ax.patches[:4]]
    assert torch.tensor(pieces).tolist() == [[0.0, 1], [1, 2], [3, 3], [6, 4]]
    assert bars_of(ax, STAGE_COLOURS["items"])[1].get_width() == pytest.approx(500)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["fast", "slow"]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == list(STAGE_COLOURS)
