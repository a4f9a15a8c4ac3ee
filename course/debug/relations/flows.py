"""Relation on flows: the likelihood adds the true log-determinant, with the right sign."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.thresholds import ROUNDED, TINY
from course.debug.relations.program import Program, program_of
from course.debug.relations.steps import Call
from course.state.nested import cloned, tensors_in

MOST_NUMBERS = 32
"""Numbers of a row up to which its determinant is computed."""
ROWS = 16
NUDGE = 0.3
"""Of a weight's own size: many flows start as the identity, whose logarithm is 0 with either sign.
"""
LEAST_SPREAD = 1e-2
"""Spread of the logarithms over the rows, from which two things that agree are one."""
OFF = 0.2
"""Share of the spread by which two logarithms differ that are not the same but for a constant."""
ALIKE = 10 * ROUNDED
"""Relative difference of two logarithms that rounding makes in float32."""


def log_det(session: Session) -> Iterator[Finding]:
    """A flow's loss falls as its log-determinant grows, and that log-determinant is the true one.

    A model that gives for each row as many numbers as it got, and one more, is a flow if that one
    is log|det dz/dx|, computed here from the derivatives, or its negative. The loss has to fall
    where it grows: with the wrong sign, shrinking all data to a point is rewarded without bound.
    """
    program = program_of(session)
    call = program.call()
    places = _flow_of(program, call)
    if any(g.get("maximize") for o in session.optimizers for g in o.param_groups):
        raise NotChecked("an optimizer makes the loss larger")
    given, true = _logarithms(program, call, places)
    if not float(true.std()) > LEAST_SPREAD:
        raise NotChecked("the determinant is the same for all rows")
    sign = next((s for s in (1, -1) if _alike(s * given, true)), 0)
    z, z_pull, pull = _pulls(program, places)
    if sign and bool((sign * pull > 0).all()):
        yield Finding(
            "loss-negated", "error",
            f"The model gives log|det dz/dx| of each row{' with a minus' if sign < 0 else ''} "
            f"(mean {float(given.mean()):.3g}), and the loss rises where the determinant grows, in "
            f"all of {len(pull)} rows: its sign is wrong. The likelihood of x is that of z times "
            "the determinant; as it is, shrinking all data to a point is rewarded without bound.",
            {"rows": len(pull), "mean_of_logarithms": float(true.mean()),
             "slope_of_loss": float((sign * pull).mean())},
            "loss = -(base.log_prob(z) + log_det).mean()",
        )  # fmt: skip
    off = float((given - true).std() / true.std())
    like = -float(pull.mean()) * z
    if not sign and off > OFF and _alike(pull, pull.mean()) and _alike(z_pull, like):
        yield Finding(
            "wrong-formula", "warning",
            "The loss is the negative log-likelihood of normal numbers z minus one number for each "
            "row, but that number is not log|det dz/dx|: the two differ by "
            f"{off:.0%} of the spread of the latter, which follows from the derivatives. What is "
            "maximised is no likelihood.",
            {"off_over_spread": off, "mean": float(given.mean()),
             "mean_of_logarithms": float(true.mean())},
            "log_det = log_det + s.sum(1)  # of every layer, over all its numbers, not the mean",
        )  # fmt: skip


def _flow_of(program: Program, call: Call) -> tuple[int, int]:
    """Where z and the one number for each row are among the outputs."""
    inputs = [t for t in call.tensors if t.is_floating_point() and t.dim() > 1]
    outputs = program.replay(call)
    if len(inputs) != 1 or inputs[0] is not call.tensors[0] or len(outputs) < 2:
        raise NotChecked("the model does not give two tensors for one of numbers")
    x = inputs[0]
    z = [n for n, t in enumerate(outputs) if t.numel() == x.numel() and len(t) == len(x)]
    s = [n for n, t in enumerate(outputs) if t.dim() and t.numel() == len(t) == len(x)]
    if len(z) != 1 or len(s) != 1 or z == s or not 1 < x[0].numel() <= MOST_NUMBERS:
        raise NotChecked("outputs are not as many numbers as went in and one for each row")
    return z[0], s[0]


def _logarithms(program: Program, call: Call, places: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """What the model gives for some rows, and what follows from the derivatives."""
    with program.session.observe():
        own = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for p in program.model.parameters():
                noise = torch.randn(p.shape, generator=own).to(p)
                p.add_(NUDGE * float(p.abs().mean() + 0.1) * noise)
        program.model.eval()
        rows = len(call.tensors[0])
        args, kwargs = cloned((call.args, call.kwargs))
        x = next(tensors_in([args, kwargs])).requires_grad_()
        outputs = [t for t in tensors_in(program.model(*args, **kwargs)) if t.is_floating_point()]
        z, s = (outputs[n] for n in places)
        slopes = [torch.autograd.grad(part.sum(), x, retain_graph=True, allow_unused=True)[0]
                  for part in z.reshape(rows, -1).unbind(1)]  # fmt: skip
    if any(slope is None for slope in slopes):
        raise NotChecked("some of the numbers that come out do not depend on those that go in")
    table = torch.stack([slope.reshape(rows, -1) for slope in slopes], 1).double()[:ROWS]
    found = torch.linalg.slogdet(table).logabsdet
    if not bool(torch.isfinite(found).all()):
        raise NotChecked("the model cannot be inverted")
    return s.detach().double().flatten()[:ROWS], found


def _alike(one: Tensor, other: Tensor) -> bool:
    return float((one - other).abs().max()) < ALIKE * (float(other.abs().max()) + TINY)


def _pulls(program: Program, places: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """The numbers z in a step, and the loss's slopes in them and in the one for each row."""
    found: dict[int, list[Tensor]] = {place: [] for place in places}
    values: list[Tensor] = []

    def listen(_: object, args: object, output: object) -> None:
        outputs = [t for t in tensors_in(output) if t.is_floating_point()]
        values.append(outputs[places[0]].detach().flatten())
        for place in places:
            if outputs[place].requires_grad:
                outputs[place].register_hook(partial(keep, place))

    def keep(place: int, slope: Tensor) -> None:
        found[place].append(slope.detach().flatten())

    program.step(program.batches[0], prepare=lambda: program.model.register_forward_hook(listen))
    slopes = [found[place] for place in places]
    if any(len(s) != 1 for s in slopes) or not bool(slopes[1][0].any()):
        raise NotChecked("the loss does not depend on the number for each row")
    return values[0], slopes[0][0], slopes[1][0]
