"""Relation on a price for a code: what the code can save is worth more than it costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.thresholds import TINY
from course.debug.relations.program import Program, program_of
from course.state.nested import mapped, tensors_in

SMALL, LARGE = 0.5, 1.0
"""Means and log-variances of a code at which its price is read off."""
OFF = 1e-3
"""Relative distance from the divergence's formula that rounding makes."""
EDGE = 1e-4
"""Distance of probabilities from 0 and 1 where they are turned into logits."""
RARE = 2.0
"""By so much more may the first nat save of a cross-entropy: its curve is steeper at the mean of
what is rarely 1 than on the way to it."""
WORTHLESS = 0.8
"""Of one nat: a code that saves less in its first nat, along the widest direction of the data, is
given up. Data in a few clusters keeps a margin to that: of 4 it costs 1.39 nats, and 1.2 are
saved at most."""


def of_a_code(session: Session) -> Iterator[Finding]:
    """A perfect reconstruction saves more than the divergence of the code that it needs.

    Source: Lucas et al. 2019, "Don't blame the ELBO!": a linear decoder gives a direction up where
    its variance is below that of the noise, which is what the weight of the error says.
    """
    program = program_of(session)
    step = program.first()
    given = [e for e in step.tape.of("output") if e.output is not None and e.graph]
    if len(step.calls) != 1 or len(given) != 1:
        raise NotChecked("a step does not call the model once")
    inputs = [t for t in step.calls[0].tensors if t.is_floating_point() and t.dim() > 1]
    if len(inputs) != 1:
        raise NotChecked("the model does not get one batch of numbers")
    x = inputs[0]
    found = step.outputs
    code = [n for n, t in enumerate(found) if t.dim() == 2 and len(t) == len(x)]
    whole = [n for n, t in enumerate(found) if t.numel() == x.numel() and len(t) == len(x)]
    code = [n for n in code if n not in whole]
    if len(whole) != 1 or len(code) < 2:
        raise NotChecked("the model does not give a reconstruction, means and log-variances")
    (place,) = whole

    def cost(rebuilt: Tensor, values: dict[int, float]) -> float:
        return _cost(program, {place: rebuilt.reshape(found[place].shape), **{
            n: _in_one(found[n], values.get(n, 0.0)) for n in code}})  # fmt: skip

    logits = any(e.name == "bce_with_logits" for e in step.losses)

    def turned(rebuilt: Tensor) -> Tensor:
        return rebuilt.logit(EDGE) if logits else rebuilt

    average = x.mean(0, keepdim=True).expand_as(x)
    mean = turned(average)
    none = cost(mean, {})
    mu = next((n for n in code if _is_squared(none, *(
        cost(mean, {n: v}) for v in (SMALL, LARGE)))), None)  # fmt: skip
    if mu is None or not any(
        _is_divergence(none, cost(mean, {mu: LARGE}), *(cost(mean, {n: v}) for v in (SMALL, LARGE)))
        for n in code if n != mu
    ):  # fmt: skip
        raise NotChecked("the price of the code is no divergence from a normal one")
    nat = 2 * (cost(mean, {mu: LARGE}) - none)
    saved = none - cost(turned(x), {})
    half = none - cost(turned((x + average) / 2), {})
    if not saved > 0:
        raise NotChecked("a perfect reconstruction does not cost less than the mean")
    squared = abs(half - saved * 3 / 4) < OFF * saved
    flat = (x - average).flatten(1).double()
    widest = float(torch.linalg.matrix_norm(flat, 2)) ** 2 / max(float(flat.pow(2).sum()), TINY)
    first = 2 * saved * widest / nat * (1 if squared else RARE)
    if first < WORTHLESS:
        yield Finding(
            "wrong-formula", "warning",
            f"Perfect reconstruction lowers the loss by {saved:.3g} in all, and a code costs "
            f"{nat:.3g} for each nat, of which the first saves only {first * nat:.3g}: the "
            "divergence outweighs the error, and the code will carry nothing. One may be a sum "
            "over an example's numbers, the other a mean.",
            {"saved_by_all": saved, "price_of_a_nat": nat, "saved_by_the_first": first * nat},
            "error = F.mse_loss(rebuilt, x, reduction=\"sum\") / len(x)  # like the divergence\n"
            "loss = error + divergence.sum(1).mean()",
        )  # fmt: skip


def _in_one(like: Tensor, value: float) -> Tensor:
    """Zeros, and a value in the first column."""
    made = torch.zeros_like(like)
    made[:, 0] = value
    return made


def _is_squared(none: float, small: float, large: float) -> bool:
    """Twice the number costs four times as much."""
    rise = large - none
    return rise > 0 and abs((small - none) * (LARGE / SMALL) ** 2 - rise) < OFF * rise


def _is_divergence(none: float, of_mean: float, small: float, large: float) -> bool:
    """A log-variance v costs (exp(v) - 1 - v) where a mean of 1 costs 1."""
    unit = of_mean - none
    return all(
        abs(told - none - unit * (torch.tensor(v).exp().item() - 1 - v)) < OFF * unit
        for told, v in ((small, SMALL), (large, LARGE))
    )


def _cost(program: Program, new: dict[int, Tensor]) -> float:
    """The loss of the first batch where some of the model's outputs are others."""

    def instead(_: nn.Module, args: tuple, output: Any) -> Any:
        places = {id(t): n for n, t in enumerate(tensors_in(output))}
        return mapped(
            lambda t: t - t.detach() + new[places[id(t)]].to(t)
            if isinstance(t, Tensor) and places.get(id(t)) in new else t, output)  # fmt: skip

    def prepare() -> None:
        program.model.register_forward_hook(instead)

    return program.step(program.batches[0], prepare=prepare).loss
