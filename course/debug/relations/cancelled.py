"""Relation on differences and ratios: what is compared in a step is not one thing with itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, clone
from course.debug.probes.thresholds import ROUNDED
from course.debug.relations.program import program_of

COMPARING = {"sub", "rsub", "div", "truediv", "true_divide"}
"""Differences and ratios, by their names without underscores."""
DISTANCES = {F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss}
STEPS = 3
"""Steps on different batches, with different weights, in which both are equal: never by chance."""
LEAST_NUMBERS = 8
"""Numbers that are equal; two single ones may be."""
NUDGE = 0.1
"""Added to a weight's own size, so that what starts at 0 is not equal for that."""


def cancelled(session: Session) -> Iterator[Finding]:
    """A difference or a ratio of two that both have a gradient is not 0 or 1 for all weights."""
    program, found = program_of(session), []
    if not any(map(_compares, program.first().tape.functions.called)):
        raise NotChecked("a step takes no differences, ratios or distances")
    for number, batch in enumerate(program.batches[:STEPS]):
        mode = _Equal([p for p in program.model.parameters() if p.requires_grad])
        with session.observe():  # dropout stays on: two passes may differ by it alone
            own = torch.Generator().manual_seed(number)
            with torch.no_grad():
                for p in program.model.parameters():
                    noise = torch.randn(p.shape, generator=own).to(p)
                    p.add_(noise * (NUDGE * p.abs().mean() + NUDGE))
            torch.manual_seed(number)
            try:
                with mode:
                    program.make_step(clone(batch))
            except Exception as error:
                raise NotChecked(f"the step raises {type(error).__name__} here") from error
        if mode.found is None:
            raise NotChecked("no two things that are compared are always equal")
        found.append(mode.found)
    name, shape = found[0]
    yield Finding(
        "loss-without-gradient", "warning",
        f"In {len(found)} of {len(found)} steps, each with other weights, {name} compares the same "
        f"{shape.numel()} numbers with themselves, both with a gradient: the result is constant, "
        "and what the loss makes of it trains nothing.",
        {"function": name, "shape": list(shape), "steps": len(found)},
        "ratio = (log_prob - old_log_prob).exp()  # the old one from before the update, detached",
    )  # fmt: skip


class _Equal(TorchFunctionMode):
    """Keeps the first comparison of two equal tensors through which no weight gets a gradient."""

    def __init__(self, parameters: list[Tensor]) -> None:
        super().__init__()
        self.parameters = parameters
        self.found: tuple[str, torch.Size] | None = None

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None):
        result = function(*args, **(kwargs or {}))
        if self.found is None and _compares(function):
            two = [a for a in args[:2] if isinstance(a, Tensor) and a.requires_grad]
            if len(two) == 2 and result.requires_grad and _are_equal(*two):
                size = self._gradient(two[0])
                if size > 0 and self._gradient(result) < ROUNDED * size:
                    self.found = function.__name__.strip("_"), two[0].shape
        return result

    def _gradient(self, tensor: Tensor) -> float:
        """The size of what comes back to the weights from random numbers at a tensor."""
        own = torch.Generator().manual_seed(0)
        back = torch.randn(tensor.shape, generator=own).to(tensor)
        given = torch.autograd.grad(
            tensor, self.parameters, back, retain_graph=True, allow_unused=True
        )
        return sum(float(g.double().norm()) for g in given if g is not None)


def _compares(function: Any) -> bool:
    name = getattr(function, "__name__", "").strip("_")
    return name in COMPARING or function in DISTANCES


def _are_equal(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and one.numel() >= LEAST_NUMBERS and torch.allclose(one, other)
