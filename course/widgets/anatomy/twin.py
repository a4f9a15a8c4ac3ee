"""The step as a figure: the code with its current line, the tensors, the loss over updates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from course.plots.style import BLUE, GREY, RED, axes, whole_numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from course.widgets.anatomy.state import Settings

COLOURS = {"same": "black", "new": BLUE, "changed": RED, "none": GREY}


def draw(settings: Settings, frame: dict[str, Any]) -> Figure:
    """On the left the code and every tensor, on the right the loss after each update."""
    figure, (left, right) = axes(9.6, 4.6, columns=2)
    left.set_axis_off()
    for number, line in enumerate(frame["code"]):
        now = number == frame["line"]
        left.text(
            0, 1 - 0.065 * number, ("▸ " if now else "   ") + line, family="monospace",
            fontsize=9, weight="bold" if now else "normal", transform=left.transAxes,
        )  # fmt: skip
    for number, one in enumerate(frame["tensors"]):
        words = f"{one['name']:<12}{_numbers(one['values'])}"
        words += f"  ({one['state']})" if one["state"] in ("new", "changed") else ""
        left.text(
            0, 0.55 - 0.065 * number, words, family="monospace", fontsize=9,
            color=COLOURS[one["state"]], transform=left.transAxes,
        )  # fmt: skip
    right.plot(range(len(frame["losses"])), frame["losses"], "o-", color=BLUE)
    right.set(
        xlabel="update",
        ylabel="loss with the current weights",
        ylim=(0, 1.1 * max(frame["losses"])),
    )
    right.set_title(f"after {settings.done} operations: {frame['does']}", fontsize=9)
    whole_numbers(right)
    return figure


def _numbers(values: Any) -> str:
    if values is None:
        return "does not exist"
    if isinstance(values, list):
        return "[" + ", ".join(_numbers(value) for value in values) + "]"
    return f"{float(values):.4g}"
