"""Relations on rows and positions: row order does not matter, and what is masked is not read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import RandomSampler

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, as_float, clone
from course.debug.relations.cut_short import only_behind, with_and_without
from course.debug.relations.padding import PADDING_SHOWS
from course.debug.relations.program import changed, far, program_of, without_dropout
from course.debug.relations.steps import SAME, Call, Step, close
from course.state.nested import tensors_in

LEAST_ROWS = 8
"""Rows from which the orders below differ from each other."""
MOST_CALLS = 4
"""Calls of the model in a step up to which a dozen steps are worth their time: two towers, or three
of a triplet."""
LEAST_SHOWN = 0.01
"""A loss is taken as at least so large: one that cancels to 0, such as of standardised advantages,
is nothing but rounding."""
ORDERS: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda rows: rows.unflatten(0, (-1, 2)).flip(1).flatten(),
    lambda rows: rows.roll(1),
    lambda rows: rows.roll(2),
    lambda rows: rows.roll(len(rows) // 2),
    lambda rows: rows.flip(0),
)
"""Neighbours exchanged, moved on in a circle, turned round. Each leaves some losses equal that pair
rows on purpose: halves, two views in a row, the next row as a negative, a batch mixed with itself
turned round. One that changes under all of them reads the order itself."""
READS_ON = (nn.modules.conv._ConvNd, nn.RNNBase)
"""Layers that read on beyond a row's end, which many accept."""


def order(session: Session) -> Iterator[Finding]:
    """The loss of a shuffled batch is the same in any order of its rows."""
    if not isinstance(getattr(session.setup.train_loader, "sampler", None), RandomSampler):
        raise NotChecked("the train_loader does not shuffle single rows")
    program = program_of(session)
    batch = program.batches[0]
    sizes = {len(t) if t.dim() else 0 for t in tensors_in(batch)}
    if len(sizes) != 1 or (size := sizes.pop()) < LEAST_ROWS:
        raise NotChecked("a batch does not have one row per example in every part")
    if any(t.dim() > 1 and t.shape[1] == size for t in tensors_in(batch)):
        raise NotChecked("a part of the batch is a table over pairs of rows")
    if len(program.first().calls) > MOST_CALLS or len(program.first().tape.of("step")) > 1:
        raise NotChecked("a batch is trained on in several steps or many calls")
    rows = torch.arange(size - size % 2)
    whole = changed(batch, lambda t: t[rows.to(t.device)]) if size % 2 else batch
    base = program.steady_loss(whole)
    costs, given = [], _given(program.step(whole))
    for move in ORDERS:
        moved = move(rows)
        step = program.step(changed(batch, lambda t, to=moved: t[to.to(t.device)]))
        if not _same_rows(given, _given(step), moved):
            raise NotChecked("what the model gets for a row depends on its position")
        costs.append(step.loss)
        if abs(base - costs[-1]) <= SAME * max(abs(base), LEAST_SHOWN):
            return
    if _draws(session, whole):
        raise NotChecked("the step draws at random for each row")
    yield Finding(
        "depends-on-order", "warning",
        "The loss of a shuffled batch changes when its rows, inputs and targets together, are "
        f"reordered, in each of {len(ORDERS)} ways: something is cumulated or compared along rows "
        "that have no meaningful order.",
        {"loss": base, "in_other_orders": costs},
        "order = time.argsort(descending=True)\nrisk, event = risk[order], event[order]",
    )  # fmt: skip


def _given(step: Step) -> list[Tensor]:
    return [t for call in step.calls for t in call.tensors]


def _same_rows(one: list[Tensor], other: list[Tensor], order: Tensor) -> bool:
    """The model got the same rows in the other order."""
    return len(one) == len(other) and all(
        a.shape == b.shape and a.dim() and len(a) == len(order)
        and torch.equal(a[order.to(a.device)], b)
        for a, b in zip(one, other, strict=True)
    )  # fmt: skip


def _draws(session: Session, batch: Any) -> bool:
    """Two steps that follow each other on one batch, at a rate of 0, cost differently: what is
    drawn with a generator of the author's is the same only from one snapshot."""
    step = session.setup.train_step or session.plain_step
    with session.observe(), without_dropout(session.model):
        for group in (g for o in session.optimizers for g in o.param_groups):
            group["lr"] = 0.0 * group["lr"]
        one, two = (as_float(step(clone(batch))) for _ in range(2))
    return not close(one, two)


def masked(session: Session) -> Iterator[Finding]:
    """Inputs at masked positions do not change the outputs at the others."""
    program = program_of(session)
    if any(isinstance(module, READS_ON) for module in program.model.modules()):
        raise NotChecked("convolutions and recurrent layers read on beyond a row's end")
    call = program.call()
    pads, values = _mask_and_values(call)
    long, short, cut = with_and_without(pads)
    real, given = ~long(pads), long(values)

    def other(t: Tensor) -> Tensor:
        t = long(t)
        if t.shape != given.shape or t.dtype != given.dtype or not torch.equal(t, given):
            return t
        return torch.where(real.reshape(*real.shape, *[1] * (t.dim() - 2)), t, t[:, :1])

    before = program.replay(_with(call, long))
    moved = _apart(before, program.replay(_with(call, other)), real)
    if moved <= PADDING_SHOWS:
        return
    try:
        less = program.replay(_with(call, short))
    except NotChecked:  # e.g. nothing is left that may be read
        less = []
    if not less or not _apart(before, less, real[:, :-cut]) <= PADDING_SHOWS:
        yield Finding(
            "padding-not-masked", "warning",
            "Outputs change when only the inputs at masked positions change, and when these are "
            "cut off: the mask is used the wrong way round, or not at all.",
            {"change_over_std": moved, "masked_positions": int((~real).sum())},
            "layer(h, src_key_padding_mask=mask == 0)  # True: attention must not look here",
        )  # fmt: skip


def _mask_and_values(call: Call) -> tuple[Tensor, Tensor]:
    """Where a mask that the model gets says that rows are padded [B, T], and the inputs there."""
    for mask in call.tensors:
        if mask.dim() != 2 or set(mask.unique().tolist()) != {0, 1}:
            continue
        pads = ~mask.bool() if mask[:, 0].all() else mask.bool()
        for values in call.tensors:
            if values is mask or values.shape[:2] != mask.shape or not only_behind(pads):
                continue
            if len(values[pads].unique(dim=0)) == 1 < len(values[~pads].unique(dim=0)):
                return pads, values
    raise NotChecked("the model gets no mask [B, T] next to padded inputs")


def _with(call: Call, change: Callable[[Tensor], Tensor]) -> Call:
    return Call(*changed((call.args, call.kwargs), change))


def _apart(one: list[Tensor], other: list[Tensor], real: Tensor) -> float:
    """The largest distance of outputs, of those with a row per position at the real ones only."""
    pairs = []
    for a, b in zip(one, other, strict=False):
        if a.shape[:2] == real.shape or b.shape[:2] == real.shape:
            pairs.append((a[:, : real.shape[1]][real], b[:, : real.shape[1]][real]))
        elif a.dim() and b.dim() and len(a) == len(b) == len(real):
            pairs.append((a, b))
    if any(not bool(torch.isfinite(t).all()) for pair in pairs for t in pair):
        return torch.inf
    return far([a for a, _ in pairs], [b for _, b in pairs])
