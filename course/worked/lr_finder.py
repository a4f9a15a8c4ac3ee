"""The learning rate: what the finder's table suggests, how far a sweep gets, and larger batches."""

import math
from collections.abc import Iterator

import torch

from course.worked.registry import worked
from course.worked.step import Step


@worked(
    "N21",
    title="Reading the plot of a learning-rate finder",
    perturb={"losses": (3.2, 1.9, 1.1, 0.9, 2.8)},
    reconstructed=(
        "The losses are printed; the row of learning rates is missing, and 1e-4 ... 1 is from an "
        "earlier public version of the slide. Any five decades would fit and would only shift the "
        "answer."
    ),
    figure="lr_finder",
)
def finder_table(
    rates: tuple[float, ...] = (1e-4, 1e-3, 1e-2, 1e-1, 1.0),
    losses: tuple[float, ...] = (3.2, 2.5, 1.1, 0.9, 2.8),
) -> Iterator[Step]:
    """Three rules for the same five points give three answers, so a grader must name its rule."""
    loss = torch.tensor(losses, dtype=torch.float64)
    lowest = rates[loss.argmin()]
    yield Step("smallest loss", loss.min(), 0.9, formula="min")
    yield Step("lr of the smallest loss", lowest, rebuilt=0.1)
    falls = loss[:-1] - loss[1:]
    steepest = int(falls.argmax())
    yield Step("largest drop", falls[steepest], formula="lossᵢ − lossᵢ₊₁")
    yield Step("it ends at the loss", loss[steepest + 1], 1.1, formula="after the steepest drop")
    yield Step("and at the lr", rates[steepest + 1])
    yield Step(
        "a tenth of the smallest loss's lr", lowest / 10, rebuilt=0.01, formula=f"{lowest:g} / 10"
    )
    decades = torch.tensor(rates, dtype=torch.float64).log10()
    (slope,) = torch.gradient(loss, spacing=(decades,))
    yield Step("lr of the most negative central slope", rates[slope.argmin()])
    yield Step("slopes per decade", slope, formula="(lossᵢ₊₁ − lossᵢ₋₁) / 2 decades")
    middle = math.sqrt(rates[steepest] * rates[steepest + 1])
    yield Step("middle of the steepest interval", middle, formula="√(lrᵢ · lrᵢ₊₁)")


@worked(
    "N22",
    title="How far 100 steps of ×1.05 go",
    tells="decades covered by 100 factors",
    perturb={"factor": 1.1},
    reconstructed=(
        "“About 1.05” and “about 100 steps” are printed. The start is missing, and 1e-7 is from an "
        "earlier public version; the end is the last rate of N21, itself rebuilt. So the number of "
        "steps needed is our own result; F30 tests the claim."
    ),
    figure="finder_reach",
)
def finder_reach(
    start: float = 1e-7, factor: float = 1.05, steps: int = 100, end: float = 1.0
) -> Iterator[Step]:
    """The largest learning rate tried, the steps needed, and the factor that would fit."""
    rates = [start]
    while len(rates) < steps:
        rates.append(rates[-1] * factor)
    last = f"{start:g} · {factor:g}^{steps - 1}"
    yield Step(f"lr of step {steps}", rates[-1], formula=last)
    decades = f"{steps} · log₁₀ {factor:g}"
    yield Step(f"decades covered by {steps} factors", steps * math.log10(factor), formula=decades)
    yield Step(
        "steps to reach the last lr of the rebuilt plot",
        _steps_to(start, factor, end),
        formula=f"⌈ln({end:g} / {start:g}) / ln {factor:g}⌉",
    )
    ends = (1e-2, 1e-1, 1.0, 10.0)
    needed = [_steps_to(start, factor, end) for end in ends]
    yield Step(
        "steps to pass 1e-2, 1e-1, 1, 10", needed, formula=f"⌈ln(end / {start:g}) / ln {factor:g}⌉"
    )
    for end_ in (end, 10 * end):
        fitting = (end_ / start) ** (1 / (steps - 1))
        yield Step(
            f"factor for {steps} points to {end_:g}",
            fitting,
            formula=f"(end / start)^(1/{steps - 1})",
        )


def _steps_to(start: float, factor: float, end: float) -> int:
    """Multiplications until `end` is passed."""
    return math.ceil(math.log(end / start) / math.log(factor))


@worked(
    "N50",
    title="From batch 32 to 256: two scaling rules",
    perturb={"larger": 128},
)
def scaling_rules(batch_size: int = 32, larger: int = 256) -> Iterator[Step]:
    """The factor by which each rule raises the learning rate."""
    yield Step("linear rule", larger / batch_size, formula=f"{larger} / {batch_size}")
    yield Step("root rule", math.sqrt(larger / batch_size), formula=f"√({larger} / {batch_size})")
