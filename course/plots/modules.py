"""Figures for modules and losses: what a module reaches, a gate and its slope, targets, floors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from course.plots.style import BLUE, GREY, ORANGE, RED, axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = (BLUE, RED, ORANGE)
WAYS = ("trained", "moved", "saved")


def plot_reach(reached: Mapping[str, Any], texts: Mapping[str, str] | None = None) -> Figure:
    """One row per attribute of a module: a dot if it is trained, moved, saved; else a ring.

    Args:
        reached: The flags `trained`, `moved` and `saved`, by attribute.
        texts: Labels to use instead of the attributes' names.

    Source: Lecture 3, "nn.Module · the container"; ledger S11.
    """
    figure, ax = axes(6.4, 0.5 + 0.36 * len(reached))
    names = list(reached)
    for row, name in enumerate(names):
        for column, way in enumerate(WAYS):
            full = getattr(reached[name], way)
            face = BLUE if full else "none"
            ax.plot(column, row, "o", markersize=11, markeredgecolor=BLUE if full else GREY,
                    markerfacecolor=face)  # fmt: skip
    ax.set_yticks(range(len(names)), [(texts or {}).get(name, name) for name in names])
    ax.set_xticks(range(len(WAYS)), WAYS)
    ax.xaxis.tick_top()
    ax.set(xlim=(-0.5, len(WAYS) - 0.5), ylim=(len(names) - 0.5, -0.5))
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    return figure


def plot_first_weights(weights: Mapping[str, Sequence[float]], bounds: Sequence[float]) -> Figure:
    """The distribution of the initial weights of layers between their bounds, one panel each.

    Args:
        weights: The weights, by the name of the layer.
        bounds: The bound of each layer, drawn as lines at plus and minus.

    Source: Annotated-loop essay, "The model"; ledger X48.
    """
    figure, made = axes(3.2 * len(weights), 2.4, columns=len(weights))
    for ax, (name, values), bound in zip(made, weights.items(), bounds, strict=True):
        ax.hist(values, bins=40, color=BLUE, alpha=0.8)
        for edge in (-bound, bound):
            ax.axvline(edge, color=RED, linestyle="--", linewidth=1)
        ax.set(xlim=(-0.6, 0.6), yticks=[], xlabel="weight")
        ax.set_title(f"{name}: ±{bound:.3f}", fontsize=9)
    return figure


def plot_gate(
    x: Sequence[float], values: Sequence[float], arriving: Sequence[float], back: Sequence[float]
) -> Figure:
    """A function of one number, and next to it the gradients that arrive and that it passes back.

    Args:
        x: Inputs, in order.
        values: The function's values there.
        arriving: The gradients that arrive at its output.
        back: The gradients that it passes on to its input.

    Source: Annotated-loop essay, "The model"; ledger X47.
    """
    figure, (left, right) = axes(7.0, 2.6, columns=2)
    left.plot(x, values, color=BLUE)
    left.set(xlabel="x", title="forward")
    right.plot(x, arriving, color=GREY, linestyle=":", label="arrives")
    right.plot(x, back, color=RED, label="passed back")
    right.set(xlabel="x", title="backward")
    right.margins(y=0.35)
    right.legend(fontsize=8, frameon=False, loc="lower left", ncols=2)
    for ax in (left, right):
        ax.axvline(0, color=GREY, linewidth=0.6)
        ax.title.set_fontsize(10)
    return figure


def plot_overflow(shifts: Sequence[float], results: Mapping[str, Sequence[float]]) -> Figure:
    """A result that should grow with a shift of all logits; it is lost where its line ends.

    Args:
        shifts: The number added to every logit.
        results: The result for each shift, by name; inf and nan are not drawn.

    Source: Annotated-loop essay, "The loss"; ledger N36.
    """
    import numpy as np

    figure, ax = axes(5.6, 2.8)
    looks = ((BLUE, 1.5, 3), (ORANGE, 6.0, 2), (GREY, 9.0, 1))  # the first is drawn thin, on top
    for (name, values), (color, width, order) in zip(results.items(), looks, strict=False):
        shown = np.where(np.isfinite(values), values, np.nan)
        ax.plot(shifts, shown, color=color, linewidth=width, zorder=order, label=name)
    ax.set(xlabel="added to every logit", ylabel="log Σ exp")
    ax.legend(fontsize=8, frameon=False)
    return figure


def plot_targets(
    targets: Mapping[str, Sequence[float]], label: str = "target", right: int | None = None
) -> Figure:
    """Distributions over the classes as bars, one panel each, on the same scale.

    Args:
        targets: One number per class, by name.
        label: What the bars show.
        right: The class to mark as the right one.

    Source: Annotated-loop essay, "The loss"; ledger N37.
    """
    figure, made = axes(3.0 * len(targets), 2.4, columns=len(targets))
    panels = made if len(targets) > 1 else [made]
    low = min(0.0, *(min(values) for values in targets.values()))
    high = max(max(values) for values in targets.values())
    for ax, (name, values) in zip(panels, targets.items(), strict=True):
        ax.bar(range(len(values)), values, color=[RED if v < 0 else BLUE for v in values])
        names = [f"{c}\nright" if c == right else str(c) for c in range(len(values))]
        ax.set(xlabel="class", ylim=(1.1 * low, 1.1 * high))
        ax.set_xticks(range(len(values)), names)
        ax.set_title(name, fontsize=9)
    panels[0].set_ylabel(label)
    return figure


def plot_floors(losses: Mapping[str, Sequence[float]], floors: Mapping[str, float]) -> Figure:
    """Losses over the updates on a log axis, and the floors that they cannot fall below.

    Args:
        losses: One loss per update, by name.
        floors: The levels of dotted lines, by name.

    Source: Lecture 3, "Debug checklist · why won't loss go down? · part 1"; ledger N38.
    """
    figure, ax = axes(5.8, 3.0)
    for (name, values), color in zip(losses.items(), COLOURS, strict=False):
        ax.plot(range(1, len(values) + 1), values, color=color, label=name)
    for name, level in floors.items():
        ax.axhline(level, color=GREY, linestyle=":", linewidth=1.2)
        below = level == min(floors.values())
        where = {"xytext": (0, -10 if below else 3), "textcoords": "offset points", "ha": "right"}
        at = ("axes fraction", "data")
        ax.annotate(f"{name} {level:.3f}", (1, level), xycoords=at, fontsize=8, **where)
    ax.set(xlabel="update", ylabel="loss", yscale="log")
    ax.legend(fontsize=8, frameon=False, loc="lower left")
    return figure
