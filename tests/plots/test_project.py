"""The project's figures show the objects with the most takes, and scipy's intervals."""

import pytest
import torch
from scipy.stats import binomtest

from course.analysis.scores.intervals import wilson_interval
from course.plots.project import plot_bars, plot_headroom, plot_takes


def test_a_column_holds_the_takes_of_one_object():
    groups = torch.tensor([7, 3, 7, 5, 7, 3])
    images = torch.arange(6)[:, None, None].expand(6, 2, 2).to(torch.uint8)
    figure = plot_takes(images, torch.tensor([1, 2, 1, 0, 1, 2]), groups, columns=2)
    drawn = [[int(im.get_array()[0, 0]) for im in ax.images] for ax in figure.axes]
    assert drawn == [[0], [1], [2], [5], [4], []]  # row by row: object 7, object 3
    assert [ax.get_title() for ax in figure.axes[:2]] == ["label 1", "label 2"]
    names = ["bag", "boot", "coat"]
    figure = plot_takes(images, torch.tensor([1, 2, 1, 0, 1, 2]), groups, class_names=names)
    assert [ax.get_title() for ax in figure.axes[:3]] == ["boot", "coat", "bag"]


def test_the_bars_are_the_shares_and_the_lines_scipys_intervals():
    hits = {"majority": 12, "model": 90}
    scores = {name: wilson_interval(count, 100) for name, count in hits.items()}
    (ax,) = plot_bars(scores, model="model").axes
    assert [bar.get_width() for bar in ax.patches] == [0.12, 0.9]
    assert ax.patches[0].get_facecolor() != ax.patches[1].get_facecolor()
    for line, count in zip(ax.lines, hits.values(), strict=True):
        wilson = binomtest(count, 100).proportion_ci(0.95, method="wilson")
        assert list(line.get_xdata()) == pytest.approx([wilson.low, wilson.high], abs=1e-6)


def test_a_pair_costs_its_share_of_all_examples_and_blue_is_what_people_leave():
    (ax,) = plot_headroom([(3, 5, 8), (1, 7, 4)], {(3, 5): 0.25}, 200).axes
    assert [(bar.get_x(), bar.get_width()) for bar in ax.patches] == [
        (0, 3),
        (3, 1),
        (0, 2),
        (2, 0),
    ]
    assert ax.patches[0].get_facecolor() == ax.patches[2].get_facecolor()
    assert ax.patches[0].get_facecolor() != ax.patches[1].get_facecolor()
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["3 and 5", "1 and 7"]
    assert [text.get_text() for text in ax.texts] == ["3.00", "2.00"]


def test_without_a_mistake_the_pairs_are_an_empty_figure():
    (ax,) = plot_headroom([], {}, 200).axes
    assert not ax.patches
