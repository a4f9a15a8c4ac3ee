"""Training curves: losses, metric, learning rate, gradient norm over the epochs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from course.plots.style import BLUE, GREEN, GREY, PURPLE, RED, axes, whole_numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

APART = {"epoch", "train_loss", "val_loss", "lr", "grad_norm", "num_examples", "val_num_examples"}


def plot_history(epochs: Sequence[Mapping[str, Any]], *, title: str = "") -> Figure:
    """Losses, and beside them whatever else the epochs hold.

    A loss that is no finite number cannot be drawn: its first epoch is marked with words.

    Args:
        epochs: A dictionary an epoch, as `History.epochs`.
        title: Above the losses.

    Source: Lecture 3, figure "Training curves"; ledger S15.
    """
    metric = next((k for k in (epochs[0] if epochs else ()) if _is_metric(k, epochs)), None)
    others = [name for name in (metric, "lr", "grad_norm") if name and _values(epochs, name)]
    figure, made = axes(4.2 + 3.0 * len(others), 3.2, columns=1 + len(others))
    first, *rest = made if others else [made]
    _losses(first, epochs, title)
    for ax, name, colour in zip(rest, others, (GREEN, PURPLE, GREY), strict=False):
        points = _values(epochs, name)
        ax.plot([x for x, _ in points], [y for _, y in points], "o-", color=colour, markersize=3)
        ax.set(xlabel="epoch", ylabel=name.replace("_", " "))
        whole_numbers(ax)
        if name in ("lr", "grad_norm") and all(y > 0 for _, y in points):
            ax.set_yscale("log")
    return figure


def _losses(ax: Any, epochs: Sequence[Mapping[str, Any]], title: str) -> None:
    train, val = _values(epochs, "train_loss"), _values(epochs, "val_loss")
    for points, style, colour, label in (
        (train, "o-", BLUE, "training"), (val, "s--", RED, "validation"),
    ):  # fmt: skip
        if points:
            x, y = zip(*points, strict=True)
            ax.plot(x, y, style, color=colour, label=label, markersize=3)
    if val and not _broken(epochs):  # the best epoch before an explosion is no result
        x, _ = min(val, key=lambda point: point[1])
        ax.axvline(x, color=GREY, linestyle=":", label=f"best epoch: {x:g}")
    whole_numbers(ax)
    if broken := _broken(epochs):
        ax.axvline(broken, color=RED, label=f"inf or nan from epoch {broken:g}")
    drawn = [y for _, y in (*train, *val)]
    if drawn and min(drawn) > 0 and max(drawn) > 10 * min(drawn):
        ax.set_yscale("log")
    ax.set(xlabel="epoch", ylabel="mean loss", title=title)
    if drawn or broken:
        ax.legend(fontsize=8, frameon=False)
    else:
        ax.text(0.5, 0.5, "no epoch yet", transform=ax.transAxes, ha="center")


def _broken(epochs: Sequence[Mapping[str, Any]]) -> float | None:
    """The first epoch one of whose losses is inf or nan; None where all are finite."""
    for count, epoch in enumerate(epochs, start=1):
        losses = (epoch.get(name) for name in ("train_loss", "val_loss"))
        if any(isinstance(loss, float) and not math.isfinite(loss) for loss in losses):
            return float(epoch.get("epoch", count))
    return None


def _is_metric(name: str, epochs: Sequence[Mapping[str, Any]]) -> bool:
    return name.startswith("val_") and name not in APART and bool(_values(epochs, name))


def _values(epochs: Sequence[Mapping[str, Any]], name: str) -> list[tuple[float, float]]:
    """(epoch, value) where there is a finite number."""
    found = []
    for count, epoch in enumerate(epochs, start=1):
        value = epoch.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e30:
            found.append((float(epoch.get("epoch", count)), float(value)))
    return found
