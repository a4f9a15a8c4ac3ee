"""The arithmetic as a figure: the end of an epoch, and counts over the batch size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from course.plots.style import BLUE, GREEN, GREY, ORANGE, axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from course.widgets.arithmetic.state import Settings

COLOURS = {"adds": BLUE, "step": GREEN, "forgotten": GREY, "carried": ORANGE, "never used": GREY}


def draw(settings: Settings, frame: dict[str, Any]) -> Figure:
    """Micro-batches at the end of the first epoch; forward passes and updates by batch size."""
    figure, (left, right) = axes(9.6, 3.6, columns=2)
    figure.suptitle(
        f"N = {settings.num_examples:,}, B = {settings.batch_size}, E = {settings.epochs}, "
        f"K = {settings.accum_steps}: {frame['iterations']:,} forward passes, "
        f"{frame['updates']:,} updates (formula {frame['formula_updates']:,}, "
        f"printed loop {frame['loop_updates']:,})",
        fontsize=10,
    )
    named: set[str] = set()
    for one in frame["tail"]:
        label = None if one["fate"] in named else one["fate"]
        named.add(one["fate"])
        left.bar(one["index"], one["size"], color=COLOURS[one["fate"]], label=label)
        left.text(one["index"], one["size"], str(one["size"]), ha="center", va="bottom", fontsize=8)
    left.set(
        xlabel="micro-batch of the first epoch", ylabel="examples",
        xticks=[one["index"] for one in frame["tail"]],
        ylim=(0, settings.batch_size * 1.35),
    )  # fmt: skip
    left.tick_params(axis="x", labelsize=8)
    left.legend(fontsize=8, frameon=False, ncols=3, loc="upper center")
    sweep = frame["sweep"]
    right.plot(sweep["batch_size"], sweep["iterations"], "o-", color=BLUE, label="forward passes")
    right.plot(sweep["batch_size"], sweep["updates"], "s--", color=GREEN, label="updates")
    right.axvline(settings.batch_size, color=GREY, linestyle=":")
    right.set(xscale="log", yscale="log", xlabel="batch size B", ylabel="count in the whole run")
    right.set_xticks(sweep["batch_size"], [str(size) for size in sweep["batch_size"]])
    right.minorticks_off()
    right.legend(fontsize=8, frameon=False)
    return figure
