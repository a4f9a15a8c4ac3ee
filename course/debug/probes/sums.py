"""Probe on sums in 16 bits: a total that is kept in too few digits stands still as it grows.

A number in bfloat16 has 8 binary digits: to 256 nothing up to 1 can be added. What was added is
also added in double precision here, next to the author's own sum.
"""

from __future__ import annotations

from collections.abc import Iterator

from course.debug.probes.modes import evaluation_of
from course.debug.probes.report import Finding
from course.debug.probes.session import STEPS, NotChecked, Session
from course.debug.probes.tape import Tape
from course.debug.probes.totals import Total
from course.debug.probes.traces import make_steps

LEAST_ADDED = 8
"""Numbers in a sum from which it is a total of batches, and not a loss of a few terms."""
LOST = 0.02
"""Part of what was added that may be missing: a score that is off by less changes its third digit,
and rounding each number that is added in bfloat16 makes up to 0.004."""


def stands_still(session: Session) -> Iterator[Finding]:
    """What `evaluate()` adds up in 16 bits is the sum of what was added.

    Asked of the model as it is, and after some steps: hits that are few at first are more then.
    """
    worst = _worst(evaluation_of(session).tape)
    if worst is None:
        raise NotChecked("evaluate() adds up nothing in 16 bits")
    if not _is_lost(worst):
        worst = _worst(_later(session)) or worst
    if _is_lost(worst):
        kind = str(worst.tensor.dtype).removeprefix("torch.")
        yield Finding(
            "metric-wrong", "warning",
            f"{worst.added} numbers that evaluate() adds up in {kind} make {worst.held:.6g}, but "
            f"their sum is {worst.true:.6g}: {kind} has so few digits that small numbers no longer "
            "change a large total.",
            {"held": worst.held, "sum": worst.true, "added": worst.added},
            "total = torch.zeros((), dtype=torch.float64)  # or a Python number: total += x.item()",
        )  # fmt: skip


def _worst(tape: Tape) -> Total | None:
    """The sum that is furthest from what it should be, for its size."""
    sums = [s for s in tape.functions.totals.found.values() if s.added >= LEAST_ADDED]
    return max(sums, key=lambda s: abs(s.held - s.true) / (s.size or 1.0), default=None)


def _is_lost(total: Total) -> bool:
    return abs(total.held - total.true) > LOST * total.size


def _later(session: Session) -> Tape:
    """The same evaluation after the author's steps on the first batches."""
    with session.observe():
        session.model.train()
        tape = Tape(session.model, session.optimizers, session.setup.scheduler)
        try:
            make_steps(session, session.epoch.batches, 2 * STEPS)
            with tape.running():
                session.setup.evaluate()
        except Exception as error:
            raise NotChecked(f"after some steps {type(error).__name__} is raised") from error
    return tape
