"""Evaluation, splits and shift: memory, thresholds, intervals, groups, leaks, choosing.

Source: Lecture 3, "Loss and metric are not the same", "Before trusting validation" and
"Distribution shift is the next test"; ledger T23, T24, B41.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from course.plots.style import BLUE, GREEN, GREY, ORANGE, RED, axes, named

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LINES = ((RED, "-"), (BLUE, "--"), (GREEN, "-."), (ORANGE, ":"))


def plot_held(held: Mapping[str, Sequence[int]]) -> Figure:
    """Live bytes after each batch of a validation pass, by what the loop keeps.

    Args:
        held: Bytes after each batch, by name.
    """
    figure, ax = axes(6.4, 3.0)
    for (name, sizes), (colour, style) in zip(held.items(), LINES, strict=False):
        places = range(1, len(sizes) + 1)
        ax.plot(places, [s / 1e6 for s in sizes], style, color=colour, label=name, linewidth=1.8)
    ax.set(xlabel="batch", ylabel="live MB", ylim=(0, None))
    ax.legend(fontsize=8, frameon=False)
    return figure


def plot_thresholds(
    thresholds: Sequence[float], precision: Sequence[float], recall: Sequence[float], *,
    least: float, chosen: float,
) -> Figure:  # fmt: skip
    """Precision and recall over the threshold, with the required precision and the choice.

    Args:
        thresholds: In ascending order.
        precision: The precision at each threshold.
        recall: The recall at each threshold.
        least: The precision that is required.
        chosen: The threshold that was chosen.
    """
    figure, ax = axes(6.4, 3.2)
    ax.plot(thresholds, precision, color=BLUE, drawstyle="steps-post", label="precision")
    ax.plot(thresholds, recall, "--", color=RED, drawstyle="steps-post", label="recall")
    ax.axhline(least, color=GREY, linestyle=":", label=f"required: {least:.0%}")
    ax.axvline(chosen, color=GREEN, linestyle="-.", label=f"chosen: {chosen:.3f}")
    ax.set(xlabel="threshold", ylabel="on validation", ylim=(0, 1.03))
    ax.legend(fontsize=8, frameon=False, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=4)
    return figure


def plot_coverage(
    nums: Sequence[int], by_rule: Mapping[str, Sequence[float]], *, wanted: float = 0.95
) -> Figure:
    """How often an interval contains the true share, over the number of examples.

    Args:
        nums: Numbers of examples.
        by_rule: The coverage at each number, by the name of the rule.
        wanted: The nominal coverage.
    """
    figure, ax = axes(6.4, 3.0)
    for (name, shares), (colour, style) in zip(by_rule.items(), LINES, strict=False):
        ax.plot(nums, shares, style, color=colour, label=name, linewidth=1.8)
    ax.axhline(wanted, color=GREY, linestyle=":", label=f"nominal: {wanted:.0%}")
    ax.set(xlabel="examples", ylabel="intervals that contain it", xscale="log", ylim=(None, 1.01))
    ax.legend(fontsize=8, frameon=False)
    return figure


def plot_groups(rows: Sequence[Any], overall: float, *, label: str = "accuracy") -> Figure:
    """A mean per group with its interval, and the mean over all examples.

    Args:
        rows: `GroupScore`s, in the order shown from the top.
        overall: The mean over all.
        label: What is averaged.
    """
    figure, ax = axes(6.4, 0.9 + 0.42 * len(rows))
    for place, row in enumerate(rows):
        ax.plot([row.mean.low, row.mean.high], [place, place], color=BLUE, linewidth=2)
        ax.plot(row.mean.value, place, "o", color=BLUE)
    ax.axvline(overall, color=GREY, linestyle=":", label=f"all: {overall:.3f}")
    names = [f"{named(row.name)} ({row.num})" for row in rows]
    ax.set(yticks=range(len(rows)), yticklabels=names, xlabel=f"{label}, with its 95 % interval")
    ax.invert_yaxis()
    ax.legend(fontsize=8, frameon=False, loc="lower left", bbox_to_anchor=(0, 1.0))
    return figure


def plot_leaks(leaks: Sequence[Any]) -> Figure:
    """Mistakes with each leak (filled) and without it (hollow), connected; lower looks better.

    Args:
        leaks: `Leak`s; for an accuracy, the share of mistakes is drawn; an error is drawn
            unchanged.
    """
    figure, ax = axes(6.4, 1.0 + 0.45 * len(leaks))
    for place, leak in enumerate(leaks):
        with_it, without = leak.mistakes
        ax.plot([without, with_it], [place, place], color=GREY, linewidth=1.5)
        ax.plot(with_it, place, "o", color=RED, label=None if place else "with the leak")
        ax.plot(without, place, "o", color=BLUE, markerfacecolor="none", markersize=9,
                label=None if place else "without")  # fmt: skip
    names = [f"{leak.kind} ({leak.measure})" for leak in leaks]
    ax.set(yticks=range(len(leaks)), yticklabels=names, xlim=(0, None))
    ax.set_xlabel("mistakes on validation: 1 − accuracy, or the error")
    ax.invert_yaxis()
    ax.legend(fontsize=8, frameon=False, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=2)
    return figure


SIGNS = {
    "auc": "AUC between the two sides",
    "auc_matched": "AUC with equal class shares",
    "label_distance": "change in class shares",
    "drop": "loss in accuracy",
}
"""The numbers that describe a shift, with their names."""


def plot_shifts(shifts: Mapping[str, Any]) -> Figure:
    """The numbers of several shifts side by side: one panel per number, one bar per shift.

    Args:
        shifts: The results of `tell_shift`, by name.
    """
    figure, made = axes(9.6, 1.2 + 0.35 * len(shifts), columns=len(SIGNS))
    names = list(shifts)
    for ax, (field, words) in zip(made, SIGNS.items(), strict=True):
        values = [getattr(shift, field) for shift in shifts.values()]
        bars = ax.barh(names, values, color=BLUE)
        ax.bar_label(bars, [f"{value:.2f}" for value in values], padding=3, fontsize=8)
        if field.startswith("auc"):
            ax.axvline(0.5, color=GREY, linestyle=":")
        ax.set_xlim(min(0.0, 1.6 * min(values)), 1.3 * max(*values, 0.1))
        ax.set_title(named(words, 18), fontsize=9)
        ax.invert_yaxis()
        ax.tick_params(labelleft=ax is made[0])
    return figure


def plot_choosing(cost: Any) -> Figure:
    """Reported and true accuracy over the number of candidates, by the part that chose.

    Args:
        cost: The result of `course.analysis.choosing.cost_of_choosing`.
    """
    figure, made = axes(9.0, 3.2, columns=2)
    pairs = (
        ("the test set chooses", cost.chosen_on_test, cost.its_truth),
        ("validation chooses", cost.chosen_on_val, cost.val_truth),
    )
    every = [value for _, *both in pairs for line in both for value in line]
    for ax, (title, reported, true) in zip(made, pairs, strict=True):
        ax.plot(cost.num_candidates, reported, "o-", color=RED, label="reported on test")
        ax.plot(cost.num_candidates, true, "s--", color=BLUE, label="true")
        ax.set(
            xscale="log",
            xlabel="candidates",
            title=title,
            ylim=(min(every) - 0.01, max(every) + 0.01),
        )
        ax.legend(fontsize=8, frameon=False, loc="lower right")
    made[0].set_ylabel("accuracy")
    return figure
