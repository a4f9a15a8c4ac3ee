"""Relation on sampled codes: the noise and the loss use the same distribution."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.relations.program import program_of

NORMAL = {torch.randn, torch.randn_like, torch.normal, Tensor.normal_}
TIMES = {torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__}
PLUS = {
    torch.add, Tensor.add, Tensor.__add__, Tensor.__radd__,
    torch.sub, Tensor.sub, Tensor.__sub__, Tensor.__rsub__,
}  # fmt: skip
NEAR = 1e-4
"""Relative difference of two tensors that are the same numbers, computed in two ways."""
LEAST_SPREAD = 1e-3
"""Spread about 1 below which a standard deviation and its square cannot be told apart."""


def squared(session: Session) -> Iterator[Finding]:
    """The factor of the noise is a standard deviation: the rest of the loss uses its square."""
    program, mode = program_of(session), _Spreads()
    if not program.first().calls_any(NORMAL):
        raise NotChecked("a step draws no normal noise")
    program.step(program.batches[0], within=mode)
    if not mode.spreads:
        raise NotChecked("no noise is multiplied by outputs of the model")
    for spread in mode.spreads:
        if float((spread - 1).abs().mean()) < LEAST_SPREAD:
            continue
        terms = [t for t in mode.terms if t.shape == spread.shape]
        if any(_same(t, spread**2) for t in terms) or not any(_same(t, spread) for t in terms):
            continue
        yield Finding(
            "wrong-formula", "error",
            "The noise is multiplied by the same numbers that another term of the loss adds "
            "unchanged: exp(log_var) is a variance, and the noise must be multiplied by its square "
            "root.",
            {"shape": list(spread.shape), "mean": float(spread.mean())},
            "std = torch.exp(0.5 * log_var)\nz = mu + std * torch.randn_like(std)",
        )  # fmt: skip
        return


def _same(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=NEAR, atol=0.0)


class _Spreads(TorchFunctionMode):
    """What normal noise is multiplied by, and what comes out of exp or a square and is added."""

    def __init__(self) -> None:
        super().__init__()
        self.noise: list[Tensor] = []
        self.made: list[Tensor] = []
        self.spreads: list[Tensor] = []
        self.terms: list[Tensor] = []

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None):
        result = function(*args, **(kwargs or {}))
        if not isinstance(result, Tensor) or not result.is_floating_point():
            return result
        two = [a for a in args[:2] if isinstance(a, Tensor)]
        if function in NORMAL:
            self.noise.append(result)
        elif function in TIMES and len(two) == 2:
            drawn = [any(t is n for n in self.noise) for t in two]
            factor = two[drawn.index(False)] if sum(drawn) == 1 else None
            if factor is not None and factor.requires_grad and factor.shape == result.shape:
                self.spreads.append(factor.detach().clone())
        elif function in PLUS:
            self.terms += [t.detach().clone() for t in two if any(t is m for m in self.made)]
        name = getattr(function, "__name__", "")
        if name in ("exp", "pow", "square", "__pow__", "mul", "__mul__", "softplus"):
            self.made.append(result)
        return result
