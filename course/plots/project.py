"""Figures of the project: takes of an object, mistakes by pairs, a score and its baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from course.plots.style import BLUE, GREY, ORANGE, axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

MOST_PAIRS = 10
"""Bars in a figure: further pairs have only a mistake or two each."""
MOST_COLUMNS = 8
"""Objects in a figure: with more, an image is too small to be distinguished from its neighbour."""


def plot_takes(
    images: Tensor,
    labels: Tensor,
    groups: Tensor,
    *,
    columns: int = 6,
    class_names: Sequence[str] | None = None,
) -> Figure:
    """Objects that were photographed more than once: one column per object, with its takes.

    Args:
        images: [N, H, W].
        labels: [N].
        groups: [N], equal for takes of the same object.
        columns: How many objects; those with the most takes come first.
        class_names: By label; without them a column shows the number.

    Source: Lecture 3, "Splits and leakage"; ledger B22.
    """
    from matplotlib.figure import Figure

    names, counts = groups.unique(return_counts=True)
    columns = min(columns, MOST_COLUMNS, len(names))
    shown = names[counts.argsort(descending=True, stable=True)[:columns]].tolist()
    rows = int(counts.max())
    figure = Figure(figsize=(1.1 * columns, 1.1 * rows + 0.3), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for column, name in enumerate(shown):
        places = (groups == name).nonzero().flatten().tolist()
        label = int(labels[places[0]])
        title = class_names[label] if class_names else f"label {label}"
        grid[0][column].set_title(title, fontsize=8)
        for row in range(rows):
            grid[row][column].set_axis_off()
            if row < len(places):
                image = images[places[row]].numpy()
                grid[row][column].imshow(image, cmap="gray_r", vmin=0, vmax=255)
    return figure


def plot_bars(scores: Mapping[str, Any], *, model: str) -> Figure:
    """Accuracies with their intervals; the model's is blue.

    Args:
        scores: An interval with `value`, `low` and `high`, e.g. from `wilson_interval`, by name.
        model: The name of the model; the others are baselines to beat.

    Source: Lecture 1, "The debug ladder"; ledger T21.
    """
    figure, ax = axes(6.4, 0.8 + 0.55 * len(scores))
    for height, (name, score) in zip(range(len(scores), 0, -1), scores.items(), strict=True):
        ax.barh(height, score.value, color=BLUE if name == model else GREY, height=0.6)
        ax.plot([score.low, score.high], [height, height], color=ORANGE, linewidth=2.5)
        ax.annotate(f"{score.value:.1%}", (0, height), xytext=(6, 0), textcoords="offset points",
                    color="white", va="center", fontsize=8)  # fmt: skip
    ax.set_yticks(range(len(scores), 0, -1), list(scores))
    ax.set(xlim=(0, 1), xlabel="accuracy (orange: 95 % interval)")
    return figure


def plot_headroom(
    pairs: Sequence[tuple[int, int, int]],
    people: Mapping[tuple[int, int], float],
    num_examples: int,
    *,
    class_names: Sequence[str] | None = None,
) -> Figure:
    """The accuracy lost to each pair of classes, and how much of it can be gained back.

    Args:
        pairs: Two classes and the count of their mistakes, largest first.
        people: The share of a pair's mistakes that people make, too, by pair; 0 if a pair is
            missing.
        num_examples: Number of examples evaluated; points are a share of these.
        class_names: One per class; the indices by default.

    Source: Lecture 3, "Error analysis"; ledger N24, S19.
    """
    shown = [(low, high, count) for low, high, count in pairs[:MOST_PAIRS]]
    figure, ax = axes(6.4, 1.2 + 0.32 * max(2, len(shown)))
    for height, (low, high, count) in zip(range(len(shown), 0, -1), shown, strict=True):
        points = 100 * count / num_examples
        won = points * (1 - people.get((low, high), 0.0))
        ax.barh(height, won, color=BLUE, height=0.6)
        ax.barh(height, points - won, left=won, color=GREY, height=0.6)
        ax.annotate(f"{won:.2f}", (points, height), xytext=(5, 0), textcoords="offset points",
                    va="center", fontsize=8)  # fmt: skip
    called = class_names or {name: name for row in shown for name in row[:2]}
    names = [f"{called[low]} and {called[high]}" for low, high, _ in shown]
    ax.set_yticks(range(len(shown), 0, -1), names)
    ax.set(xlabel="points of accuracy (blue: to gain, grey: misread by people, too)")
    ax.margins(x=0.15)
    ax.set_xlim(left=0)
    return figure
