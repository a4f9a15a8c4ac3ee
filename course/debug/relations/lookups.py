"""Relations on indices into an embedding table: each row can be reached, from one column."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.thresholds import OFTEN
from course.debug.relations.program import program_of
from course.state.nested import tensors_in

BYTES = {torch.uint8: 255, torch.int8: 127}
"""The largest number of a type of one byte."""
LEAST_OTHERS = 16
"""Numbers of a batch that look up the same table, from which their share in a range is no chance.
"""
NEAR_THE_TOP = 0.97
"""Share of the largest number that is reached where numbers wrap around it; letters of a text as
bytes stay below, and what is added to them for marks makes the numbers looked up other ones."""


def reachable(session: Session) -> Iterator[Finding]:
    """Indices stored in a byte do not look up a table with more rows than a byte has values."""
    tables = {m: name for name, m in session.model.named_modules() if isinstance(m, nn.Embedding)}
    if not tables:
        raise NotChecked("the model looks up no table")
    columns = [c for t in tensors_in(session.epoch.batches[0]) if t.dtype in BYTES
               for c in _columns(t)] if session.epoch.batches else []  # fmt: skip
    if not columns:
        raise NotChecked("a batch has no numbers stored in a byte")
    seen: dict[nn.Embedding, list[Tensor]] = {table: [] for table in tables}

    def listen() -> None:  # the hooks are taken off where the step is put back
        for table in tables:
            table.register_forward_pre_hook(
                lambda module, args: seen[module].append(args[0].detach().cpu()))  # fmt: skip

    program_of(session).step(program_of(session).batches[0], prepare=listen)
    for table, name in tables.items():
        for column in columns:
            top = BYTES[column.dtype]
            met = any(column.shape == ids.shape and torch.equal(column.long(), ids.long())
                      for ids in seen[table])  # fmt: skip
            wraps = float(column.max()) >= NEAR_THE_TOP * top
            if met and wraps and table.num_embeddings > top + 1:
                yield Finding(
                    "uint8-arithmetic", "error",
                    f"{name} has {table.num_embeddings} rows but is looked up by numbers stored as "
                    f"{str(column.dtype).removeprefix('torch.')}: row {top + 1} and those after it "
                    "cannot be reached: their numbers have wrapped around to the first ones.",
                    {"rows": table.num_embeddings, "largest": int(column.max())},
                    "ids = np.asarray(ids, dtype=np.int64)  # as many values as there are rows",
                )  # fmt: skip
                return


def shared(session: Session) -> Iterator[Finding]:
    """Columns of indices that share one table look up separate rows.

    A table with as many rows as all columns have values together, of which only as many are looked
    up as the longest column has, was made for indices that are offset by the lengths of the columns
    before.
    """
    tables = {m: name for name, m in session.model.named_modules() if isinstance(m, nn.Embedding)}
    if not tables:
        raise NotChecked("the model looks up no table")
    program = program_of(session)
    named: dict[nn.Embedding, list[Tensor]] = {table: [] for table in tables}

    def listen() -> None:
        for table in tables:
            table.register_forward_pre_hook(
                lambda module, args: named[module].append(args[0].detach().cpu()))  # fmt: skip

    for batch in program.batches:
        program.step(batch, prepare=listen)
        if not any(_may_share(table, named[table]) for table in tables):
            return  # columns only get longer
    for table, name in tables.items():
        if not _may_share(table, named[table]):
            continue
        met = _by_columns(named[table])
        lengths = torch.cat(met).amax(0) + 1
        highest = int(lengths.max())
        if len(set(lengths.tolist())) > 1 and int(lengths.sum()) == table.num_embeddings:
            yield Finding(
                "rows-mixed", "warning",
                f"{name} has {table.num_embeddings} rows, as many as its {len(lengths)} columns of "
                f"numbers have values together, but only the first {highest} are looked up: the "
                "columns share rows, e.g. user 3 and item 3 use the same one.",
                {"rows": table.num_embeddings, "looked_up": highest, "values": lengths.tolist()},
                f"ids = ids + torch.tensor({[0, *lengths.cumsum(0).tolist()[:-1]]})",
            )  # fmt: skip
            return


def _by_columns(looked_up: list[Tensor]) -> list[Tensor]:
    """Indices in several columns [B, K]."""
    return [ids for ids in looked_up if ids.dim() == 2 and ids.shape[1] > 1 and len(ids)]


def _may_share(table: nn.Embedding, looked_up: list[Tensor]) -> bool:
    """It is looked up in as many columns each time, with no more values together than rows."""
    met = _by_columns(looked_up)
    if not met or len({ids.shape[1] for ids in met}) > 1:
        return False
    return int((torch.cat(met).amax(0) + 1).sum()) <= table.num_embeddings


def in_range(session: Session) -> Iterator[Finding]:
    """Rows of a table that a step draws at random come from all of that table, not from as many
    rows as another one has.

    Negatives drawn from the first rows alone, e.g. the most frequent words, are meant where the
    batch's own rows lie there too; and no other table has just as many rows.
    """
    tables = {m: name for name, m in session.model.named_modules() if isinstance(m, nn.Embedding)}
    if len({table.num_embeddings for table in tables}) < 2:
        raise NotChecked("the model does not look up tables of different lengths")
    program, mode = program_of(session), _Drawn()
    named: dict[nn.Embedding, list[Tensor]] = {table: [] for table in tables}

    def listen() -> None:
        for table in tables:
            table.register_forward_pre_hook(
                lambda module, args: named[module].append(args[0].detach().clone()))  # fmt: skip

    program.step(program.batches[0], prepare=listen, within=mode)
    for table, name in tables.items():
        drawn = [(ids, end) for ids in named[table] for known, end in mode.found
                 if torch.equal(ids, known.to(ids))]  # fmt: skip
        own = [ids.flatten() for ids in named[table] if all(ids is not d for d, _ in drawn)]
        if not drawn or not own or sum(map(len, own)) < LEAST_OTHERS:
            continue
        end = max(end for _, end in drawn)
        other = next((n for m, n in tables.items() if named[m] and m.num_embeddings == end), None)
        beyond = float((torch.cat(own) >= end).float().mean())
        if end < table.num_embeddings and other is not None and beyond > OFTEN:
            yield Finding(
                "few-examples-drawn", "error",
                f"A step draws rows of {name} from the first {end}, as many as {other} has, but "
                f"{name} has {table.num_embeddings}, and {beyond:.0%} of those that the batch "
                "itself looks up come later: they can never be drawn.",
                {"drawn_from": end, "rows": table.num_embeddings, "beyond": beyond},
                f"drawn = torch.randint({table.num_embeddings}, shape)  # rows of the same table",
            )  # fmt: skip
            return


class _Drawn(TorchFunctionMode):
    """Whole numbers that are drawn evenly, each with the end of its range."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[Tensor, int]] = []

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None):
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        if function in (torch.randint, torch.randint_like, Tensor.random_):
            bounds = [a for a in args if isinstance(a, int)]
            end = kwargs.get("high", bounds[-1] if bounds else None)
            if isinstance(end, int):
                self.found.append((result.detach().clone(), end))
        return result


def _columns(t: Tensor) -> list[Tensor]:
    t = t.detach().cpu()
    return [t, *(t.unbind(-1) if t.dim() > 1 else ())]
