"""Relations on collating: what belongs together stays together when a batch is made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import default_collate

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, clone
from course.debug.relations.padding import PADDING_SHOWS
from course.debug.relations.program import Program, far, program_of
from course.debug.relations.steps import Call
from course.state.nested import tensors_in

ITEMS = 16
"""Examples that are collated alone and together."""
JOINED = 4
"""The same where each needs a step of its own."""


def together(session: Session) -> Iterator[Finding]:
    """Collating many examples joins each one's inputs with its own target."""
    collate, items = _own_collate(session, ITEMS)
    with session.observe():
        torch.manual_seed(0)
        alone = [_leaves(collate([clone(item)])) for item in items]
        joined = _leaves(collate(clone(items)))
    if any(len(one) != len(joined) for one in alone):
        raise NotChecked("a batch of one example has different parts from a batch of many")
    columns = [n for n, leaf in enumerate(joined)
               if leaf.dim() and len(leaf) == len(items)
               and all(one[n].dim() and len(one[n]) == 1 for one in alone)]  # fmt: skip
    columns = [n for n in columns if not _is_another(n, alone)]  # drawn from the batch's own rows
    found = {n: _matches(joined[n], [one[n][0] for one in alone]) for n in columns}
    found = {n: m for n, m in found.items() if bool(m.any(1).all())}  # else drawn at random
    read = read_by_the_model(session)
    inputs = [n for n in found if n in read]
    targets = [n for n in found if n not in read]
    for a in inputs:
        for b in targets:
            apart = int((~(found[a] & found[b]).any(1)).sum())
            if apart:
                yield Finding(
                    "labels-shuffled", "error",
                    f"{apart} of {len(items)} examples have a different target after collate_fn "
                    "has joined them than on their own: inputs and targets are put in different "
                    "orders.",
                    {"examples": len(items), "with_another_target": apart},
                    "inputs, targets = inputs[order], targets[order]  # one order for both",
                )  # fmt: skip
                return
    if not inputs or not targets:
        raise NotChecked("no inputs and targets with one row per example")


def alone(session: Session) -> Iterator[Finding]:
    """An example gives the same outputs alone and in a batch without one row per example.

    For example nodes and edges of graphs; if inputs have one row per example, `model.rows` checks
    it.
    """
    program = program_of(session)
    collate, items = _own_collate(session, JOINED)
    with session.observe():
        batches = [collate(clone(items)), *(collate([clone(item)]) for item in items)]
    calls = [_call(program, batch) for batch in batches]
    if all(t.dim() and len(t) == len(items) for t in calls[0].tensors):
        raise NotChecked("inputs have one row per example")
    before, *single = ([t for t in program.replay(call) if t.dim()] for call in calls)
    again = program.replay(calls[0], seed=1)
    if far(before, [t for t in again if t.dim()]) > 0:
        raise NotChecked("the model draws at random in eval mode")
    rows = [n for n, t in enumerate(before)
            if len(t) == len(items) and all(len(s[n]) == 1 for s in single)]  # fmt: skip
    if not rows:
        raise NotChecked("outputs do not have one row per example")
    change = far([before[n] for n in rows], [torch.cat([s[n] for s in single]) for n in rows])
    if change > PADDING_SHOWS:  # parts padded to the longest may move outputs a little
        yield Finding(
            "rows-mixed", "warning",
            "In eval mode, an example's outputs differ alone and in a batch: joining examples "
            "mixes them, e.g. because edge indices are not shifted by the number of nodes before "
            "them.",
            {"change_over_std": change, "examples": len(items)},
            "edges.append(pairs + start)\nstart += len(nodes)  # in collate_fn",
        )  # fmt: skip


def _own_collate(session: Session, number: int) -> tuple[Any, list[Any]]:
    """The author's collate_fn and the first examples."""
    loader = session.setup.train_loader
    data, collate = getattr(loader, "dataset", None), getattr(loader, "collate_fn", None)
    if collate is None or collate is default_collate:
        raise NotChecked("the author has no collate_fn")
    if not hasattr(data, "__getitem__") or not hasattr(data, "__len__") or len(data) < number:
        raise NotChecked("the loader has no data set that can be indexed")
    with session.observe():
        try:
            return collate, [data[i] for i in range(number)]
        except Exception as error:
            raise NotChecked(f"dataset[i] raises {type(error).__name__}") from error


def _leaves(batch: Any) -> list[Tensor]:
    return [t.detach().cpu() for t in tensors_in(batch)]


def _is_another(place: int, alone: list[list[Tensor]]) -> bool:
    """A part that of one example is the same as an earlier one, e.g. a negative of the batch."""
    return any(
        all(one[place].shape == one[n].shape and torch.equal(one[place], one[n]) for one in alone)
        for n in range(place)
    )


def _matches(joined: Tensor, single: list[Tensor]) -> Tensor:
    """Which row of a batch [N] may be which example [N]: equal but for padding behind it."""
    return torch.tensor([[_is_padded(row, one) for one in single] for row in joined])


def _is_padded(row: Tensor, one: Tensor) -> bool:
    if row.dim() != one.dim() or row.shape[1:] != one.shape[1:] or row.dtype != one.dtype:
        return False
    if not row.dim():
        return bool(row == one)
    rest = row[len(one) :]
    same = len(row) >= len(one) and torch.equal(row[: len(one)], one)
    return same and (not rest.numel() or bool((rest == rest.flatten()[0]).all()))


def read_by_the_model(session: Session) -> set[int]:
    """Which tensors of a batch, by position, the model gets in a step.

    Leaves out labels that it gets to compute its own loss.
    """
    program = program_of(session)
    step = program.first()
    got = [t for call in step.calls for t in call.tensors]
    met = [e.targets for e in step.losses]
    return {n for n, leaf in enumerate(tensors_in(program.batches[0]))
            if is_among(leaf, got) and not is_among(leaf, met)}  # fmt: skip


def is_among(leaf: Tensor, others: list[Tensor]) -> bool:
    return any(leaf.shape == t.shape and torch.equal(leaf.to(t.device, t.dtype), t) for t in others)


def _call(program: Program, batch: Any) -> Call:
    calls = program.step(batch).calls
    if len(calls) != 1:
        raise NotChecked(f"a step calls the model {len(calls)} times")
    return calls[0]
