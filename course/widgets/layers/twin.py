"""Two runs as a figure: their losses, and how many float32 numbers the losses are apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from course.plots.style import BLUE, GREY, ORANGE, RED, axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from course.widgets.layers.state import Settings

ZERO = 0.1
"""Where a distance of 0 is drawn on a logarithmic axis."""


def draw(settings: Settings, frame: dict[str, Any]) -> Figure:
    """Losses of both runs on the left, their distance in float32 numbers on the right."""
    figure, (left, right) = axes(10.0, 3.8, columns=2)
    first, second = frame["runs"]
    updates = range(1, len(frame["apart"]) + 1)
    left.plot(updates, first["losses"], color=BLUE, label=f"first run, {first['id']}")
    left.plot(updates, second["losses"], "--", color=RED, label=f"second run, {second['id']}")
    left.set(xlabel="update", ylabel="loss of the batch")
    same = [(x, y) for x, y in zip(updates, frame["apart"], strict=True) if y == 0]
    other = [(x, y) for x, y in zip(updates, frame["apart"], strict=True) if y > 0]
    if same:
        right.plot(*zip(*((x, ZERO) for x, _ in same), strict=True), "o", color=BLUE, markersize=4,
                   label="same bits")  # fmt: skip
    if other:
        right.plot(*zip(*other, strict=True), "s", color=RED, markersize=4, label="different bits")
    ticks = [ZERO, 1, 1e2, 1e4, 1e6, 1e8]
    right.set(xlabel="update", ylabel="float32 numbers apart", yscale="log", ylim=(0.03, 3e8))
    right.set_yticks(ticks, ["0", "1", "100", "10⁴", "10⁶", "10⁸"])
    right.minorticks_off()
    for ax in (left, right):
        ax.axvline(settings.at, color=GREY, linewidth=1, label=f"update {settings.at}")
    if frame["parts_at"]:
        right.axvline(frame["parts_at"], color=ORANGE, linestyle=":",
                      label=f"losses differ from update {frame['parts_at']}")  # fmt: skip
    lost = [one["name"] for one in frame["layers"] if not one["recorded"]]
    left.set_title(f"not recorded: {', '.join(lost) or 'nothing'}", fontsize=10)
    for ax in (left, right):
        ax.legend(fontsize=8, frameon=False)
    return figure
