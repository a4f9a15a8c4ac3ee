"""Training curves: losses, metric, learning rate and gradient norm over the epochs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from course.plots.style import BLUE, GREEN, GREY, PURPLE, RED, axes, whole_numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

APART = {"epoch", "train_loss", "val_loss", "lr", "grad_norm", "num_examples", "val_num_examples"}


def plot_history(epochs: Sequence[Mapping[str, Any]], *, title: str = "") -> Figure:
    """The losses, and next to them everything else the epochs hold.

    A loss that is not finite cannot be drawn; its first epoch is marked in words instead.

    Args:
        epochs: One dictionary per epoch, as in `History.epochs`.
        title: Title above the losses.

    Raises:
        ValueError: An epoch is not a dictionary.

    Source: Lecture 3, figure "Training curves"; ledger S15.
    """
    epochs = _dictionaries(epochs)
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


def plot_runs(runs: Mapping[str, Sequence[Mapping[str, Any]]], *, columns: int = 3) -> Figure:
    """The losses of several runs, one small panel each, for comparison.

    Args:
        runs: For each name, one dictionary per epoch with `train_loss` and `val_loss`.
        columns: Panels per row.

    Source: Lecture 3, figure "Training curves"; ledger S15.
    """
    import numpy as np
    from matplotlib.figure import Figure

    rows = -(-len(runs) // columns)
    figure = Figure(figsize=(3.1 * columns, 2.3 * rows), layout="constrained")
    made = figure.subplots(rows, columns, squeeze=False).flat
    for (name, epochs), ax in zip(runs.items(), made, strict=False):
        for column, style, colour, label in (
            ("train_loss", "-", BLUE, "training"), ("val_loss", "--", RED, "validation"),
        ):  # fmt: skip
            x, y = np.array(_values(epochs, column)).T
            ax.plot(x, y, style, color=colour, label=label, linewidth=1.5)
        top = max(line.get_ydata().max() for line in ax.lines)
        ax.set(title=name, xlabel="epoch", ylabel="mean loss", ylim=(0, 1.08 * top))
        ax.spines[["top", "right"]].set_visible(False)
        whole_numbers(ax)
    for ax in list(made):  # unused panels of the last row
        ax.set_visible(False)
    figure.axes[0].legend(fontsize=8, frameon=False)
    return figure


def _dictionaries(epochs: Any) -> list[Mapping[str, Any]]:
    epochs = list(epochs) if isinstance(epochs, Iterable) else [epochs]
    for epoch in epochs:
        if not isinstance(epoch, Mapping):
            raise ValueError(
                f"an epoch is {epoch!r}: expected one dictionary per epoch, as in History.epochs."
            )
    return epochs


def _losses(ax: Any, epochs: Sequence[Mapping[str, Any]], title: str) -> None:
    train, val = _values(epochs, "train_loss"), _values(epochs, "val_loss")
    for points, style, colour, label in (
        (train, "o-", BLUE, "training"), (val, "s--", RED, "validation"),
    ):  # fmt: skip
        if points:
            x, y = zip(*points, strict=True)
            ax.plot(x, y, style, color=colour, label=label, markersize=3)
    if val and not _broken(epochs):  # the best epoch before an explosion is not a result
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
        ax.text(0.5, 0.5, "no epochs yet", transform=ax.transAxes, ha="center")


def _broken(epochs: Sequence[Mapping[str, Any]]) -> float | None:
    """The first epoch with a loss that is inf or nan; None if all are finite.

    A record's JSON cannot hold nan: it has None instead.
    """
    for count, epoch in enumerate(epochs, start=1):
        losses = [_number(epoch[name]) for name in ("train_loss", "val_loss") if name in epoch]
        if not all(map(math.isfinite, losses)):
            return float(epoch.get("epoch", count))
    return None


def _is_metric(name: str, epochs: Sequence[Mapping[str, Any]]) -> bool:
    return name.startswith("val_") and name not in APART and bool(_values(epochs, name))


def _values(epochs: Sequence[Mapping[str, Any]], name: str) -> list[tuple[float, float]]:
    """Pairs (epoch, value) for all finite values."""
    found = []
    for count, epoch in enumerate(epochs, start=1):
        if math.isfinite(value := _number(epoch.get(name))):
            found.append((float(epoch.get("epoch", count)), value))
    return found


def _number(value: Any) -> float:
    """A number from any library as a float; nan if it is none, or is missing in a record."""
    value = value.item() if hasattr(value, "item") else value
    return float(value) if isinstance(value, (int, float)) else math.nan
