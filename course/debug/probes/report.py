"""What the doctor reports: findings, most likely first, and what was not checked."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from html import escape
from typing import Any, Literal

from course.report import json_ready, wrapped
from course.tables import code, html_table, listing

LATER = " " * 6
"""What the further lines of a finding begin with."""
LONGEST = 60
"""Letters of a value in a finding; what is longer is cut."""

Severity = Literal["error", "warning", "note"]
SPENT = "the budget of forwards is spent"
RAISES = ("model(inputs) raises", "loss_fn(outputs, targets) raises", "evaluate() raises",
          "the train_loader raises")  # fmt: skip
"""What a reason begins with where something of the author's cannot be called."""
NEEDED = {
    "no evaluate()": "evaluate",
    "no save and load": "save and load",
    "no train_step or train": "train_step",
    "needs train_step": "train_step",
    "no train(n_steps)": "train",
    "needs train(n_steps)": "train",
    "no loss_fn, and": "loss_fn",
    "no val_loader": "val_loader",
    "no groups": "groups",
    'declared["times"]': 'declared["times"]',
    SPENT: "a larger budget",
}
"""What to pass in, by the reason a check gives for not running."""


@dataclass(frozen=True)
class Finding:
    """One observation, with the numbers that show it and the code that fixes it."""

    id: str
    """Class of the bug, e.g. `missing-zero-grad`."""
    severity: Severity
    """`error`: certainly wrong; `warning`: wrong unless intended; `note`: worth knowing."""
    message: str
    """What was seen and why it matters, in one or two sentences."""
    evidence: dict[str, Any] = field(default_factory=dict)
    """Numbers and names, by name; plain values only."""
    fix: str = ""
    """Code to put in."""

    @property
    def is_alarm(self) -> bool:
        """True for an error or a warning; a note is not an alarm."""
        return self.severity != "note"

    def to_json(self) -> dict[str, Any]:
        """Plain values; non-finite numbers as strings."""
        return {
            "id": self.id,
            "severity": self.severity,
            "message": self.message,
            "evidence": {key: json_ready(value) for key, value in self.evidence.items()},
            "fix": self.fix,
        }


@dataclass(frozen=True)
class Report:
    """The findings of one diagnosis, most likely first."""

    findings: list[Finding]
    checked: list[str]
    """Names of the probes that ran to the end."""
    not_checked: dict[str, str]
    """Probe and why it did not run."""
    seconds: float = 0.0
    titles: dict[str, str] = field(default_factory=dict)
    """What each check verifies, in a sentence, by its name."""

    @property
    def alarms(self) -> list[Finding]:
        """Errors and warnings, without notes."""
        return [finding for finding in self.findings if finding.is_alarm]

    @property
    def ok(self) -> bool:
        """No error and no warning."""
        return not self.alarms

    @property
    def coverage(self) -> str:
        """How much was tried, and what to pass in so that more can be."""
        tried = len(self.checked)
        total = tried + len(self.not_checked)
        wanted = Counter(filter(None, map(_what_is_needed, self.not_checked.values())))
        more = [f"{what} ({count} more)" for what, count in wanted.most_common()]
        failed = Counter(why for why in self.not_checked.values() if why.startswith(RAISES))
        rest = total - tried - sum(wanted.values()) - sum(failed.values())
        said = [f"{tried} of {total} checks were tried."]
        said += [f"To try more, pass in {', '.join(more)}."] if more else []
        said += [f"{count} could not be tried: {why}." for why, count in failed.most_common()]
        said += [f"{rest} do not apply to these batches, this model or this loss."] if rest else []
        return " ".join(said)

    @property
    def _all_clear(self) -> str:
        """A sentence if there is no alarm; nothing otherwise."""
        return "" if self.alarms else f"Nothing wrong was seen in {len(self.checked)} checks."

    def to_json(self) -> dict[str, Any]:
        """The whole report as plain values that `json.dumps` takes."""
        return {
            "findings": [finding.to_json() for finding in self.findings],
            "checked": list(self.checked),
            "not_checked": dict(self.not_checked),
            "seconds": round(self.seconds, 3),
        }

    def __str__(self) -> str:
        lines = [self._all_clear] if self._all_clear else []
        for finding in self.findings:
            lines += wrapped(
                f"{finding.severity}  {finding.id}: {finding.message}", start="", later=LATER
            )
            evidence = ", ".join(f"{k} = {short(v)}" for k, v in finding.evidence.items())
            lines += wrapped(evidence, start="  seen: ", later=LATER) if evidence else []
            lines += [f"  fix:  {line}" for line in finding.fix.splitlines()]
        return "\n".join(lines + wrapped(self.coverage, start="", later=LATER))

    def _repr_html_(self) -> str:
        rows = (
            (
                f.severity,
                code(f.id),
                f.message,
                ", ".join(f"{k} = {short(v)}" for k, v in f.evidence.items()),
                listing(f.fix),
            )
            for f in self.findings
        )
        tried = "".join(f"<li>{escape(self.titles.get(n, n))}</li>" for n in self.checked)
        others = "".join(
            f"<li>{escape(self.titles.get(name, name))} <i>({escape(why)})</i></li>"
            for name, why in self.not_checked.items()
        )
        heads = ("severity", "class", "what", "seen", "fix")
        clear = f"<p>{self._all_clear}</p>" if self._all_clear else ""
        return (
            f"{clear}{html_table(heads, rows) if self.findings else ''}"
            "<details><summary>What was tried, and what was not</summary>"
            f"<p>{escape(self.coverage)}</p><p>Tried:</p><ul>{tried}</ul>"
            f"<p>Not tried:</p><ul>{others}</ul></details>"
        )


def _what_is_needed(reason: str) -> str | None:
    """The part of a set-up whose absence is the reason; None where nothing handed in would help."""
    return next((part for sign, part in NEEDED.items() if sign in reason), None)


def short(value: Any) -> str:
    """A number with four digits; anything else cut at `LONGEST` letters."""
    text = f"{value:.4g}" if isinstance(value, float) else json.dumps(json_ready(value))
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
