"""Figures for error analysis: mistakes, buckets, confusion, threshold, reliability, ceilings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from course.plots.style import BLUE, GREY, ORANGE, RED, axes, named

if TYPE_CHECKING:
    from matplotlib.figure import Figure


MOST_MISTAKES = 24
MOST_CELLS = 20
"""Up to this many classes a confusion matrix shows its counts."""


def plot_mistakes(errors: Any, *, n: int = 12, columns: int = 6) -> Figure:
    """The first mistakes as a grid: the image (or features), the true and the predicted class.

    Args:
        errors: The result of `collect_errors`.
        n: How many, at most 24.
        columns: Mistakes per row.

    Source: Lecture 3, "Error analysis"; ledger S19.
    """
    from matplotlib.figure import Figure

    shown = errors.mistakes[: min(n, MOST_MISTAKES)]
    columns = max(1, min(columns, len(shown)))
    rows = max(1, math.ceil(len(shown) / columns))
    figure = Figure(figsize=(max(3.2, 1.5 * columns), 2.1 * rows), layout="constrained")
    for ax, mistake in zip(_grid(figure, rows, columns), shown, strict=False):
        _draw_input(ax, mistake.input)
        bucket = errors.bucket_of(mistake)
        ax.set_title(
            f"#{mistake.index}: true {errors.class_names[mistake.target]}\n"
            f"predicted {errors.class_names[mistake.prediction]} ({mistake.confidence:.0%})",
            fontsize=8,
        )
        ax.set_xlabel(named(bucket, 18), fontsize=8, color=BLUE)
        ax.set_visible(True)
    if not shown:
        figure.text(0.5, 0.5, "no mistakes", ha="center", va="center")
    return figure


def _grid(figure: Figure, rows: int, columns: int) -> list[Any]:
    made = list(figure.subplots(rows, columns, squeeze=False).flat)
    for ax in made:
        ax.set(xticks=[], yticks=[], visible=False)
    return made


def _draw_input(ax: Any, example: Any) -> None:
    """An image for [H, W] and [C, H, W] with 1 or 3 channels; otherwise a curve of the numbers."""
    example = example.float().numpy()
    if example.ndim == 3 and example.shape[0] in (1, 3):
        example = example[0] if example.shape[0] == 1 else example.transpose(1, 2, 0)
    if example.ndim == 2 or (example.ndim == 3 and example.shape[2] == 3):
        low, high = float(example.min()), float(example.max())
        ax.imshow((example - low) / ((high - low) or 1.0), cmap="gray_r", interpolation="nearest")
    else:
        ax.bar(range(example.size), example.flatten(), color=GREY, width=1.0)


def plot_buckets(table: Any) -> Figure:
    """Points of accuracy that each bucket could gain, largest first, with intervals.

    Source: Lecture 3, figure "Error buckets"; ledger N24, S19.
    """
    rows = list(reversed(table.rows))
    figure, ax = axes(6.8, 1.1 + 0.42 * max(2, len(rows)))
    for y, row in enumerate(rows):
        ax.barh(y, row.ceiling.value, color=GREY if row.bucket == table.untagged else BLUE)
        ax.plot([row.ceiling.low, row.ceiling.high], [y, y], color="black", linewidth=1.5)
        ax.annotate(
            f"{row.count} ({row.share:.0%})", (row.ceiling.high, y), xytext=(5, 0),
            textcoords="offset points", va="center", fontsize=8,
        )  # fmt: skip
    ax.set_yticks(range(len(rows)), [named(row.bucket, 28) for row in rows])
    ax.set(xlabel="most accuracy points to gain\n(line: bootstrap interval)")
    ax.margins(x=0.2)
    ax.set_xlim(left=0)
    return figure


def plot_confusion(confusion: Any) -> Figure:
    """Row = true class, column = predicted; the shade is the share of the true class.

    The diagonal is not shaded; otherwise all confusions would look white.
    """
    import numpy as np

    matrix, names = confusion.matrix, confusion.class_names
    share = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    off = share.copy()
    np.fill_diagonal(off, np.nan)
    size = min(9.0, 2.2 + 0.42 * len(names))
    figure, ax = axes(size + 0.9, size)
    top = max(float(np.nanmax(off)) if len(names) > 1 else 0.0, 0.01)
    image = ax.imshow(off, cmap="Blues", vmin=0, vmax=top)
    ax.set_facecolor("#EEEEEE")
    figure.colorbar(image, ax=ax, label="share of the true class", shrink=0.8)
    for (row, column), count in np.ndenumerate(matrix) if len(names) <= MOST_CELLS else ():
        dark = row != column and off[row, column] > 0.6 * top
        if count:
            ax.text(column, row, int(count), ha="center", va="center", fontsize=8,
                    color="white" if dark else "black")  # fmt: skip
    ticks = range(len(names))
    long = max(map(len, names)) > 3
    ax.set_xticks(ticks, names, rotation=45 if long else 0, ha="right" if long else "center")
    ax.set_yticks(ticks, names)
    ax.set(xlabel="predicted", ylabel="true")
    return figure


def plot_threshold(tuned: Any) -> Figure:
    """The metric over the threshold, with the chosen one and 0.5."""
    figure, ax = axes(5.6, 3.4)
    thresholds, values = zip(*tuned.candidates, strict=True)
    ax.plot(thresholds, values, color=BLUE, drawstyle="steps-mid")
    ax.axvline(0.5, color=GREY, linestyle=":", label=f"0.5: {tuned.default:.3f}")
    ax.plot(tuned.threshold, tuned.tuned.value, "o", color=RED,
            label=f"{tuned.threshold:.3f}: {tuned.tuned.value:.3f}")  # fmt: skip
    ax.set(
        xlabel="threshold", ylabel=tuned.metric.replace("_", " "), title="on validation examples"
    )
    ax.legend(fontsize=8, frameon=False)
    return figure


def plot_reliability(calibration: Any, other: Any = None) -> Figure:
    """Accuracy over confidence; on the diagonal, a confidence of 80 % is right 80 % of the time.

    Args:
        calibration: The original calibration.
        other: The calibration after temperature scaling, for comparison.
    """
    figure, ax = axes(4.4, 4.8)
    ax.plot([0, 1], [0, 1], color=GREY, linestyle=":", label="confidence = accuracy")
    for one, style, colour in ((calibration, "o-", BLUE), (other, "s--", ORANGE)):
        if one is not None:
            label = f"T = {one.temperature:.2f}: ECE {one.ece:.3f}"
            ax.plot(one.confidence, one.accuracy, style, color=colour, label=label)
    ax.set(xlabel="mean confidence in the bin", ylabel="accuracy in the bin", aspect="equal")
    ax.set(xlim=(0, 1.02), ylim=(-0.02, 1.02))
    # below the axes, since overconfident points are low and underconfident ones high
    ax.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.16))
    return figure


def plot_ceiling(result: Any) -> Figure:
    """Points gained with each stage replaced by the truth: alone, and along with those before.

    Source: Lecture 3, figure "Ceiling analysis"; ledger N25, S20.
    """
    figure, ax = axes(6.4, 1.1 + 0.45 * len(result.stages))
    rows = list(reversed(result.stages))
    for y, row in enumerate(rows):
        ax.barh(y, row.gain.value, color=BLUE, label=None if y else "alone")
        ax.plot(row.step_gain, y, "D", color=ORANGE, markeredgecolor="black", zorder=3,
                label=None if y else "with those before it")  # fmt: skip
        ax.plot([row.gain.low, row.gain.high], [y, y], color="black", linewidth=1.5)
        ax.annotate(f"{row.gain.value:+.1f}", (max(row.gain.high, row.step_gain, 0), y),
                    xytext=(5, 0), textcoords="offset points", va="center", fontsize=9)  # fmt: skip
    ax.axvline(0, color="black", linewidth=0.8)
    ax.set_yticks(range(len(rows)), [named(row.name, 28) for row in rows])
    ax.margins(x=0.14)
    ax.set(xlabel="points gained if the stage were perfect", title=f"now: {result.baseline:.1f}")
    ax.legend(fontsize=8, frameon=False)
    return figure


def plot_case(case: Any) -> Figure:
    """Loss and metrics of the models, side by side; the best bar of each is filled."""
    measures: Sequence[str] = list(case.measures)
    figure, made = axes(2.1 * len(measures) + 0.6, 2.9, columns=len(measures))
    for ax, measure in zip(made, measures, strict=True):
        winner = case.winner(measure)
        for x, (name, values) in enumerate(case.models.items()):
            won = winner in (name, None)
            ax.bar(x, values[measure], color=BLUE if won else "white", edgecolor=BLUE)
            ax.annotate(f"{values[measure]:.3g}", (x, values[measure]), ha="center", fontsize=8,
                        xytext=(0, 2), textcoords="offset points")  # fmt: skip
        ax.set_xticks(range(len(case.models)), case.models, rotation=25, ha="right", fontsize=8)
        better = "lower" if case.measures[measure] == "min" else "higher"
        ax.set_title(f"{measure}\n({better} is better)", fontsize=9)
        ax.margins(y=0.15)
    return figure
