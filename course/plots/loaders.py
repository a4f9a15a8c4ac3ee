"""Figures for loading: what is in a batch, what is never drawn, what is padding, where time goes.

Source: training-loop chapter, c1 and c2; Lecture 3, "Is the GPU waiting?"; ledger S03, T10, T11.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from course.plots.style import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY, axes, whole_numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLASS_COLOURS = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY)
STAGE_COLOURS = {"sampler": GREY, "items": RED, "collate": ORANGE, "step": BLUE}
MOST_ROWS = 40
"""Up to this many rows, a batch's padding is shown cell by cell."""


def plot_compositions(
    strategies: Mapping[str, Sequence[Sequence[int]]], class_names: Sequence[str]
) -> Figure:
    """How many examples of each class a batch holds, by sampling strategy.

    Args:
        strategies: The class indices of the examples in each batch, by name.
        class_names: By class index; at most as many as there are colours.
    """
    figure, made = axes(3.1 * len(strategies), 2.9, columns=len(strategies))
    panels = made if len(strategies) > 1 else [made]
    most = max(len(batch) for batches in strategies.values() for batch in batches)
    for ax, (name, batches) in zip(panels, strategies.items(), strict=True):
        places, bottoms = range(1, len(batches) + 1), [0] * len(batches)
        for label, (class_name, colour) in enumerate(zip(class_names, CLASS_COLOURS, strict=False)):
            counts = [list(batch).count(label) for batch in batches]
            ax.bar(places, counts, bottom=bottoms, color=colour, label=class_name, width=0.9)
            bottoms = [low + count for low, count in zip(bottoms, counts, strict=True)]
        ax.set(xlabel="batch", title=name, ylim=(0, 1.05 * most))
        whole_numbers(ax)
    panels[0].set_ylabel("examples")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False,
                  fontsize=8)  # fmt: skip
    return figure


def plot_draws(coverages: Mapping[str, Any]) -> Figure:
    """How many examples are drawn 0, 1, 2 ... times in an epoch, by sampler.

    Args:
        coverages: The results of `course.data.count_draws`, by name.
    """
    figure, ax = axes(6.4, 3.0)
    most = max(int(coverage.draws.max()) for coverage in coverages.values())
    width = 0.8 / len(coverages)
    for number, (name, coverage) in enumerate(coverages.items()):
        counts = coverage.draws.bincount(minlength=most + 1).tolist()
        places = [times + (number - (len(coverages) - 1) / 2) * width for times in range(most + 1)]
        ax.bar(places, counts, width, color=CLASS_COLOURS[number], label=name)
    ax.set(xlabel="times drawn in an epoch", ylabel="examples", xticks=range(most + 1))
    ax.legend(fontsize=8, frameon=False)
    return figure


def plot_padding(batches: Mapping[str, Sequence[int]]) -> Figure:
    """Real cells and padding of batches of sequences, one row per sequence.

    Args:
        batches: The lengths of the sequences in one batch, by name; they are padded to the longest.

    Source: training-loop chapter, c2; ledger N08, S03.
    """
    figure, made = axes(3.3 * len(batches), 2.9, columns=len(batches))
    panels = made if len(batches) > 1 else [made]
    for ax, (name, lengths) in zip(panels, batches.items(), strict=True):
        rows, longest = range(len(lengths)), max(lengths)
        empty = [longest - length for length in lengths]
        height = 0.85 if len(lengths) <= MOST_ROWS else 1.0
        ax.barh(rows, lengths, height, color=BLUE, label="real")
        ax.barh(rows, empty, height, left=list(lengths), color=ORANGE, label="padding")
        share = sum(empty) / (longest * len(lengths))
        ax.set(xlabel="position", title=f"{name}: {share:.0%} padding")
        ax.invert_yaxis()
    panels[0].set_ylabel("sequence in the batch")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    return figure


def plot_stages(times: Mapping[str, Any]) -> Figure:
    """Where the time of a batch goes: one bar per loader, with one piece per stage.

    Args:
        times: The results of `course.data.time_stages`, by name.

    Source: Lecture 3, "Is the GPU waiting?"; ledger T11, T08.
    """
    figure, ax = axes(6.8, 1.3 + 0.45 * len(times))
    for row, one in enumerate(times.values()):
        left = 0.0
        for stage, colour in STAGE_COLOURS.items():
            width = 1e3 * getattr(one, stage)
            ax.barh(row, width, left=left, color=colour, label=stage if row == 0 else None)
            left += width
    ax.set(yticks=range(len(times)), yticklabels=list(times), xlabel="milliseconds per batch")
    ax.invert_yaxis()
    ax.legend(fontsize=8, frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=4)
    return figure
