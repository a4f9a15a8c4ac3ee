"""What the doctor says: findings, most likely first, and what was not looked at."""

from __future__ import annotations

import json
import math
import textwrap
from dataclasses import dataclass, field
from html import escape
from typing import Any, Literal

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """One thing that was seen, with the numbers that show it and the code that mends it."""

    id: str
    """Class of the bug, as `missing-zero-grad`."""
    severity: Severity
    """`error`: wrong for certain; `warning`: wrong unless it is meant; `note`: worth knowing."""
    message: str
    """What was seen and why it matters, in one or two sentences."""
    evidence: dict[str, Any] = field(default_factory=dict)
    """Numbers and names, by name; plain values only."""
    fix: str = ""
    """Code to put in."""

    @property
    def is_alarm(self) -> bool:
        """An error or a warning; a note is no alarm."""
        return self.severity != "note"

    def to_json(self) -> dict[str, Any]:
        """Plain values; non-finite numbers as strings."""
        return {
            "id": self.id,
            "severity": self.severity,
            "message": self.message,
            "evidence": {key: plain(value) for key, value in self.evidence.items()},
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

    @property
    def alarms(self) -> list[Finding]:
        """Errors and warnings, without notes."""
        return [finding for finding in self.findings if finding.is_alarm]

    @property
    def ok(self) -> bool:
        """No error and no warning."""
        return not self.alarms

    def to_json(self) -> dict[str, Any]:
        """The whole report as plain values that `json.dumps` takes."""
        return {
            "findings": [finding.to_json() for finding in self.findings],
            "checked": list(self.checked),
            "not_checked": dict(self.not_checked),
            "seconds": round(self.seconds, 3),
        }

    def __str__(self) -> str:
        lines = [] if self.alarms else ["Nothing wrong was seen."]
        for finding in self.findings:
            lines += _wrapped(f"{finding.severity}  {finding.id}: {finding.message}", "")
            evidence = ", ".join(f"{k} = {short(v)}" for k, v in finding.evidence.items())
            lines += _wrapped(evidence, "  seen: ") if evidence else []
            lines += [f"  fix:  {line}" for line in finding.fix.splitlines()]
        lines += _wrapped(", ".join(self.checked) or "nothing", "checked: ")
        for name, why in self.not_checked.items():
            lines += _wrapped(f"{name} ({why})", "not checked: ")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(f.severity)}</td><td><code>{escape(f.id)}</code></td>"
            f"<td>{escape(f.message)}</td>"
            f"<td>{escape(', '.join(f'{k} = {short(v)}' for k, v in f.evidence.items()))}</td>"
            f"<td><pre>{escape(f.fix)}</pre></td></tr>"
            for f in self.findings
        )
        skipped = "; ".join(f"{name} ({why})" for name, why in self.not_checked.items())
        return (
            f"<table><thead><tr><th>severity</th><th>class</th><th>what</th><th>seen</th>"
            f"<th>fix</th></tr></thead><tbody>{rows}</tbody></table>"
            f"<p>Checked: {escape(', '.join(self.checked))}. Not checked: {escape(skipped)}.</p>"
        )


def plain(value: Any) -> Any:
    """Numbers, strings, lists and dicts of them; tensors as lists, inf and nan as strings."""
    if hasattr(value, "tolist"):
        return plain(value.detach().tolist() if hasattr(value, "detach") else value.tolist())
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, (int, float, str, bool, type(None))) else str(value)


def short(value: Any) -> str:
    """A number with four digits; anything else cut at sixty letters."""
    text = f"{value:.4g}" if isinstance(value, float) else json.dumps(plain(value))
    return text if len(text) <= 60 else text[:57] + "..."


def _wrapped(text: str, label: str) -> list[str]:
    return textwrap.wrap(label + text, 100, subsequent_indent="      ") or [label]
