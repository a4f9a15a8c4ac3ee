"""Relations on the noise a step draws for its batch: it is new each time, and the model sees it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from course.debug.probes.draws import DRAWS
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, clone
from course.debug.probes.thresholds import OFTEN, ROUNDED
from course.debug.relations.program import program_of
from course.state.nested import tensors_in

STEPS = 3
"""Steps in a row whose draws are compared: with a generator that goes on, two are never alike."""
COMPARED = {F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss, torch.sub, Tensor.sub,
            Tensor.__sub__, Tensor.__rsub__}  # fmt: skip
APART = 1e-3
"""Difference of two rows' shares of noise that rounding does not make."""
LEAST_TWINS = 4
"""Pairs of rows that are told the same number, from which their shares of noise can be compared."""
OF_ROWS = DRAWS - {torch.randperm}
"""Functions that draw numbers, and no order."""
LEAST_NUMBERS = 8
"""Numbers drawn below which two steps may draw the same by chance."""


def anew(session: Session) -> Iterator[Finding]:
    """Noise for the rows of a batch is drawn again in the next step."""
    if session.loop.unit != "step":
        raise NotChecked("needs train_step")
    program = program_of(session)
    batches = program.batches
    if session.loop.tape.functions.called.isdisjoint(OF_ROWS):  # which ran with dropout, too
        raise NotChecked("a step draws no random numbers for the rows of its batch")
    with session.observe():
        drawn = []
        for number in range(STEPS):
            batch = clone(batches[number % len(batches)])
            rows = {len(t) for t in tensors_in(batch) if t.dim()}
            with _Drawn(rows) as mode:
                program.make_step(batch)
            drawn.append(mode.values)
    first = drawn[0]
    if not first or any(len(other) != len(first) for other in drawn):
        raise NotChecked("a step draws no random numbers for the rows of its batch")
    fixed = [n for n, value in enumerate(first)
             if all(value.shape == other[n].shape and torch.equal(value, other[n])
                    for other in drawn[1:])]  # fmt: skip
    if len(fixed) == len(first):
        yield Finding(
            "same-draws", "warning",
            f"In {STEPS} steps in a row all random numbers for the rows of a batch ({len(fixed)} "
            f"draws, the first {list(first[0].shape)}) are the same: the generator is seeded again "
            "in every step.",
            {"draws": len(fixed), "steps": STEPS},
            "generator = torch.Generator().manual_seed(0)  # once, before the loop",
        )  # fmt: skip


def seen(session: Session) -> Iterator[Finding]:
    """If the outputs should predict the noise, that noise is in the model's inputs."""
    program = program_of(session)
    batch = program.batches[0]
    if not program.first().calls_any(OF_ROWS):
        raise NotChecked("outputs are not compared with what the step draws")
    rows = {len(t) for t in tensors_in(batch) if t.dim()}
    mode = _Drawn(rows)
    step = program.step(batch, within=mode)
    drawn = [n for n, value in enumerate(mode.values) if value.is_floating_point()
             and any(value.shape == t.shape and torch.equal(value, t) for t in mode.targets)
             ]  # fmt: skip
    if not drawn or not step.calls:
        raise NotChecked("outputs are not compared with what the step draws")
    given = [t for call in step.calls for t in call.tensors]
    for place in drawn:
        other = program.step(batch, within=_Drawn(rows, turned=place))
        now = [t for call in other.calls for t in call.tensors]
        if len(now) == len(given) and all(map(torch.equal, given, now)):
            yield Finding(
                "targets-unrelated", "error",
                "Outputs are compared with numbers that the step draws "
                f"({list(mode.values[place].shape)}), but the model's inputs do not change when "
                "those numbers do: what it should predict is not in its inputs.",
                {"shape": list(mode.values[place].shape), "draws": len(mode.values)},
                "noise = torch.randn_like(x)  # one draw, for inputs and loss\nloss = "
                "F.mse_loss(model(a * x + b * noise, t), noise)",
            )  # fmt: skip
            return


def level_told(session: Session) -> Iterator[Finding]:
    """A model that gets rows mixed with noise is told the right noise level of each row."""
    program = program_of(session)
    batch = program.batches[0]
    if not program.first().calls_any(OF_ROWS):
        raise NotChecked("no rows are mixed with noise")
    rows = {len(t) for t in tensors_in(batch) if t.dim()}
    mode = _Drawn(rows)
    step = program.step(batch, within=mode)
    if len(step.calls) != 1:
        raise NotChecked("a step does not call the model once")
    given = [t for t in step.calls[0].tensors if t.dim() and len(t) in rows]
    told = [t.flatten().double() for t in given if t.numel() == len(t)]
    levels = next((
        level for x in given for clean in tensors_in(batch) for drawn in mode.values
        if x.shape == clean.shape == drawn.shape and x.dim() > 1
        and (level := _levels(x, clean, drawn)) is not None
    ), None)  # fmt: skip
    if levels is None or len(told) != 1 or float(levels.std()) < APART:
        raise NotChecked("no rows are mixed with noise at several levels, with one number for each")
    same = (told[0][:, None] == told[0][None]).triu(1)
    others = ((levels[:, None] - levels[None]).abs() > APART)[same]
    if len(others) >= LEAST_TWINS and float(others.double().mean()) > OFTEN:
        yield Finding(
            "targets-unrelated", "error",
            f"Of {len(others)} pairs of rows for which the model is told the same number, "
            f"{int(others.sum())} hold different shares of noise: the step number that the model "
            "gets is not the one with which the rows were mixed.",
            {"pairs": len(others), "with_other_noise": int(others.sum()), "rows": len(levels)},
            "t = torch.randint(0, steps, (len(x),))  # one draw, for noise and model",
        )  # fmt: skip


def _levels(mixed: Tensor, clean: Tensor, drawn: Tensor) -> Tensor | None:
    """How much of the noise is in each row [B], where rows are sums of data and noise."""
    target = mixed.flatten(1).double()
    parts = torch.stack([clean.flatten(1).double(), drawn.flatten(1).double()], 2)
    if parts.shape[1] < 2:
        return None
    fit = torch.linalg.lstsq(parts, target[..., None]).solution
    rest = (parts @ fit)[..., 0] - target
    if parts.shape[1] == 2:  # two numbers fit always: the shares have to be those of a mixture
        exact = bool(((fit > -APART) & (fit < 1 + APART)).all())
    else:
        exact = float(rest.abs().max()) < ROUNDED * float(target.abs().max())
    return fit[:, 1, 0] if exact else None


def drawn_for_rows(batch: Any, turned: int | None = None) -> _Drawn:
    """Listens to what is drawn for the rows of a batch, and to what is compared."""
    return _Drawn({len(t) for t in tensors_in(batch) if t.dim()}, turned)


class _Drawn(TorchFunctionMode):
    """Random numbers with one row for each of a batch, in the order in which they are drawn, and
    the fixed numbers that others with a gradient are compared with. One draw may be turned over."""

    def __init__(self, rows: set[int], turned: int | None = None) -> None:
        super().__init__()
        self.rows, self.turned = rows, turned
        self.values: list[Tensor] = []
        self.targets: list[Tensor] = []

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None):
        result = function(*args, **(kwargs or {}))
        drawn = function in OF_ROWS and isinstance(result, Tensor)
        if drawn and result.dim() and len(result) in self.rows and result.numel() >= LEAST_NUMBERS:
            if self.turned == len(self.values):
                result = -result
            self.values.append(result.detach().clone())
        elif function in COMPARED:
            two = [a for a in args[:2] if isinstance(a, Tensor)]
            fixed = [a.detach() for a in two if not a.requires_grad]
            self.targets += fixed if len(two) == 2 and len(fixed) == 1 else []
        return result
