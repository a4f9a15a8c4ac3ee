"""The curves as a figure: both losses with best epoch and stop, and accuracy with its interval."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from course.plots.style import BLUE, GREEN, ORANGE, PURPLE, RED, axes, whole_numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from course.widgets.curves.state import Settings

LOOKS = ((BLUE, RED, "o", "s"), (GREEN, PURPLE, "^", "D"))
"""Colours and markers of training and validation, of the first run and of the second."""


def draw(settings: Settings, frame: dict[str, Any]) -> Figure:
    """Losses over the epochs on the left, validation accuracy with its interval on the right."""
    figure, (left, right) = axes(10.0, 3.8, columns=2)
    for one, look in zip(frame["shown"], LOOKS, strict=False):
        _losses(left, one, frame["runs"][one["name"]], look)
        _accuracy(right, one, frame["runs"][one["name"]], look)
    left.set(xlabel="epoch", ylabel="mean loss", yscale=frame["axis"])
    if frame["axis"] == "linear":
        left.set_ylim(bottom=0)
    right.set(xlabel="epoch", ylabel="validation accuracy", ylim=(0, 1.03))
    for ax in (left, right):
        whole_numbers(ax)
    left.legend(fontsize=8, frameon=False)
    right.legend(fontsize=8, frameon=False, loc="lower right")
    left.set_title(
        "; ".join(f"{one['name']}: {one['verdict']}" for one in frame["shown"]), fontsize=10
    )
    return figure


def _losses(ax: Any, one: dict[str, Any], run: dict[str, Any], look: tuple[str, ...]) -> None:
    train, val, first, second = look
    epochs, name = range(1, one["seen"] + 1), one["name"]
    ax.plot(epochs, run["train"][: one["seen"]], f"-{first}", color=train, markersize=3,
            label=f"{name}, training")  # fmt: skip
    ax.plot(epochs, run["val"][: one["seen"]], f"--{second}", color=val, markersize=3,
            label=f"{name}, validation")  # fmt: skip
    ax.plot(one["best_epoch"], one["best"], "*", color=ORANGE, markersize=13,
            markeredgecolor="black", label=f"best: epoch {one['best_epoch']}")  # fmt: skip
    if one["stop"]:
        ax.axvline(one["stop"], color=val, linestyle=":", label=f"stop: epoch {one['stop']}")


def _accuracy(ax: Any, one: dict[str, Any], run: dict[str, Any], look: tuple[str, ...]) -> None:
    _, val, _, second = look
    seen = slice(one["seen"])
    epochs = range(1, one["seen"] + 1)
    ax.fill_between(epochs, run["low"][seen], run["high"][seen], color=val, alpha=0.15, linewidth=0)
    ax.plot(epochs, run["accuracy"][seen], f"--{second}", color=val, markersize=3,
            label=f"{one['name']}, {run['num_val']} images, 95 % interval")  # fmt: skip
