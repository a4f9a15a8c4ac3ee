"""Relations on the model: what an output may and must not depend on.

Each is tried on the call that the author's step makes, but in eval mode if there is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import RandomSampler

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, pair
from course.debug.probes.thresholds import TINY, UNLABELLED
from course.debug.relations.program import changed, far, program_of
from course.debug.relations.steps import Call
from course.state.nested import tensors_in

VISIBLE = 1e-3
"""Change of an output, in its own standard deviations, that counts as a dependence: what a bug
makes is above 0.01 on all pairs of the tests, what rounding makes below 1e-5."""
MIXED = 0.05
"""The same of a table, where a number in which all pairs take part may be left in the rounding."""
EQUAL_SHARE = 0.95
"""Share of positions at which targets have to be the inputs moved by one (or not at all): the rest
are starts, ends and masks. Two of twelve tokens at random agree in 8 %."""
LEAST_TOKENS = 40
"""Targets below which their likeness to the inputs may be chance."""


def state(session: Session) -> Iterator[Finding]:
    """A batch's outputs do not depend on the batch before it."""
    program = program_of(session)
    call = program.call()
    others = [b for b in program.batches[1:4] if _shapes(b) == _shapes(program.batches[0])]
    if not others:
        raise NotChecked("fewer than two batches of one shape")
    before = program.replay(call)
    other = program.step(others[0]).calls
    if len(other) != 1:
        raise NotChecked("a step calls the model several times")
    with session.observe(), torch.no_grad():
        program.run(other[0])
        after = program.run(call)
    change = far(before, after)
    if change > VISIBLE:
        shuffled = isinstance(getattr(session.setup.train_loader, "sampler", None), RandomSampler)
        yield Finding(
            "state-carried", "error" if shuffled else "note",
            "The model's outputs for a batch depend on the batch before it: it keeps a state "
            "between calls, although their rows are unrelated." if shuffled else
            "The model keeps a state between batches, which is right only if each batch continues "
            "the one before it.",
            {"change_over_std": change},
            "state = None  # at the start of every batch; or declare allow=['state-carried']",
        )  # fmt: skip


def rows(session: Session) -> Iterator[Finding]:
    """An example's outputs do not depend on the other examples of its batch."""
    program = program_of(session)
    call = program.call()
    if len(call.tensors) == 1 and _is_pair(session):  # of two inputs a dictionary is none
        raise NotChecked("already checked for (inputs, targets)")
    size = _rows_of(call)
    before = program.replay(call)
    if any(t.dim() < 1 or len(t) != size for t in before):
        raise NotChecked("outputs do not have one row per example")
    if any(t.dim() > 1 and t.shape[1] == size for t in before):
        yield from _tables(session, call, before, size)
        return

    def others_moved(t: Tensor) -> Tensor:
        return torch.cat([t[:1], t[1:].roll(1, 0)])

    def reversed_rows(t: Tensor) -> Tensor:
        return t.flip(0)

    after = program.replay(Call(*changed((call.args, call.kwargs), others_moved)))
    turned = program.replay(Call(*changed((call.args, call.kwargs), reversed_rows)))
    change = max(far([t[:1] for t in before], [t[:1] for t in after]),
                 far(before, [t.flip(0) for t in turned]))  # fmt: skip
    how = "put in another order"
    if change <= VISIBLE and len(call.tensors) > 1:
        half = program.replay(Call(*changed((call.args, call.kwargs), lambda t: t[: size // 2])))
        change, how = far([t[: size // 2] for t in before], half), "left out"
    if change > VISIBLE:
        yield Finding(
            "rows-mixed", "warning",
            "In eval mode an example's outputs change when only the other examples of its batch "
            f"are {how}: rows are mixed, e.g. by a reshape or a wrong axis.",
            {"change_over_std": change, "rows": size},
            "x = x.transpose(0, 1)  # not x.reshape(...); batch_first=True",
        )  # fmt: skip


def _tables(session: Session, call: Call, before: list[Tensor], size: int) -> Iterator[Finding]:
    """An entry of a table [B, B] over pairs of rows depends on these two alone.

    What a softmax or another normalisation of rows and columns does to all of them is left out of
    the comparison, and a factor: such models compare the rows of a batch on purpose.
    """
    if getattr(session.setup.train_loader, "batch_size", None) != size:
        raise NotChecked("an output is a table over pairs of rows, which may be parts of one whole")
    half = size // 2
    after = program_of(session).replay(
        Call(*changed((call.args, call.kwargs), lambda t: t[:half]))
    )  # fmt: skip
    shapes = [t.shape for t in after]
    if shapes != [(half, half)] * len(before) or any(t.shape != (size, size) for t in before):
        raise NotChecked("an output is a table over pairs of rows, others are not")
    change = max(_unlike(t[:half, :half], part) for t, part in zip(before, after, strict=True))
    if change > MIXED:
        yield Finding(
            "rows-mixed", "warning",
            f"In eval mode the model gives a table {size} x {size} over pairs of rows, and the "
            f"entries of its first {half} rows and columns change, against each other, when the "
            "other examples of the batch are left out: rows are mixed, e.g. by a wrong axis.",
            {"change_over_std": change, "rows": size},
            "a = F.normalize(a, dim=1)  # each row by itself: dim=0 is over the batch",
        )  # fmt: skip


def _unlike(one: Tensor, other: Tensor) -> float:
    """How far two tables are apart in standard deviations, whatever is added to a row, a column or
    multiplied with all; of shares and other positive numbers also by their logarithms."""
    ways = [(one, other)]
    if bool((one > 0).all()) and bool((other > 0).all()):
        ways.append((one.log(), other.log()))
    return min(_apart(*way) for way in ways)


def _apart(one: Tensor, other: Tensor) -> float:
    a, b = (_centred(t.double()) for t in (one, other))
    if float(a.std()) < TINY or float(b.std()) < TINY:
        return 0.0
    return float((a / a.std() - b / b.std()).abs().max())


def _centred(table: Tensor) -> Tensor:
    return table - table.mean(0) - table.mean(1, keepdim=True) + table.mean()


def _is_pair(session: Session) -> bool:
    try:
        pair(session.epoch.batches[0])
    except NotChecked:
        return False
    return True


def _rows_of(call: Call) -> int:
    tensors = call.tensors
    if not tensors or any(not t.dim() for t in tensors):
        raise NotChecked("the model gets no tensors with rows")
    sizes = {len(t) for t in tensors}
    if len(sizes) != 1 or (size := sizes.pop()) < 4:
        raise NotChecked("the model's inputs do not have one row per example")
    if any(t.dim() > 1 and t.shape[1] == size for t in tensors):
        raise NotChecked("an input is a table over pairs of rows")
    return size


def future(session: Session) -> Iterator[Finding]:
    """If the target is the next input, an output does not depend on it."""
    program = program_of(session)
    call = program.call()
    inputs = [t for t in call.tensors if t.dim() >= 2 and t.shape[1] >= 4]
    losses, given = program.first().losses, program.first().tape.of("output")
    if not inputs or not losses:
        raise NotChecked("no sequences, or no torch loss in the step")
    moved = [(t, _likeness(t, event.targets)) for t in inputs for event in losses]
    ids, (same, shifted) = max(moved, key=lambda one: max(one[1]))
    if max(same, shifted) < EQUAL_SHARE:
        raise NotChecked("targets are not the inputs themselves, shifted or not")
    cut = [e for e in losses if e.targets.numel() < ids.numel()]
    outputs = by_position([e.output for e in given if e.output is not None], ids)
    if any(not any(_meets_all_but_the_last(e.inputs, o) for o in outputs) for e in cut):
        raise NotChecked("targets from the second on may be met at their own positions")
    half = ids.shape[1] // 2
    other = ids[:, half:] != ids[:, half:].roll(1, 0)
    differ = other.unsqueeze(-1).flatten(2).any(2).any(0).tolist()
    middle = half + (differ.index(True) if True in differ else 0)  # at a separator nothing changes
    before = by_position(program.replay(call), ids)
    if not before:
        raise NotChecked("outputs do not have one row per position")

    def later_moved(t: Tensor) -> Tensor:
        if t.shape != ids.shape or t.dtype != ids.dtype or not torch.equal(t, ids):
            return t
        return torch.cat([t[:, :middle], t[:, middle:].roll(1, 0)], dim=1)

    after = program.replay(Call(*changed((call.args, call.kwargs), later_moved)))
    after = by_position(after, ids)
    change = far([t[:, :middle] for t in before], [t[:, :middle] for t in after])
    if shifted >= EQUAL_SHARE and change > VISIBLE:
        yield Finding(
            "sees-the-future", "error",
            "The target at each position is the next input, but the outputs change when only later "
            "inputs do: the model sees the answer.",
            {"change_over_std": change, "targets_that_are_next_inputs": shifted},
            "mask = nn.Transformer.generate_square_subsequent_mask(length)\n"
            "out = self.encoder(x, mask=mask, is_causal=True)",
        )  # fmt: skip
    elif same >= EQUAL_SHARE and change <= VISIBLE and _reads_its_own(before, after, middle):
        yield Finding(
            "target-in-inputs", "error",
            "The target at each position is the input at that same position, and the model sees no "
            "later one: it learns to copy.",
            {"targets_that_are_inputs": same},
            "loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())",
        )  # fmt: skip


def _reads_its_own(before: list[Tensor], after: list[Tensor], place: int) -> bool:
    """Outputs at the first place that was changed differ: the model does not move its inputs on by
    one before it reads them, as a decoder does that is handed its own targets."""
    own = slice(place, place + 1)
    return far([t[:, own] for t in before], [t[:, own] for t in after]) > VISIBLE


def by_position(outputs: list[Tensor], ids: Tensor) -> list[Tensor]:
    """Outputs [B, T, ...]; of [B, C, T], as cross_entropy wants them, turned to that."""
    turned = [t.mT if t.dim() == 3 and t.shape[1] != ids.shape[1] else t for t in outputs]
    return [t for t in turned if t.shape[:2] == ids.shape[:2]]


def _meets_all_but_the_last(met: Tensor, output: Tensor) -> bool:
    """What a loss got is the outputs [B, T, ...] without those of the last position."""
    first = output[:, :-1].flatten()
    return any(torch.equal(first, t.flatten()) for t in turned_layouts(met))


def turned_layouts(met: Tensor) -> list[Tensor]:
    """What a loss of classes got, and the same with the classes last."""
    return [met, met.movedim(1, -1)] if met.dim() > 1 else [met]


def _likeness(inputs: Tensor, targets: Tensor) -> tuple[float, float]:
    """Share of targets that are the input at their position, and at the next. If each row has one
    target less than inputs, only the second is asked for."""
    if inputs[:, 1:].numel() == targets.numel():
        none = torch.full_like(inputs[:, :1], UNLABELLED)
        ahead = targets.reshape(inputs[:, 1:].shape).to(inputs)
        return 0.0, _likeness(inputs, torch.cat([ahead, none], 1))[1]
    if inputs.numel() != targets.numel() or inputs.is_floating_point() != (
        targets.is_floating_point()
    ):
        return 0.0, 0.0
    meant = targets.reshape(inputs.shape).to(inputs.device)
    counted = torch.ones_like(meant, dtype=torch.bool)
    if not meant.is_floating_point():
        counted = meant >= 0
    if int(counted.sum()) < LEAST_TOKENS or inputs.unique().numel() < 4:
        return 0.0, 0.0
    same = (meant == inputs)[counted].float().mean()
    ahead = counted[:, :-1]
    shifted = (meant[:, :-1] == inputs[:, 1:])[ahead].float().mean()
    return float(same), float(shifted)


def _shapes(batch: Any) -> list[tuple[int, ...]]:
    return [tuple(t.shape) for t in tensors_in(batch)]
