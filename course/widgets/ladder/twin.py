"""The climb as a figure: seven rungs with their verdicts, and both curves of one batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from course.plots.style import BLUE, GREEN, GREY, RED, axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from course.widgets.ladder.state import Settings

LOOKS = {"passed": (GREEN, "✓"), "failed": (RED, "×"), "not tried": (GREY, "–")}


def draw(settings: Settings, frame: dict[str, Any]) -> Figure:
    """The ladder from the bottom up on the left, the loss of one batch on the right."""
    figure, (left, right) = axes(10.0, 3.8, columns=2)
    for number, rung in enumerate(frame["rungs"], start=1):
        colour, sign = LOOKS.get(rung["state"], ("white", ""))
        left.barh(number, 1, height=0.72, color=colour, alpha=0.35, edgecolor=GREY)
        left.text(0.02, number, f"{number}  {rung['title']}", va="center", fontsize=9)
        left.text(0.98, number, f"{sign} {rung['state']}", va="center", ha="right", fontsize=9)
    left.set(xlim=(0, 1), ylim=(0.4, len(frame["rungs"]) + 0.6))
    left.set_axis_off()
    left.set_title(f"{frame['title']}{' (fixed)' if settings.fixed else ''}", fontsize=10)
    for name, style, colour in (("fixed", "-", BLUE), ("broken", "--", RED)):
        batch = frame["batches"][name]
        losses = [float(loss) for loss in batch["losses"]]
        right.plot(batch["steps"], losses, style, color=colour, label=f"{name}: {batch['shape']}")
    right.set(xlabel="step on the same batch", ylabel="loss of the batch")
    highest = [max(map(float, frame["batches"][name]["losses"])) for name in ("fixed", "broken")]
    right.set_ylim(0, 1.08 * min(max(highest), 3 * highest[0]))  # one that blows up leaves it
    right.legend(fontsize=8, frameon=False)
    return figure
