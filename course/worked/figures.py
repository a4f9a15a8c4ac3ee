"""The lecture's figures, drawn from the same computations as the steps next to them.

Each function takes its example's inputs and returns a matplotlib Figure; matplotlib is imported
when the first one is drawn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from course.plots.style import BLUE, GREEN, GREY, ORANGE, RED, axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def sampled_classes(
    class_sizes: tuple[int, int], batch_size: int, epochs: int, seed: int
) -> Figure:
    """Minority examples in the weighted sampler's batches, and examples that were never drawn."""
    from course.worked.sampling import simulate

    touched, counts = simulate(class_sizes, batch_size, epochs, seed)
    figure, (left, right) = axes(8.0, 3.2, columns=2)
    bins = [edge - 0.5 for edge in range(batch_size + 2)]
    left.hist(counts.tolist(), bins=bins, color=BLUE)
    plain = batch_size * class_sizes[1] / sum(class_sizes)
    left.axvline(plain, color=RED, linestyle="--", label=f"unweighted: {plain:g}")
    left.set(xlabel=f"minority examples in a batch of {batch_size}", ylabel="batches")
    left.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1), fontsize="small")
    drawn = touched.mean(dim=0).tolist()
    labels = [
        f"{name} ({size})" for name, size in zip(("majority", "minority"), class_sizes, strict=True)
    ]
    right.bar(labels, class_sizes, color=GREY, alpha=0.3, label="never drawn in an epoch")
    right.bar(labels, drawn, color=BLUE, label="drawn at least once")
    right.set(ylabel="examples")
    right.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1), fontsize="small")
    return figure


def tape(x: float, w: float, b: float) -> Figure:
    """The graph of (w·x + b)², values in blue, gradients in orange."""
    from course.worked.autograd import tape as compute

    value = {step.what: step.computed for step in compute(x, w, b).steps}
    figure, ax = axes(8.0, 3.2)
    ax.set_axis_off()
    ax.set(xlim=(-0.6, 6.6), ylim=(-0.55, 2.6))
    nodes = {
        "w": (0, 2, w, value["dL/dw"]),
        "x": (0, 1, x, value["dL/dx"]),
        "b": (2, 0, b, value["dL/db"]),
        "z = w·x": (2, 1.5, value["z"], value["dL/dz"]),
        "h = z + b": (4, 1.0, value["h"], value["dL/dh"]),
        "L = h²": (6, 1.0, value["L"], 1.0),
    }
    arrows = [("w", "z = w·x"), ("x", "z = w·x"), ("z = w·x", "h = z + b"), ("b", "h = z + b")]
    for start, end in [*arrows, ("h = z + b", "L = h²")]:
        ax.annotate(
            "",
            xy=nodes[end][:2],
            xytext=nodes[start][:2],
            arrowprops={"arrowstyle": "->", "color": GREY, "shrinkA": 34, "shrinkB": 34},
        )
    box = {"boxstyle": "round,pad=0.35", "facecolor": "white", "edgecolor": BLUE}
    for name, (across, up, number, grad) in nodes.items():
        ax.text(across, up, f"{name}\n{number:g}", ha="center", va="center", color=BLUE, bbox=box)
        text = f"dL/d{name[0]} = {grad:g}"
        ax.text(across, up - 0.48, text, ha="center", va="center", color=RED)
    return figure


def lr_finder(rates: tuple[float, ...], losses: tuple[float, ...]) -> Figure:
    """Loss over learning rate; the rate of the smallest loss and a tenth of it are marked."""
    figure, ax = axes()
    ax.semilogx(rates, losses, "o-", color=BLUE)
    lowest = rates[losses.index(min(losses))]
    ax.axvline(lowest, color=GREY, linestyle=":", label=f"smallest loss: {lowest:g}")
    ax.axvline(lowest / 10, color=GREEN, linestyle="--", label=f"a tenth of it: {lowest / 10:g}")
    ax.set(xlabel="learning rate", ylabel="loss", ylim=(0, None))
    ax.legend(frameon=False)
    return figure


def finder_reach(start: float, factor: float, steps: int, end: float) -> Figure:
    """Learning rate by step, for the lecture's factor and for one that reaches the end."""
    figure, ax = axes()
    fitting = (end / start) ** (1 / (steps - 1))
    for ratio, color in ((factor, RED), (fitting, GREEN)):
        rates = [start * ratio**step for step in range(steps)]
        ax.semilogy(range(1, steps + 1), rates, color=color)
        ax.annotate(
            f"×{ratio:.4g}", (steps, rates[-1]), xytext=(5, 0), textcoords="offset points",
            va="center", color=color, annotation_clip=False,
        )  # fmt: skip
    ax.set(xlabel="step", ylabel="learning rate")
    return figure


def error_buckets(buckets: tuple[tuple[str, int], ...], accuracy: float) -> Figure:
    """One square per mistake, then the buckets by size, with the points that each could gain."""
    from course.worked.error_analysis import ceiling_gains

    colors = [BLUE, ORANGE, GREEN, RED, GREY]
    figure, (left, right) = axes(8.4, 3.4, columns=2)
    left.set_axis_off()
    left.set_aspect("equal")
    squares = [index for index, (_, count) in enumerate(buckets) for _ in range(count)]
    for place, bucket in enumerate(squares):
        row, column = divmod(place, 10)
        color = colors[bucket % len(colors)]
        left.scatter(column, -row, marker="s", s=110, color=color, linewidths=0)
    names = [name for name, _ in buckets]
    bars = right.barh(names, [count for _, count in buckets], color=colors[: len(buckets)])
    gains = [f"{gain:.2f} points" for gain in ceiling_gains(buckets, accuracy)]
    right.bar_label(bars, labels=gains, padding=4)
    right.invert_yaxis()
    right.margins(x=0.3)
    right.set(xlabel="mistakes")
    return figure


def ceiling(stages: tuple[tuple[str, float], ...], baseline: float, all_true: float) -> Figure:
    """Accuracy with each stage replaced by the ground truth, above the baseline."""
    figure, ax = axes()
    rows = [*stages, ("all stages", all_true)]
    names = [name for name, _ in rows]
    gains = [accuracy - baseline for _, accuracy in rows]
    bars = ax.barh(names, gains, left=baseline, color=[BLUE] * len(stages) + [GREY])
    ax.bar_label(bars, labels=[f"+{gain:g}" for gain in gains], padding=4)
    ax.axvline(baseline, color=RED, linestyle="--", label=f"baseline {baseline:g} %")
    ax.invert_yaxis()
    span = all_true - baseline
    ax.set(xlim=(baseline - 0.05 * span, all_true + 0.1 * span))
    ax.set(xlabel="accuracy with this stage perfect, %")
    ax.legend(frameon=False, loc="center right")
    return figure


def _learning_rate(ax: Axes, rates: list[float], color: str, label: str) -> None:
    ax.plot(range(len(rates)), rates, color=color, label=label)
    ax.set(ylabel="learning rate", ylim=(0, None))


def cosine(
    lr: float, t_max: int, eta_min: float, at: tuple[int, ...], past: tuple[int, ...]
) -> Figure:
    """The learning rate up to T_max and beyond."""
    from course.worked.schedules import cosine_rates

    rates = cosine_rates(lr, t_max, eta_min, max(past))
    figure, ax = axes()
    _learning_rate(ax, rates[: t_max + 1], BLUE, "up to T_max")
    ax.plot(range(t_max, len(rates)), rates[t_max:], "--", color=RED, label="past T_max")
    ax.plot(at, [rates[t] for t in at], "o", color=BLUE)
    ax.set(xlabel="epoch")
    ax.legend(frameon=False, loc="upper center")
    return figure


def cosine_per_batch(lr: float, t_max: int, num_batches: int, epochs: int) -> Figure:
    """The same scheduler called per epoch and per batch, over the first epochs."""
    from course.worked.schedules import cosine_rates

    shown = min(epochs, 20)
    figure, ax = axes()
    wrong = cosine_rates(lr, t_max, 0.0, shown * num_batches)
    right = cosine_rates(lr, t_max, 0.0, shown)
    calls = [call / num_batches for call in range(len(wrong))]
    ax.plot(calls, wrong, color=RED, label="step() after every batch")
    ax.plot(range(shown + 1), right, color=BLUE, label="step() after every epoch")
    ax.set(xlabel="epoch", ylabel="learning rate", ylim=(0, 1.25 * lr))
    if shown < epochs:
        ax.set_xlabel(f"epoch (the first {shown} of {epochs})")
    ax.legend(frameon=False, loc="upper right", ncols=2)
    return figure


def warmup(warmup: int, total: int, at: tuple[int, ...]) -> Figure:
    """The learning-rate factor over the run."""
    from course.worked.schedules import warmup_factor

    factor = warmup_factor(warmup, total)
    figure, ax = axes()
    steps = sorted({*range(0, total + 1, max(1, total // 500)), *range(warmup + 1)})
    ax.plot(steps, [factor(step) for step in steps], color=BLUE)
    ax.axvspan(0, warmup, color=ORANGE, alpha=0.3, label=f"warmup: {warmup} of {total} steps")
    ax.plot(at, [factor(step) for step in at], "o", color=BLUE)
    ax.set(xlabel="update", ylabel="learning-rate factor")
    ax.legend(frameon=False)
    return figure


def formats(formats: tuple[str, ...], **_inputs: float) -> Figure:
    """Bit fields, and the range of magnitudes that each format covers."""
    import math

    import torch

    from course.worked.precision import FORMATS, bit_fields

    figure, (left, right) = axes(8.8, 2.8, columns=2)
    names = ("sign", "exponent", "mantissa")
    for row, name in enumerate(formats):
        begin = 0
        for field, width, color in zip(names, bit_fields(name), (GREY, ORANGE, BLUE), strict=True):
            left.barh(row, width, left=begin, color=color, edgecolor="white",
                      label=field if row == 0 else None)  # fmt: skip
            left.text(begin + width / 2, row, str(width), ha="center", va="center", color="white")
            begin += width
        info = torch.finfo(getattr(torch, FORMATS[name]))
        low, high = math.log10(info.smallest_normal), math.log10(info.max)
        subnormal = math.log10(info.smallest_normal * info.eps)
        right.barh(row, high - low, left=low, color=BLUE, label="normal" if row == 0 else None)
        right.barh(row, low - subnormal, left=subnormal, color=BLUE, alpha=0.35,
                   label="subnormal" if row == 0 else None)  # fmt: skip
    for ax in (left, right):
        ax.set_yticks(range(len(formats)), formats)
        ax.invert_yaxis()
    left.set(xlabel="bits")
    right.set(xlabel="log₁₀ of the magnitude")
    left.legend(frameon=False, loc="lower right", fontsize="small")
    right.legend(frameon=False, loc="center right", fontsize="small")
    return figure
