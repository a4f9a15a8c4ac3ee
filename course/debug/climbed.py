"""What a climb returns: the rung that failed, with its fix, and the rungs below it folded away.

Only one fault is shown at a time. What lies above the failing rung would show the same fault in a
more confusing way, and a second fault on the same rung is easier to read once the first is fixed.

Source: Lecture 1, "The debug ladder"; ledger S16, T21.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from html import escape
from typing import Any

from torch import nn

from course.debug.probes.report import Finding, Report, short
from course.report import json_ready
from course.tables import listing


@dataclass(frozen=True)
class Rung:
    """One rung, climbed or not."""

    number: int
    title: str
    passed: bool | None
    """True, False, or None if the rung could not be tried."""
    message: str
    """What was seen, in a sentence."""
    evidence: dict[str, Any] = field(default_factory=dict)
    """The numbers behind it."""
    warnings: tuple[str, ...] = ()
    """Things that do not stop the climb but deserve a look."""
    fix: str = ""
    """What to try first if the rung failed."""
    cause: str = ""
    """The class of the fault if the rung itself identified it, e.g. `double-softmax`; empty if only
    the doctor can say."""
    picture: Callable[[], Any] | None = field(default=None, repr=False, compare=False)
    """Draws what was seen; None if there is nothing to draw."""
    seconds: float = 0.0

    @property
    def mark(self) -> str:
        return {True: "passed", False: "FAILED", None: "not tried"}[self.passed]

    def plot(self) -> Any:
        """Draw a figure of what the rung saw.

        Raises:
            LookupError: A rung without a picture.
        """
        if self.picture is None:
            raise LookupError(
                f"rung {self.number}, {self.title}, has no picture: read its message and evidence."
            )
        return self.picture()

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "number": self.number,
            "title": self.title,
            "passed": self.passed,
            "message": self.message,
            "evidence": json_ready(self.evidence),
            "warnings": list(self.warnings),
            "fix": self.fix,
            "cause": self.cause,
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True)
class LadderReport:
    """How far the climb got; prints, renders in a notebook, converts to JSON."""

    rungs: tuple[Rung, ...]
    """From the lowest up to the one at which the climb ended."""
    titles: tuple[str, ...] = ()
    """Of all rungs that were asked for."""
    diagnosis: Report | None = None
    """The doctor's whole report if a rung failed: every fault that it sees."""
    model: nn.Module | None = None
    """A copy of the model as trained on rung 6, at its best epoch, in eval mode."""

    @property
    def passed(self) -> bool:
        """True if no rung failed."""
        return all(rung.passed is not False for rung in self.rungs)

    @property
    def failed(self) -> Rung | None:
        """The rung at which the climb stopped."""
        return next((rung for rung in self.rungs if rung.passed is False), None)

    @property
    def cause(self) -> str:
        """The class of the one fault that is shown; empty if nothing failed or no fault was named.

        What the rung measured itself comes first, then the likeliest finding of the doctor.
        """
        if self.failed is None:
            return ""
        return self.failed.cause or (self.named.id if self.named else "")

    @property
    def named(self) -> Finding | None:
        """The doctor's likeliest explanation if a rung failed and cannot itself say why."""
        if self.failed is None or self.failed.cause or self.diagnosis is None:
            return None
        return next(iter(self.diagnosis.alarms), None)

    def __getitem__(self, number: int) -> Rung:
        """The rung with this number, 1 to 7."""
        for rung in self.rungs:
            if rung.number == number:
                return rung
        raise KeyError(f"rung {number} was not reached: the climb ended at {self.rungs[-1].number}")

    def to_json(self) -> dict[str, Any]:
        """The report as plain values that `json.dumps` takes."""
        return {
            "passed": self.passed,
            "cause": self.cause,
            "rungs": [rung.to_json() for rung in self.rungs],
            "diagnosis": self.diagnosis.to_json() if self.diagnosis else None,
        }

    # As text

    def __str__(self) -> str:
        if self.failed is None:
            return "\n".join(row for rung in self.rungs for row in _as_text(rung))
        lines = _as_text(self.failed)
        for said in _doctor_says(self):
            lines += _wrapped(said)
        lines += [f"  fix:  {row}" for row in self.fix.splitlines()]
        below = [f"{rung.number} {rung.title} ({rung.mark})" for rung in self.rungs[:-1]]
        lines += _wrapped(f"Below: {', '.join(below)}.") if below else []
        lines += _wrapped(f"Not climbed: {', '.join(self.above)}.") if self.above else []
        return "\n".join(lines)

    @property
    def fix(self) -> str:
        """The code to try first: the doctor's fix if it explains the failure, else the rung's."""
        if self.failed is None:
            return ""
        return (self.named.fix if self.named else "") or self.failed.fix

    @property
    def above(self) -> list[str]:
        """Titles of the rungs that were not climbed."""
        return list(self.titles[len(self.rungs) :])

    # In a notebook

    def _repr_html_(self) -> str:
        if self.failed is None:
            return "".join(_folded(rung) for rung in self.rungs)
        failed = self.failed
        said = "".join(f"<p>{escape(text)}</p>" for text in _doctor_says(self))
        above = f"<p>Not climbed: {escape(', '.join(self.above))}.</p>" if self.above else ""
        return (
            f"<p><b>Rung {failed.number}, {escape(failed.title)}: FAILED</b></p>"
            f"<p>{escape(failed.message)}</p>{_items(failed.warnings)}{said}"
            f"{listing(self.fix)}{_image(failed)}"
            f"<details><summary>numbers</summary><p>{_evidence(failed.evidence)}</p></details>"
            + "".join(_folded(rung) for rung in self.rungs[:-1])
            + above
        )


def _doctor_says(report: LadderReport) -> list[str]:
    """The one likeliest cause, or how much was looked at; nothing where the rung knows it."""
    if report.named:
        return [f"The doctor says: {report.named.id}: {report.named.message}"]
    if report.diagnosis is None or report.failed is None or report.failed.cause:
        return []
    return [f"The doctor sees no cause. {report.diagnosis.coverage}"]


def _as_text(rung: Rung) -> list[str]:
    lines = _wrapped(f"{rung.number} {rung.title:<30} {rung.mark:<9} {rung.message}")
    return lines + [row for text in rung.warnings for row in _wrapped(f"  look: {text}")]


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 100, subsequent_indent="      ")


def _folded(rung: Rung) -> str:
    """One line; the message, the numbers and the picture open with a click."""
    return (
        f"<details><summary>{rung.number} {escape(rung.title)}: {rung.mark}"
        f"{' (look)' if rung.warnings else ''}</summary>"
        f"<p>{escape(rung.message)}</p>{_items(rung.warnings)}"
        f"<p>{_evidence(rung.evidence)}</p>{_image(rung)}</details>"
    )


def _image(rung: Rung) -> str:
    if rung.picture is None:
        return ""
    from course.plots.embedded import embedded

    return embedded(rung.plot(), rung.message)


def _items(texts: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f"<ul>{items}</ul>" if items else ""


def _evidence(evidence: dict[str, Any]) -> str:
    return "<br>".join(f"{escape(k)} = {escape(short(v))}" for k, v in evidence.items())
