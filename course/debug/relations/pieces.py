"""Relation on a score over pieces: each is weighted by its length."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader

from course.debug.probes.modes import close, evaluation_of
from course.debug.probes.randomness import Drawn
from course.debug.probes.report import SPENT, Finding
from course.debug.probes.session import NotChecked, Session, as_metrics, clone
from course.debug.probes.tape import Tape, patched
from course.debug.relations.plateau import LOWER
from course.debug.relations.program import program_of

MOST_PIECES = 64
"""Pieces up to which each is scored alone."""
LEAST_PIECES = 3
"""Pieces below which all but the last are one; and steps of training that are looked at."""
UNLIKE = 1.5
"""Ratio of the longest piece to the shortest from which they are of unlike length."""
ROUNDED = 1e-5
"""Relative difference of two means of the same numbers."""
OFF = 0.05
"""Relative difference from the mean over all positions that is worth a word."""


def weighed(session: Session) -> Iterator[Finding]:
    """A mean error over pieces of different lengths weights each by its number of positions.

    If training pieces also differ in length, each may be intended to count as one.
    """
    seen = evaluation_of(session)
    names = [n for n in seen.first if any(w in n.lower() for w in (*LOWER, "acc"))
             and "train" not in n.lower()]  # fmt: skip
    sizes = _positions(seen.tape)
    if not names or not LEAST_PIECES <= len(sizes) <= MOST_PIECES:
        raise NotChecked("no mean of a few pieces in evaluate()")
    if max(sizes) < UNLIKE * min(sizes):
        raise NotChecked("the pieces that are scored are of one length")
    if not _cut_at_the_end(sizes) and not _one_length(session):
        raise NotChecked("training pieces differ in length, too")
    if session.forwards + len(sizes) > session.budget:
        raise NotChecked(SPENT)
    alone = _scored_alone(session, len(sizes))
    for name in names:
        value, parts = seen.first[name], [a.get(name, math.nan) for a in alone]
        mean = sum(parts) / len(parts)
        weighed = sum(p * n for p, n in zip(parts, sizes, strict=True)) / sum(sizes)
        if close(value, mean, ROUNDED) and not close(value, weighed, OFF):
            if _draws(session):
                raise NotChecked("evaluate() draws numbers, so a piece alone gets others")
            yield Finding(
                "metric-batch-mean", "warning",
                f"{name} = {value:.4g} is the plain mean of {len(sizes)} pieces of {min(sizes)} to "
                f"{max(sizes)} numbers; over all numbers it is {weighed:.4g}: short pieces count "
                "as much as long ones.",
                {name: value, "of_all_numbers": weighed, "pieces": len(sizes),
                 "shortest": min(sizes), "longest": max(sizes)},
                "total += error.item() * targets.numel()\ncount += targets.numel()",
            )  # fmt: skip
            return


def _draws(session: Session) -> bool:
    """Whether evaluate() draws anything at random, be it by a seed of its own."""
    with session.observe(), Drawn() as mode:
        session.setup.evaluate()
    return bool(mode.shapes)


def _positions(tape: Tape) -> list[int]:
    """Numbers that the model gives in each forward of the first evaluation."""
    outputs = [e.output for e in tape.of("output") if e.call == 0]
    if any(o is None for o in outputs):
        raise NotChecked("the model gives no tensor")
    return [o.numel() for o in outputs]


def _cut_at_the_end(sizes: list[int]) -> bool:
    """All pieces but the last are of one length, as where a whole was cut."""
    return len(set(sizes[:-1])) == 1 and sizes[-1] < sizes[0]


def _one_length(session: Session) -> bool:
    """The model gives as many numbers for each of the first batches of training, the last of an
    epoch apart."""
    batches = program_of(session).batches
    steps = [program_of(session).step(batch) for batch in batches[: -1 or None][:LEAST_PIECES]]
    sizes = {tuple(e.output.numel() for e in s.tape.of("output") if e.output is not None)
             for s in steps}  # fmt: skip
    return len(sizes) == 1 and len(steps) > 1


def _scored_alone(session: Session, number: int) -> list[dict[str, float]]:
    """What evaluate() says where the val_loader holds one batch alone, for each of them.

    Raises:
        NotChecked: It is no DataLoader or list, or evaluate() raises or does not read each batch.
    """
    loader, found = session.setup.val_loader, []
    if not isinstance(loader, (DataLoader, list)):
        raise NotChecked("the val_loader is neither a DataLoader nor a list")
    batches = session.val_epoch.batches
    if len(batches) != number or not session.val_epoch.whole:
        raise NotChecked("evaluate() does not call the model once for each batch of the val_loader")
    for batch in batches:
        with session.observe(), _holding(loader, clone(batch)):
            try:
                found.append(as_metrics(session.setup.evaluate()))
            except Exception as error:
                raise NotChecked(f"evaluate() raises {type(error).__name__} then") from error
    return found


@contextlib.contextmanager
def _holding(loader: Any, batch: Any) -> Iterator[None]:
    """Meanwhile a loader holds one batch."""
    if isinstance(loader, list):
        kept = list(loader)
        loader[:] = [batch]
        try:
            yield
        finally:
            loader[:] = kept
        return

    def first(original: Any, one: Any) -> Any:
        return iter([batch]) if one is loader else original(one)

    def length(original: Any, one: Any) -> int:
        return 1 if one is loader else original(one)

    with patched(DataLoader, "__iter__", first), patched(DataLoader, "__len__", length):
        yield
