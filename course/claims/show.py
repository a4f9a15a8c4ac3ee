"""How tried claims look: a line or a block of text, JSON, and one self-contained HTML page.

`run_command` is what `course claims` does; it needs no Typer and returns the exit code.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import IO, Any

from course.claims.contradictions import Contradiction, contradictions, find_contradiction
from course.claims.registry import (
    VERDICTS,
    Trial,
    catalogue,
    check_seed,
    choose_device,
    compute,
    compute_all,
    recorded_gpu_verdicts,
)

_CONTRADICTIONS_INTRO = (
    "Where the sources contradict each other, what decides, and what the course does."
)


def run_command(
    id: str | None = None,
    *,
    list_only: bool = False,
    as_json: bool = False,
    html: Path | None = None,
    seed: int = 0,
    device: str | None = None,
    out: IO[str] | None = None,
    progress: IO[str] | None = None,
) -> int:
    """Try one claim or all, and print what was found.

    Args:
        id: A claim (`F26`) or a contradiction (`K17`); None: all claims.
        list_only: Ids and titles only; imports no torch.
        as_json: Plain JSON on `out`.
        html: Write the whole as one page to this file as well.
        seed: Seed of every experiment.
        device: `cpu`, `cuda`, or None: the GPU for claims that ask for one, where there is one.
        out: Where results go; standard output by default.
        progress: Where it says which claim runs; standard error by default.

    Returns:
        0, or 1 if a verdict is not the one on record.

    Raises:
        UnknownIdError: No such id.
        ValueError: This torch cannot compute on `device`, the seed is none, or the page cannot be
            written there; said before anything is tried.
    """
    out, progress = out or sys.stdout, progress or sys.stderr
    if list_only:
        print(listing(as_json=as_json), file=out)
        return 0
    check_seed(seed)
    if device is not None:
        choose_device(device)
    if html is not None:
        _check_page(Path(html))
    if id is not None and id.strip().upper().startswith("K"):
        row = find_contradiction(id)
        if html is not None:
            raise ValueError(
                f"--html {html}: a page holds claims, and {row.id} is a contradiction. Leave the "
                "id out: the page of all claims ends with every contradiction."
            )
        print(_dumped(row.to_json()) if as_json else contradiction_text(row), file=out)
        return 0
    if id is not None:
        trials = [compute(id, seed=seed, device=device)]
        print(_dumped(trials[0].to_json()) if as_json else trials[0], file=out)
    else:
        quiet = as_json or not out.isatty()  # then nothing else shows that it runs
        trials = []
        for trial in compute_all(seed=seed, device=device):
            trials.append(trial)
            if not as_json:
                print(line(trial), file=out, flush=True)
            if quiet and progress.isatty():
                print(f"\r{trial.entry.id} of {len(catalogue())}", end="", file=progress)
        if quiet and progress.isatty():
            print("\r", end="", file=progress)
        print(_dumped(document(trials)) if as_json else "\n" + summary(trials), file=out)
    if html is not None:
        Path(html).write_text(page(trials), "utf-8")
        print(f"page written to {html}", file=progress)
    return int(not all(trial.as_expected for trial in trials))


def _check_page(path: Path) -> None:
    """Before a minute of experiments: can the page be written there?

    Raises:
        ValueError: A directory, or in one that does not exist.
    """
    if path.is_dir():
        raise ValueError(f"--html {path}: a directory. Name the page, as {path / 'claims.html'}.")
    if not path.absolute().parent.is_dir():
        raise ValueError(
            f"--html {path}: no directory {path.parent}. Make it first: mkdir -p {path.parent}"
        )


def listing(*, as_json: bool = False) -> str:
    """Ids and titles of all claims; with `as_json` their sources as well."""
    entries = catalogue().values()
    if as_json:
        return _dumped([{"id": e.id, "title": e.title, "source": e.source} for e in entries])
    return "\n".join(f"{entry.id:<5} {entry.title}" for entry in entries)


def line(trial: Trial) -> str:
    """One claim in one line: id, verdict, title, and the number that decides."""
    text = f"{trial.entry.id:<5} {trial.verdict:<14} {trial.entry.title}: "
    text += finding(trial.measured.deciding, trial.measured.number)
    if (recorded := _on_record(trial)) is not None:
        text += f" [on {recorded['gpu']}: {recorded['verdict']}, "
        text += f"{finding(recorded['deciding'], recorded['number'])}]"
    return text if trial.as_expected else f"{text}  << on record: {trial.expected}"


def finding(name: str, number: float) -> str:
    """A number with its name; of a count both numbers, as `runs that end in NaN: 5 of 6`.

    >>> finding("runs that end in NaN, of 6", 5), finding("weights moved by", 0.25)
    ('runs that end in NaN: 5 of 6', 'weights moved by = 0.25')
    """
    what, comma, total = name.rpartition(", of ")
    if comma and total.isdigit():
        return f"{what}: {short(number)} of {total}"
    return f"{name} = {short(number)}"


def summary(trials: Iterable[Trial]) -> str:
    """How many claims got which verdict, the versions, and the contradictions in brief."""
    trials = list(trials)
    lines = [
        f"{len(trials)} claims: " + ", ".join(f"{n} {verdict}" for verdict, n in counts(trials)),
        _circumstances(trials),
        "",
        _CONTRADICTIONS_INTRO,
    ]
    for row in contradictions().values():
        by = ", ".join(row.decided_by) or "a choice"
        lines.append(f"{row.id:<5} {row.topic} ({by}): {row.uses}")
    changed = [trial.entry.id for trial in trials if not trial.as_expected]
    if changed:
        lines += ["", f"Not the verdict on record: {', '.join(changed)}."]
    return "\n".join(lines)


def counts(trials: Iterable[Trial]) -> list[tuple[str, int]]:
    """Each verdict that occurs, with how often, in the order of `VERDICTS`."""
    found = Counter(trial.verdict for trial in trials)
    return [(verdict, found[verdict]) for verdict in VERDICTS if found[verdict]]


def markdown_record() -> str:
    """The verdicts on record as a Markdown table, for the README; tests try every one of them."""
    on_record: dict[str, list[str]] = {verdict: [] for verdict in VERDICTS}
    for id, entry in catalogue().items():
        on_record[entry.load().expected].append(id)
    rows = ["| verdict | how many | claims |", "| --- | --- | --- |"]
    rows += [f"| {verdict} | {len(ids)} | {', '.join(ids)} |" for verdict, ids in on_record.items()]
    return "\n".join(rows)


def document(trials: Iterable[Trial]) -> dict[str, Any]:
    """Everything that `--json` prints: claims, contradictions, and the GPU's record if any."""
    return {
        "claims": [trial.to_json() for trial in trials],
        "contradictions": [row.to_json() for row in contradictions().values()],
        "gpu_record": recorded_gpu_verdicts() or None,
    }


def as_text(trial: Trial) -> str:
    """One claim as a block: what is asserted, what was found, and every number."""
    return "\n".join(_text_lines(trial))


def _text_lines(trial: Trial) -> Iterator[str]:
    measured = trial.measured
    yield f"{trial.entry.id}  {trial.entry.title}: {trial.verdict}"
    yield from _wrapped(trial.entry.source)
    yield from _wrapped(f"The lecture says: {trial.says}")
    if trial.condition and trial.verdict == "holds if":
        yield from _wrapped(f"It holds {trial.condition}.")
    for name, value in measured.evidence.items():
        mark = ">" if name == measured.deciding else " "
        yield from _wrapped(f"{name}: {short(value)}", start=f"   {mark} ")
    if measured.note:
        yield from _wrapped(measured.note)
    if (recorded := _on_record(trial)) is not None:
        found = finding(recorded["deciding"], recorded["number"])
        yield from _wrapped(f"On record for {recorded['gpu']}: {recorded['verdict']}, {found}.")
    if not trial.as_expected:
        yield f"     The verdict on record is '{trial.expected}'."
    yield f"     {_circumstances([trial])}"


def contradiction_text(row: Contradiction) -> str:
    """One contradiction as a block."""
    lines = [f"{row.id}  {row.topic}", *(f"     {position}" for position in row.positions)]
    lines.append(f"     decided by: {', '.join(row.decided_by) or 'nothing that runs'}")
    return "\n".join([*lines, *_wrapped(f"The course: {row.uses}")])


def as_html(trial: Trial) -> str:
    """One claim as a small table; everything escaped."""
    left = "<td style='text-align:left'>"  # where the page sets numbers, as notebooks do
    rows = "".join(
        f"<tr>{left}{escape(name)}</td>{left}{escape(short(value))}</td></tr>"
        for name, value in trial.measured.evidence.items()
    )
    condition = trial.condition if trial.verdict == "holds if" else ""
    remarks = [f"It holds {condition}." if condition else "", trial.measured.note]
    return (
        f"<h4>{escape(trial.entry.id)} · {escape(trial.entry.title)}: {escape(trial.verdict)}</h4>"
        f"<p>{escape(trial.says)} <em>{escape(trial.entry.source)}</em></p>"
        + "".join(f"<p>{escape(remark)}</p>" for remark in remarks if remark)
        + f"<table><tbody>{rows}</tbody></table><p>{escape(_circumstances([trial]))}</p>"
    )


def page(trials: Iterable[Trial]) -> str:
    """All trials and contradictions as one HTML page that needs no other file."""
    trials = list(trials)
    tally = ", ".join(f"{n} {verdict}" for verdict, n in counts(trials))
    here = {trial.entry.id for trial in trials}
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width'>"
        f"<title>The lecture's claims, tried</title><style>{_STYLE}</style></head><body>"
        f"<h1>The lecture's claims, tried</h1><p>{len(trials)} claims: {escape(tally)}. "
        f"{escape(_circumstances(trials))}</p>"
        "<table><thead><tr><th>id</th><th>claim</th><th>verdict</th><th>what decides</th></tr>"
        f"</thead><tbody>{''.join(map(_page_row, trials))}</tbody></table>"
        f"<h2>Contradictions</h2><p>{escape(_CONTRADICTIONS_INTRO)}</p>"
        "<table><thead><tr><th>id</th><th>topic</th><th>positions</th><th>decided by</th>"
        "<th>the course</th></tr></thead><tbody>"
        f"{''.join(_contradiction_row(row, here) for row in contradictions().values())}"
        "</tbody></table></body></html>\n"
    )


_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;width:100%}td,th{border-bottom:1px solid #ccc;padding:.4rem;"
    "text-align:left;vertical-align:top}.v{white-space:nowrap;font-weight:600}"
    ".changed{background:#fdd}summary{cursor:pointer}td p{margin:.2rem 0;color:#555}"
    "td{overflow-wrap:break-word}tr[id]>td:first-child{white-space:nowrap}@media(max-width:44rem){thead{display:none}"
    "tr{display:block;border-bottom:1px solid #ccc;padding:.4rem 0}"
    "td{display:block;border:0;padding:.1rem .4rem}}"
)


def _page_row(trial: Trial) -> str:
    changed = "" if trial.as_expected else " class='changed'"
    decides = finding(trial.measured.deciding, trial.measured.number)
    if (recorded := _on_record(trial)) is not None:
        decides += f"; on {recorded['gpu']}: {recorded['verdict']}, "
        decides += finding(recorded["deciding"], recorded["number"])
    condition = trial.condition if trial.verdict == "holds if" else ""
    holds = f"<p>It holds {escape(condition)}.</p>" if condition else ""
    return (
        f"<tr id='{escape(trial.entry.id)}'{changed}><td>{escape(trial.entry.id)}</td>"
        f"<td>{escape(trial.entry.title)}{holds}<details><summary>evidence</summary>{as_html(trial)}"
        f"</details></td><td class='v'>{escape(trial.verdict)}</td><td>{escape(decides)}</td></tr>"
    )


def _contradiction_row(row: Contradiction, here: set[str]) -> str:
    """Links lead to the claims that are on this page."""
    positions = "<br>".join(map(escape, row.positions))
    by = ", ".join(
        f"<a href='#{id}'>{id}</a>" if id in here else escape(id) for id in row.decided_by
    )
    return (
        f"<tr id='{row.id}'><td>{row.id}</td><td>{escape(row.topic)}</td><td>{positions}</td>"
        f"<td>{by or 'a choice'}</td><td>{escape(row.uses)}</td></tr>"
    )


def _on_record(trial: Trial) -> dict[str, Any] | None:
    """What a GPU machine found, where this one could not decide."""
    if trial.verdict != "needs GPU":
        return None
    record = recorded_gpu_verdicts()
    found = record.get("claims", {}).get(trial.entry.id)
    return found | {"gpu": record["device"]} if found else None


def _circumstances(trials: list[Trial]) -> str:
    if not trials:
        return ""
    versions = {name: value for trial in trials for name, value in trial.versions.items()}
    shown = ", ".join(f"{name} {version}" for name, version in versions.items())
    devices = ", ".join(sorted({trial.device for trial in trials}))
    took = sum(trial.seconds for trial in trials)
    return f"seed {trials[0].seed}, {devices}, {shown}; {took:.1f} s"


def _wrapped(text: str, start: str = " " * 5) -> list[str]:
    return wrap(text, 100, initial_indent=start, subsequent_indent=" " * 7)


def _dumped(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)


def short(value: Any) -> str:
    """A value in at most four significant digits a number; an empty text as `nothing`."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if 1e4 <= abs(value) < 1e7 else f"{value:.4g}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(short, value)) + "]"
    if isinstance(value, dict):
        return ", ".join(f"{name}: {short(item)}" for name, item in value.items())
    return str(value) or "nothing"  # as `raises`, where nothing did
