"""The picture of a run says what its numbers say, also where a number cannot be drawn."""

import math

import numpy as np
import pytest
import torch

from course.plots.curves import plot_history, plot_runs
from course.worked import compute


def run(*losses: float) -> list[dict[str, float]]:
    return [
        {"epoch": place + 1, "train_loss": loss, "val_loss": loss + 0.1}
        for place, loss in enumerate(losses)
    ]


def legend(ax) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_diverged_run_shows_where_and_boasts_of_no_best_epoch(bad):
    ax = plot_history(run(2.3, 1.5, bad, bad)).axes[0]
    assert "inf or nan from epoch 3" in legend(ax)
    assert not any("best" in text for text in legend(ax))
    assert "best epoch: 2" in legend(plot_history(run(2.3, 1.5, 1.6)).axes[0])


def test_a_run_that_never_had_a_loss_is_drawn_as_such():
    ax = plot_history(run(math.nan, math.nan)).axes[0]
    assert "inf or nan from epoch 1" in legend(ax)


@pytest.mark.parametrize("num_epochs", [1, 3, 12, 45])
def test_epochs_are_whole_numbers(num_epochs):
    figure = plot_history(run(*[1.0 / (n + 1) for n in range(num_epochs)]))
    figure.draw_without_rendering()
    low, high = figure.axes[0].get_xlim()
    shown = [tick for tick in figure.axes[0].get_xticks() if low <= tick <= high]
    assert shown and all(tick == int(tick) for tick in shown)


def test_a_part_of_the_run_is_called_a_part():
    assert compute("N27").plot().axes[0].get_xlabel() == "epoch (the first 20 of 100)"
    assert compute("N27", epochs=10).plot().axes[0].get_xlabel() == "epoch"


def test_a_loss_lost_in_a_record_is_marked_as_well():
    """A record's JSON has no nan: the number of that epoch is None."""
    epochs = [{"epoch": 1, "train_loss": 2.0}, {"epoch": 2, "train_loss": None}]
    assert "inf or nan from epoch 2" in legend(plot_history(epochs).axes[0])


@pytest.mark.parametrize("kind", [torch.tensor, np.float32, np.float64, float])
def test_numbers_of_any_library_are_drawn(kind):
    epochs = [{"train_loss": kind(value)} for value in (2.0, 1.0, 1e31)]
    (line,) = plot_history(epochs).axes[0].lines
    assert list(line.get_ydata()) == [2.0, 1.0, pytest.approx(1e31)]


@pytest.mark.parametrize("epochs", ["abc", None, [[1]], 5])
def test_what_is_no_epoch_is_said(epochs):
    with pytest.raises(ValueError, match=r"an epoch is .*: expected one dictionary per epoch"):
        plot_history(epochs)


def test_each_run_has_its_own_picture_and_its_own_losses():
    figure = plot_runs(
        {"a": run(2.0, 1.0), "b": run(3.0, 0.5, 0.25), "c": run(1.0, 0.9)}, columns=2
    )
    shown = [ax for ax in figure.axes if ax.get_visible()]
    assert [ax.get_title() for ax in shown] == ["a", "b", "c"]
    assert list(shown[1].lines[0].get_ydata()) == [3.0, 0.5, 0.25]
    assert list(shown[1].lines[1].get_ydata()) == pytest.approx([3.1, 0.6, 0.35])
