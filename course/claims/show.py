"""How the result for one claim is shown: a line, a block of text, a small table for a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from typing import TYPE_CHECKING

from course.ledger import same_place
from course.pages import TONES
from course.report import short, wrapped
from course.tables import folded, html_table
from course.view import view

if TYPE_CHECKING:
    from course.claims.trial import Trial


COLOURS = {"good": 32, "part": 33, "bad": 31}
"""The terminal's colour codes for the tones of `course.pages`."""


def line(trial: Trial, *, colour: bool = False) -> str:
    """One claim in one line: id, verdict, title, and the number that decides."""
    verdict = f"{trial.verdict:<14}"
    if colour and (number := COLOURS.get(TONES.get(trial.verdict, ""))):
        verdict = f"\x1b[{number}m{verdict}\x1b[0m"
    text = f"{trial.entry.id:<5} {verdict} {trial.entry.title}: "
    text += finding(trial.measured.deciding, trial.measured.number)
    if (recorded := trial.on_record) is not None:
        text += f" [on {recorded['gpu']}: {recorded['verdict']}, "
        text += f"{finding(recorded['deciding'], recorded['number'])}]"
    return text if trial.as_expected else f"{text}  << on record: {trial.expected}"


def finding(name: str, number: float) -> str:
    """A number with its name; for a count, both numbers, e.g. `runs that end in NaN: 5 of 6`.

    >>> finding("runs that end in NaN, of 6", 5), finding("weights moved by", 0.25)
    ('runs that end in NaN: 5 of 6', 'weights moved by = 0.25')
    """
    what, comma, total = name.rpartition(", of ")
    if comma and total.isdigit():
        return f"{what}: {short(number)} of {total}"
    return f"{name} = {short(number)}"


def as_text(trial: Trial) -> str:
    """One claim as a block: the assertion, the findings, and every number."""
    return "\n".join(_text_lines(trial))


def _text_lines(trial: Trial) -> Iterator[str]:
    measured = trial.measured
    yield f"{trial.entry.id}  {trial.entry.title}: {trial.verdict}"
    yield from _wrapped(trial.entry.source)
    yield from _wrapped(f"The lecture says: {trial.says}")
    if trial.condition and trial.verdict == "holds if":
        yield from _wrapped(f"It holds {trial.condition}.")
    if measured.criterion:
        yield from _wrapped(f"It holds in a setting where {measured.criterion}:")
    for setting, held in measured.settings.items():
        yield from _wrapped(f"{_word(held)}  {setting}", start=" " * 7)
    for name, value in measured.evidence.items():
        mark = ">" if name == measured.deciding else " "
        yield from _wrapped(f"{name}: {short(value)}", start=f"   {mark} ")
    if measured.note:
        yield from _wrapped(measured.note)
    if (recorded := trial.on_record) is not None:
        found = finding(recorded["deciding"], recorded["number"])
        yield from _wrapped(f"On record for {recorded['gpu']}: {recorded['verdict']}, {found}.")
    if not trial.as_expected:
        yield f"     The verdict on record is '{trial.expected}'."
    if others := same_place(trial.entry.id):
        yield from _wrapped(f"In the same place: {', '.join(others)}")
    yield f"     tested by {trial.code}"
    yield f"     {circumstances([trial])}"


def as_html(trial: Trial) -> str:
    """One claim as a small table; everything escaped."""
    evidence = trial.measured.evidence
    table = html_table((), ((name, short(value)) for name, value in evidence.items()))
    about = circumstances([trial])
    about = f"<p>{escape(about)}</p>" if view() is None else folded("tested on", about)
    measured, settings = trial.measured, ""
    if measured.settings:
        says = f"It holds in a setting where {measured.criterion}:"
        rows = ((_word(held), setting) for setting, held in measured.settings.items())
        settings = f"<p>{escape(says)}</p>{html_table((), rows)}"
    condition = trial.condition if trial.verdict == "holds if" else ""
    remarks = [f"It holds {condition}." if condition else "", trial.measured.note]
    return (
        f"<h4>{escape(trial.entry.id)} · {escape(trial.entry.title)}: {escape(trial.verdict)}</h4>"
        f"<p>{escape(trial.says)} <em>{escape(trial.entry.source)}</em></p>"
        + "".join(f"<p>{escape(remark)}</p>" for remark in remarks if remark)
        + settings
        + table
        + about
    )


def _word(held: bool) -> str:
    return "holds" if held else "fails"


def circumstances(trials: Iterable[Trial]) -> str:
    """Seed, devices, versions and seconds of some trials, in one line."""
    trials = list(trials)
    if not trials:
        return ""
    versions = {name: value for trial in trials for name, value in trial.versions.items()}
    shown = ", ".join(f"{name} {version}" for name, version in versions.items())
    devices = ", ".join(sorted({trial.device for trial in trials}))
    took = sum(trial.seconds for trial in trials)
    return f"seed {trials[0].seed}, {devices}, {shown}; {took:.1f} s"


def _wrapped(text: str, start: str = " " * 5) -> list[str]:
    return wrapped(text, start=start, later=" " * 7)
