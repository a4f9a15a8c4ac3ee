"""Relation on rows of a batch: each that the loss counts reaches some weight."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.thresholds import OFTEN, ZERO
from course.debug.relations.program import program_of
from course.state.nested import tensors_in

LEAST_ROWS = 3
"""Rows of a batch with one and the same output, and with different targets, by no chance."""
DRAWS = 3
"""Draws of the weights in each of which the same rows are untaught: a dead unit is dead in one."""


def by_padding(session: Session) -> Iterator[Finding]:
    """A row that looks up the padding of a table, alone, still gets an output that weights move.

    Padding stands behind the rows of a sequence. Where a table is asked for one number of each row,
    and that is the one whose vector is always 0, all such rows get the same output, which no weight
    can change, though the loss counts them. Where other weights do change it, the number may stand
    for none of all items, and that is only noted.
    """
    tables = {m: name for name, m in session.model.named_modules()
              if isinstance(m, nn.Embedding) and m.padding_idx is not None}  # fmt: skip
    if not tables:
        raise NotChecked("no table has a row for padding")
    program = program_of(session)
    asked: dict[nn.Embedding, list[Tensor]] = {table: [] for table in tables}

    def listen() -> None:  # the hooks are taken off where the step is put back
        for table in tables:
            table.register_forward_pre_hook(
                lambda module, args: asked[module].append(args[0].detach().cpu()))  # fmt: skip

    given: list[Tensor] = []

    def keep(_: nn.Module, args: tuple, output: Any) -> None:
        found = [t for t in tensors_in(output) if t.grad_fn is not None]
        for t in found:
            t.retain_grad()
        given.extend(found)

    def prepare() -> None:
        listen()
        program.model.register_forward_hook(keep)

    step, unsure = program.step(program.batches[0], prepare=prepare), None
    for table, name in tables.items():
        for ids in asked[table]:
            rows = ids == table.padding_idx if ids.dim() == 1 else None
            if rows is None or not LEAST_ROWS <= int(rows.sum()) < OFTEN * len(rows):
                continue
            if len(step.calls) != 1 or not _are_counted(given, rows):
                continue
            if all(_untaught(session, step.calls[0], rows, draw) for draw in range(DRAWS)):
                yield Finding(
                    "frozen-params", "warning",
                    f"{name} has padding_idx={table.padding_idx}, and {int(rows.sum())} of "
                    f"{len(rows)} rows look up that number alone, with nothing to be padded: its "
                    "vector stays 0, and these rows get one and the same output, which no weight "
                    "can change. Whatever has this number is never learned.",
                    {"table": name, "padding_idx": table.padding_idx, "rows": int(rows.sum())},
                    "nn.Embedding(num_items, dim)  # without padding_idx; or ids + 1, 0 for none",
                )  # fmt: skip
                return
            unsure = unsure or (table, name, rows)
    if unsure:
        table, name, rows = unsure
        yield Finding(
            "frozen-params", "note",
            f"{name} has padding_idx={table.padding_idx}, and {int(rows.sum())} of {len(rows)} "
            "rows look up that number alone: its vector has no gradient and stays as it is. That "
            "is right where the number stands for none, and wrong where it is one like the others, "
            "e.g. the first of all items: that one is never learned.",
            {"table": name, "padding_idx": table.padding_idx, "rows": int(rows.sum())},
            "nn.Embedding(num_items, dim)  # without padding_idx; or ids + 1, 0 for none",
        )  # fmt: skip


def _are_counted(given: list[Tensor], rows: Tensor) -> bool:
    """The loss has a slope in the outputs of these rows."""
    slopes = given[0].grad if len(given) == 1 else None
    return slopes is not None and len(slopes) == len(rows) and bool(slopes.cpu()[rows].any())


def _untaught(session: Session, call: Any, rows: Tensor, draw: int) -> bool:
    """With other weights, too, outputs of these rows are equal and have no slope in any weight, and
    those of the others are neither."""
    with session.observe():
        own = torch.Generator().manual_seed(draw)
        weights = [p for p in session.model.parameters() if p.requires_grad]
        with torch.no_grad():
            for p in weights:
                p.mul_(torch.randn(p.shape, generator=own).to(p))  # what is 0 stays 0
        session.model.eval()
        with torch.enable_grad():
            outputs = [t for t in tensors_in(session.model(*call.args, **call.kwargs))]
            if len(outputs) != 1 or len(outputs[0]) != len(rows) or outputs[0].grad_fn is None:
                return False
            out = outputs[0].flatten(1) if outputs[0].dim() > 1 else outputs[0][:, None]
            mine, others = out[rows.to(out.device)], out[~rows.to(out.device)]
            slopes = [_steepest(part.sum(), weights) for part in (mine, others)]
    return bool((mine == mine[0]).all()) and slopes[0] < ZERO < slopes[1]


def _steepest(number: Tensor, weights: list[Tensor]) -> float:
    found = torch.autograd.grad(number, weights, allow_unused=True, retain_graph=True)
    return max((float(g.abs().max()) for g in found if g is not None), default=0.0)
