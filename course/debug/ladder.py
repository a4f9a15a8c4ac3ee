"""The debug ladder: seven rungs from the data to the errors; mend the lowest that fails.

    report = climb(dict(model=model, loss_fn=criterion, optimizer=optimizer,
                        train_loader=train_loader, val_loader=val_loader))

    1 inspect the data      5 learning-rate finder
    2 dumb baseline         6 full run with regularisation
    3 overfit one batch     7 error analysis
    4 small subset

Climbing stops at the first rung that fails: what lies above would only show the same fault in a
more confusing way. The doctor (`course.debug.diagnose`) is then asked why. Everything handed in is
given back as it came; the trained copy of the model is in the report.

Source: Lecture 1, "The debug ladder"; ledger S16, T21, C25.
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from html import escape
from typing import Any

from torch import nn

from course.debug.diagnose import diagnose
from course.debug.probes.report import Report, plain, short
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.setup import as_setup
from course.debug.rungs import RUNGS, Fall, Outcome, Plan


@dataclass(frozen=True)
class Rung:
    """One rung as it was climbed, or not."""

    number: int
    title: str
    passed: bool | None
    """True, False, or None where the rung could not be tried."""
    message: str
    """What was seen, in a sentence."""
    evidence: dict[str, Any] = field(default_factory=dict)
    """The numbers behind it."""
    warnings: tuple[str, ...] = ()
    """What does not stop the climb and deserves a look."""
    fix: str = ""
    """What to try first, where the rung failed."""
    seconds: float = 0.0

    @property
    def mark(self) -> str:
        return {True: "passed", False: "FAILED", None: "not tried"}[self.passed]


@dataclass(frozen=True)
class LadderReport:
    """How far the climb went; prints, renders in a notebook, goes to JSON."""

    rungs: tuple[Rung, ...]
    """From the lowest up to the one at which the climb ended."""
    diagnosis: Report | None = None
    """The doctor's report where a rung failed."""
    model: nn.Module | None = None
    """A copy of the model as trained on rung 6, at its best epoch, in eval mode."""

    @property
    def passed(self) -> bool:
        """Nothing failed."""
        return all(rung.passed is not False for rung in self.rungs)

    @property
    def failed(self) -> Rung | None:
        """The rung at which the climb stopped."""
        return next((rung for rung in self.rungs if rung.passed is False), None)

    def __getitem__(self, number: int) -> Rung:
        """A rung by its number, 1 to 7."""
        for rung in self.rungs:
            if rung.number == number:
                return rung
        raise KeyError(f"rung {number} was not reached: the climb ended at {self.rungs[-1].number}")

    def to_json(self) -> dict[str, Any]:
        """The report as plain values that `json.dumps` takes."""
        return {
            "passed": self.passed,
            "rungs": [
                {
                    "number": rung.number,
                    "title": rung.title,
                    "passed": rung.passed,
                    "message": rung.message,
                    "evidence": plain(rung.evidence),
                    "warnings": list(rung.warnings),
                    "fix": rung.fix,
                    "seconds": round(rung.seconds, 3),
                }
                for rung in self.rungs
            ],
            "diagnosis": self.diagnosis.to_json() if self.diagnosis else None,
        }

    def __str__(self) -> str:
        lines: list[str] = []
        for rung in self.rungs:
            lines += _wrapped(f"{rung.number} {rung.title:<30} {rung.mark:<9} {rung.message}")
            lines += [row for text in rung.warnings for row in _wrapped(f"  look: {text}")]
            lines += [f"  try:  {row}" for row in rung.fix.splitlines()]
        if self.failed:
            above = list(RUNGS)[self.failed.number :]
            lines += _wrapped(f"Not climbed: {', '.join(above)}.") if above else []
        if self.diagnosis:
            lines += ["", "The doctor says:", *_told(self.diagnosis)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{rung.number}</td><td>{escape(rung.title)}</td>"
            f"<td>{'<b>FAILED</b>' if rung.passed is False else rung.mark}</td>"
            f"<td>{escape(rung.message)}{_items(rung.warnings)}"
            f"{f'<pre>{escape(rung.fix)}</pre>' if rung.fix else ''}</td>"
            f"<td>{_evidence(rung.evidence)}</td></tr>"
            for rung in self.rungs
        )
        table = (
            "<table><thead><tr><th>rung</th><th></th><th>result</th><th>what was seen</th>"
            f"<th>numbers</th></tr></thead><tbody>{rows}</tbody></table>"
        )
        if self.diagnosis is None:
            return table
        return f"{table}<p>The doctor says:</p>{self.diagnosis._repr_html_()}"


def climb(
    setup: Any,
    *,
    epochs: int = 10,
    subset: float = 0.05,
    top: int = 7,
    seed: int = 0,
    budget_s: float = 10.0,
) -> LadderReport:
    """Climb the seven rungs in order and stop at the first that fails, with the reason.

    Where the set-up has a `train_step(batch)`, rungs 3, 4 and 6 train with it; else with the
    course's engine, which then also takes `scheduler` and what `declared` says of accumulation,
    clipping and the scheduler's unit.

    Args:
        setup: What `diagnose` takes: a mapping, dataclass or object with `model`, `loss_fn`,
            `optimizer`, `train_loader`, `val_loader` and, as far as there are any, `train_step,
            scheduler, num_classes, task, groups, declared`.
        epochs: Passes over the data on rung 6.
        subset: Share of the training data on rung 4.
        top: Last rung to climb.
        seed: Draws the subset.
        budget_s: Seconds that overfitting one batch may take at most.

    Returns:
        The rungs climbed; where one failed, the doctor's diagnosis. The set-up, its random
        numbers included, is as before.

    Raises:
        ValueError: The set-up lacks a needed part, or an argument is out of range.

    Source: Lecture 1, "The debug ladder"; ledger T21.
    """
    _check_arguments(epochs, subset, top)
    session = Session(as_setup(setup), budget_s=60.0)
    plan = Plan(session, epochs=epochs, subset=subset, seed=seed, budget_s=budget_s)
    rungs: list[Rung] = []
    try:
        for number, title, rung in _numbered()[:top]:
            rungs.append(_climb_one(number, title, rung, plan))
            if rungs[-1].passed is False:
                break
    finally:
        session.keeper.restore()
    failed = rungs[-1].passed is False
    diagnosis = diagnose(session.setup) if failed else None
    return LadderReport(tuple(rungs), diagnosis, plan.trained)


def _numbered() -> list[tuple[int, str, Callable[[Plan], Outcome]]]:
    return [(i, title, rung) for i, (title, rung) in enumerate(RUNGS.items(), start=1)]


def _climb_one(number: int, title: str, rung: Callable[[Plan], Outcome], plan: Plan) -> Rung:
    started = time.perf_counter()
    passed: bool | None = True
    fix = ""
    try:
        outcome = rung(plan)
    except Fall as fall:
        passed, outcome, fix = False, fall.outcome, fall.fix
    except NotChecked as reason:
        passed, outcome = None, Outcome(str(reason))
    except Exception as error:
        passed = False
        outcome = Outcome(f"{type(error).__name__}: {str(error)[:300]}")
    spent = time.perf_counter() - started
    return Rung(
        number, title, passed, outcome.message, outcome.evidence, outcome.warnings, fix, spent
    )


def _check_arguments(epochs: int, subset: float, top: int) -> None:
    if epochs < 1:
        raise ValueError(f"epochs = {epochs}: rung 6 needs at least 1.")
    if not 0 < subset <= 1:
        raise ValueError(f"subset = {subset}: a share of the training data, as 0.05 for 5 %.")
    if not 1 <= top <= len(RUNGS):
        raise ValueError(f"top = {top}: the ladder has rungs 1 to {len(RUNGS)}.")


def _told(diagnosis: Report) -> list[str]:
    """The findings, and where the rest is."""
    seen = [finding for finding in diagnosis.findings if finding.is_alarm] or diagnosis.findings
    lines = [row for f in seen for row in _wrapped(f"{f.severity}  {f.id}: {f.message}")]
    lines += [f"  fix:  {row}" for f in seen[:1] for row in f.fix.splitlines()]
    if not lines:
        lines = _wrapped(
            f"Nothing wrong was seen in {len(diagnosis.checked)} checks; "
            f"{len(diagnosis.not_checked)} could not be made. Hand in train_step, evaluate and "
            "val_loader and more can; `report.diagnosis` says which."
        )
    return lines


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 100, subsequent_indent="      ")


def _items(texts: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f"<ul>{items}</ul>" if items else ""


def _evidence(evidence: dict[str, Any]) -> str:
    return "<br>".join(f"{escape(k)} = {escape(short(v))}" for k, v in evidence.items())
