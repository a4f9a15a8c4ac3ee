"""Precision as a figure: the bits of the number in three formats, and their error by magnitude."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from course.plots.style import BLUE, GREEN, GREY, ORANGE, RED, axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from course.widgets.precision.state import Settings

FIELDS = (RED, ORANGE, BLUE)
LINES = {"FP32": (BLUE, "-"), "FP16": (RED, "--"), "BF16": (GREEN, ":")}


def draw(settings: Settings, frame: dict[str, Any]) -> Figure:
    """On the left the stored bits by field, on the right the worst relative error by magnitude."""
    figure, (left, right) = axes(11.0, 3.6, columns=2)
    for y, row in enumerate(frame["rows"]):
        place = 0
        for colour, width in zip(FIELDS, row["fields"], strict=True):
            for _ in range(width):
                on = row["bits"][place] == "1"
                left.barh(y, 0.9, left=place, height=0.5, color=colour, alpha=0.8 if on else 0.2)
                left.text(place + 0.45, y, row["bits"][place], ha="center", va="center", fontsize=7)
                place += 1
        said = f"{row['format']}: {float(row['stored']):.6g}  ({row['verdict']})"
        left.text(0, y - 0.38, said, fontsize=9, va="bottom")
    left.set(xlim=(-0.2, 32), ylim=(2.5, -0.8))
    left.set_axis_off()
    left.set_title(
        f"{settings.value:g} × {settings.scale:g}: sign, exponent, mantissa", fontsize=9, loc="left"
    )
    for name, (colour, dash) in LINES.items():
        right.plot(frame["curves"]["magnitude"], frame["curves"][name], dash, color=colour,
                   label=name)  # fmt: skip
    right.axvline(frame["exact"], color=GREY, linewidth=1, label="number × scale")
    right.set(xscale="log", yscale="log", xlabel="magnitude", ylabel="worst relative error")
    right.set(ylim=(1e-8, 3))
    right.legend(fontsize=8, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4)
    return figure
