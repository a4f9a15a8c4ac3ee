"""Relation on two views of an example: one output for everything is not the best answer.

A loss that asks both outputs of a row to agree, compares no rows with each other and reads nothing
else is least where all outputs are the same. Nothing keeps a model from it but a stop-gradient.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.tape import patched
from course.debug.probes.thresholds import TINY
from course.debug.relations.branches import Branches
from course.debug.relations.program import Program, program_of
from course.debug.relations.steps import close
from course.state.nested import cloned, mapped, tensors_in

LEAST_ROWS = 4
"""Rows of a batch from which two of them stand for any."""
MOST_CALLS = 2
"""Calls of the model that give two outputs for each row."""
STEP = 0.02
"""By so much of their own size made-up outputs are moved either way: a slope over it is off by its
square, and rounding by 1 in 1000."""
SLOPE = 0.1
"""Part of the steepest slope by which any may differ from the gradient where nothing is cut off."""
DIRECTIONS = 3
"""Directions in which each output is moved: a gradient with a part cut off is within a tenth in all
six by no chance."""
LONG = 36
"""Steps after which the outputs are looked at again."""
NEARER = 0.8
"""Spread of the outputs then, as a part of what it was. A last layer that keeps them apart, e.g. a
batch norm without weights, keeps their spread."""


def to_a_point(session: Session) -> Iterator[Finding]:
    """Where two outputs of a row are asked to agree, something keeps those of other rows apart."""
    program, batch = program_of(session), program_of(session).batches[0]
    rows = len(next((t for t in tensors_in(batch) if t.dim()), torch.zeros(0)))
    if rows < LEAST_ROWS:
        raise NotChecked("a batch has no rows")
    alone = [e.output for e in program.first().tape.of("output")]
    if len(alone) > MOST_CALLS or (len(alone) == 1 and _is_one(alone[0], rows)):
        raise NotChecked("a step does not give two outputs for each row")
    joined = len(alone) == MOST_CALLS
    made = _Made(program, batch, rows, joined)
    one, two = made.drawn
    base = made.loss(one, two)
    if not math.isfinite(base) or not close(base, made.loss(two, one)):
        raise NotChecked("the two outputs of a row do not have one role")
    if not close(base, made.loss(one, two, made.other_rows)):
        raise NotChecked("the loss reads more than the outputs")
    ends = [made.loss(one[i].expand_as(one), two[i].expand_as(two)) for i in (0, 1)]
    mixed = torch.arange(rows) % 2
    half = float(mixed.double().mean())
    between = (1 - half) * ends[0] + half * ends[1]
    if close(*ends) or not close(made.loss(one[mixed], two[mixed]), between):
        raise NotChecked("the loss compares rows with each other")
    if not made.has_its_slope():
        raise NotChecked("a part of the loss has no gradient")
    before, after = _spreads(session, program, batch, joined)
    if not after < NEARER * before:
        raise NotChecked("the outputs stay apart")
    yield Finding(
        "loss-through-target", "warning",
        "The loss asks both outputs of an example to agree and nothing keeps those of different "
        f"examples apart: in {LONG} steps their spread falls from {before:.3g} to {after:.3g}. "
        "Each output is the target of the other and moves as such, so that one output for all is "
        "the least loss.",
        {"spread_before": before, "spread_after": after, "steps": LONG},
        "loss = -F.cosine_similarity(predict(z1), z2.detach(), dim=1).mean()  # or negatives",
    )  # fmt: skip


def _is_one(output: Tensor | None, rows: int) -> bool:
    return output is not None and output.dim() > 0 and len(output) == rows


class _Made:
    """The loss of one batch as a function of what stands in for the model's two outputs."""

    def __init__(self, program: Program, batch: Any, rows: int, joined: bool) -> None:
        self.program, self.batch, self.rows, self.joined = program, batch, rows, joined
        seen: list[Tensor] = []
        self._run(lambda side, output: (seen.append(output), output)[1])
        own = torch.Generator().manual_seed(0)
        size = max(float(t.pow(2).mean().sqrt()) for t in seen) + TINY
        self.drawn = [size * torch.randn(t.shape, generator=own) for t in seen]

    @property
    def other_rows(self) -> Any:
        """The batch with its rows in another order."""
        moved = {id(t): t.roll(1, 0) for t in tensors_in(self.batch) if t.dim()}
        return mapped(lambda t: moved.get(id(t), t), self.batch)

    def loss(self, one: Tensor, two: Tensor, batch: Any = None) -> float:
        return self._run(lambda side, _: two if side else one, batch)

    def has_its_slope(self) -> bool:
        """The gradient at either output is the slope of the loss there, in all directions."""
        gradients: dict[int, Tensor] = {}
        self._run(lambda side, _: self.drawn[side], gradients=gradients)
        own = torch.Generator().manual_seed(1)
        for side in (0, 1):
            slopes, off = [], []
            for _ in range(DIRECTIONS):
                way = torch.randn(self.drawn[side].shape, generator=own) * self.drawn[side].std()
                ends = []
                for sign in (STEP, -STEP):
                    moved = list(self.drawn)
                    moved[side] = moved[side] + sign * way
                    ends.append(self.loss(*moved))
                slopes.append(abs(ends[0] - ends[1]) / (2 * STEP))
                given = float((gradients[side] * way).sum()) if side in gradients else 0.0
                off.append(abs((ends[0] - ends[1]) / (2 * STEP) - given))
            if not max(off) <= SLOPE * max(slopes):
                return False
        return True

    def _run(self, make: Callable, batch: Any = None, gradients: dict | None = None) -> float:
        def stand_in(_: int, side: int, output: Tensor) -> Tensor:
            return make(side, output)

        hook = Branches([self.rows], stand_in, gradients, joined=self.joined)
        step = self.program.step(
            self.batch if batch is None else batch,
            prepare=lambda: self.program.model.register_forward_hook(hook),
            within=_rows_alone(self.program.model),
        )
        if not hook.is_done:
            raise NotChecked("a step does not give two outputs for each row")
        return step.loss


@contextlib.contextmanager
def _rows_alone(model: nn.Module) -> Iterator[None]:
    """Meanwhile batch norm that a linear layer follows, as in a predictor, treats each row by
    itself: it does not keep apart what that layer gives. One at the end would."""
    inner = {id(layer) for part in model.modules()
             if isinstance(part, nn.Sequential) and len(part) and type(part[-1]) is nn.Linear
             for layer in part[:-1] if isinstance(layer, _BatchNorm)}  # fmt: skip

    def forward(original: Callable, layer: nn.Module, x: Tensor) -> Tensor:
        if id(layer) not in inner or layer.running_mean is None:
            return original(layer, x)
        mean, variance = layer.running_mean, layer.running_var
        return F.batch_norm(x, mean, variance, layer.weight, layer.bias, False, 0.0, layer.eps)

    with patched(_BatchNorm, "forward", forward):
        yield


def _spreads(session: Session, program: Program, batch: Any, joined: bool) -> tuple[float, float]:
    """How far outputs of different rows are apart, at first and after steps: as they are, or over
    their size, whichever falls more."""
    found: list[list[Tensor]] = []

    def keep(_: int, side: int, output: Tensor) -> Tensor:
        found[-1].append(output)
        return output

    with session.observe():
        torch.manual_seed(0)
        try:
            for part in [batch, *islice(cycle(program.batches), LONG), batch]:
                found.append([])
                length = len(next(t for t in tensors_in(part) if t.dim()))
                hook = session.model.register_forward_hook(Branches([length], keep, joined=joined))
                program.make_step(cloned(part))
                hook.remove()
        except NotChecked:
            raise
        except Exception as error:
            raise NotChecked(f"the step raises {type(error).__name__}") from error
    first, last = (max(ends, key=_shape) for ends in (found[0], found[-1]))
    kinds = [(_shape(first), _shape(last)), (_width(first), _width(last))]
    return min(kinds, key=lambda two: two[1] / max(two[0], TINY))


def _width(outputs: Tensor) -> float:
    """How far outputs of different rows are apart."""
    return float(outputs.std(0).norm())


def _shape(outputs: Tensor) -> float:
    """The same over their size, where only directions count."""
    return _width(outputs) / max(float(outputs.pow(2).sum(1).mean().sqrt()), TINY)
