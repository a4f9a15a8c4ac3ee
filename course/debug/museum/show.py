"""Show an exhibit: as text, as a figure, and as HTML for a notebook."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from course.debug.museum.switch import broken_and_fixed
from course.debug.probes.report import short
from course.tables import breakable, html_table, listing

if TYPE_CHECKING:
    from course.debug.museum.exhibit import Exhibit

LEVELS = "▁▂▃▄▅▆▇█"
WIDTH = 50
"""Letters of a curve in text."""
CODE = ("broken", "fixed", "fix")
"""Names of what is said in lines of code."""


def rows(exhibit: Exhibit) -> list[tuple[str, str]]:
    """What an exhibit shows, as (name, text): symptom, evidence, fix."""
    error = exhibit.runs[0].error
    told = [("symptom", symptom(exhibit))]
    if error is not None:
        told.append(("raises", f"{type(error).__name__}: {first_line(error)}"))
    mend = exhibit.mend
    for finding in exhibit.diagnosis(True)[:1] if exhibit.names else []:
        told.append(("found", f"{finding.id}: {finding.message}"))
        if finding.evidence:
            seen = ", ".join(f"{key} = {short(value)}" for key, value in finding.evidence.items())
            told.append(("seen", seen))
        mend = mend or finding.fix
    if exhibit.why_not:
        told.append(("caught", f"not by diagnose: {exhibit.why_not}"))
    if exhibit.scaled:
        told.append(("scaled", exhibit.scaled))
    for mark, line in broken_and_fixed(exhibit.make):
        told.append(("broken" if mark == "-" else "fixed", f"{mark} {line}"))
    return [*told, *(("fix", line) for line in mend.splitlines())]


def symptom(exhibit: Exhibit) -> str:
    """The symptom measured in both runs."""
    with_bug, without = exhibit.both
    return f"{exhibit.symptom}: {with_bug:.4g} with the bug, {without:.4g} without"


def first_line(error: Exception) -> str:
    """The first line of an error's message, and the next if the first only announces it."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", str(error))  # torch colours some of its messages
    lines = [line.strip() for line in plain.splitlines() if line.strip()] or [""]
    return " ".join(lines[: 2 if lines[0].endswith(":") else 1])


def as_text(exhibit: Exhibit) -> str:
    """Symptom, evidence, fix, and both curves in characters, on one scale."""
    told = "".join(f"\n  {name:<8} {text}" for name, text in rows(exhibit))
    with_bug, healthy = exhibit.runs
    curve, label = exhibit.drawn
    both = {"healthy": curve(healthy), "bug": curve(with_bug)}
    scale = [value for values in both.values() for value in values if math.isfinite(value)]
    every = math.ceil(max(map(len, both.values())) / WIDTH) or 1
    drawn = "".join(
        f"\n  {name:<8} {sparkline(values[::every], scale) or 'no step made'}"
        for name, values in both.items()
    )
    ends = f"{min(scale):.3g} to {max(scale):.3g}" if scale else "no value"
    return f"{exhibit.id}  {exhibit.title}{told}\n  curve    {label}, {ends}{drawn}"


def sparkline(values: Sequence[float], scale: Sequence[float]) -> str:
    """Draw values as blocks of rising height between the ends of the scale; `!` is inf or nan.

    >>> sparkline([0, 1, 2, 7, float("inf")], scale=[0, 7])
    '▁▂▃█!'
    """
    low, high = (min(scale), max(scale)) if scale else (0.0, 0.0)
    step = (high - low) / (len(LEVELS) - 1) or 1.0
    return "".join(
        LEVELS[round((value - low) / step)] if math.isfinite(value) else "!" for value in values
    )


def as_figure(exhibit: Exhibit) -> Any:
    """Loss curves next to the trace or, without a trace, next to the symptom as bars.

    Returns:
        A matplotlib Figure.
    """
    from course.plots.museum import Bars, Curves, bug_beside_healthy

    with_bug, healthy = exhibit.runs
    stopped = "" if with_bug.error is None else type(with_bug.error).__name__

    def curves(of: Any, label: str) -> Curves:
        return Curves(label=label, healthy=of(healthy), bug=of(with_bug), stopped=stopped)

    panels: list[Curves | Bars] = [curves(lambda run: run.losses, "loss of the batch")]
    if exhibit.trace is not None:
        panels.append(curves(exhibit.trace, exhibit.trace_label))
    else:
        bug, without = exhibit.both
        panels.append(Bars(label=exhibit.symptom, healthy=without, bug=bug))
    return bug_beside_healthy(panels, title=f"{exhibit.id}  {exhibit.title}")


def as_html(exhibit: Exhibit) -> str:
    """The same as the text, with the figure embedded: nothing is loaded from elsewhere."""
    from course.plots.embedded import embedded

    said = rows(exhibit)
    code = {name: "\n".join(text for kind, text in said if kind == name) for name in CODE}
    shown = [(name, breakable(text)) for name, text in said if name not in CODE]
    shown += [(name, listing(breakable(lines))) for name, lines in code.items() if lines]
    return (
        f"<h4>{exhibit.id} &nbsp; {escape(exhibit.title)}</h4>{html_table((), shown)}"
        f"{embedded(as_figure(exhibit), symptom(exhibit))}"
    )
