"""Guesses against answers: the points of a well-calibrated guesser lie near the diagonal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from course.plots.style import BLUE, GREY, axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_guesses(
    guesses: Sequence[float], answers: Sequence[float], names: Sequence[str]
) -> Figure:
    """Each answer against its guess, on logarithmic axes with the diagonal and a factor of 2.

    Args:
        guesses: Positive numbers.
        answers: Positive numbers, as many.
        names: The label of each point.
    """
    figure, ax = axes(4.2, 4.0)
    low, high = min([*guesses, *answers]) / 2, max([*guesses, *answers]) * 2
    ends = [low, high]
    ax.plot(ends, ends, color=GREY, linewidth=1, label="guess = answer")
    ax.fill_between(ends, [e / 2 for e in ends], [2 * e for e in ends], color=GREY, alpha=0.15)
    ax.plot(guesses, answers, "o", color=BLUE)
    for guess, answer, name in zip(guesses, answers, names, strict=True):
        ax.annotate(name, (guess, answer), xytext=(5, 3), textcoords="offset points", fontsize=8)
    ax.set(
        xscale="log", yscale="log", xlim=ends, ylim=ends, xlabel="you guessed", ylabel="the answer"
    )
    ax.set_title("grey: within a factor of 2", fontsize=9, loc="left")
    return figure
