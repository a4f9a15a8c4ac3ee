"""How the results for many claims are shown: a summary, a Markdown table, JSON, an offline page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from html import escape
from typing import Any

from course.claims.contradictions import Contradiction, contradictions
from course.claims.registry import catalogue
from course.claims.show import as_html, circumstances, finding
from course.claims.trial import VERDICTS, Trial, recorded_gpu_verdicts
from course.ledger import same_place
from course.pages import page as whole_page
from course.pages import verdict_cell
from course.report import markdown_table

INTRO = (
    "Where the sources contradict each other, what decides between them, and what the course does."
)


def summary(trials: Iterable[Trial], *, whole: bool = True) -> str:
    """Number of claims per verdict, the versions, and for all claims also the contradictions."""
    trials = list(trials)
    lines = [
        f"{len(trials)} claims: " + ", ".join(f"{n} {verdict}" for verdict, n in counts(trials)),
        circumstances(trials),
    ]
    lines += ["", INTRO] if whole else []
    for row in contradictions().values() if whole else ():
        by = ", ".join(row.decided_by) or "a choice"
        lines.append(f"{row.id:<5} {row.topic} ({by}): {row.uses}")
    changed = [trial.entry.id for trial in trials if not trial.as_expected]
    if changed:
        lines += ["", f"Verdict differs from the one on record: {', '.join(changed)}."]
    return "\n".join(lines)


def counts(trials: Iterable[Trial]) -> list[tuple[str, int]]:
    """Each verdict that occurs with its count, in the order of `VERDICTS`."""
    found = Counter(trial.verdict for trial in trials)
    return [(verdict, found[verdict]) for verdict in VERDICTS if found[verdict]]


def markdown_record() -> str:
    """The verdicts on record as a Markdown table, for docs/claims.md; tests check all of them."""
    on_record: dict[str, list[str]] = {verdict: [] for verdict in VERDICTS}
    recorded = recorded_gpu_verdicts()
    for id, entry in catalogue().items():
        expected = entry.load().expected
        found = recorded.get("claims", {}).get(id) if expected == "needs GPU" else None
        decided = f" ({found['verdict']} on {recorded['device']})" if found else ""
        on_record[expected].append(f"{id}{decided}")
    rows = [[verdict, str(len(ids)), ", ".join(ids)] for verdict, ids in on_record.items()]
    return markdown_table(("verdict", "how many", "claims"), rows)


def document(trials: Iterable[Trial]) -> dict[str, Any]:
    """Everything that `--json` prints: claims, contradictions, and the record of a GPU if any."""
    return {
        "claims": [trial.to_json() for trial in trials],
        "contradictions": [row.to_json() for row in contradictions().values()],
        "gpu_record": recorded_gpu_verdicts() or None,
    }


def page(trials: Iterable[Trial]) -> str:
    """All trials and contradictions as one self-contained HTML page."""
    trials = list(trials)
    tally = ", ".join(f"{n} {verdict}" for verdict, n in counts(trials))
    here = {trial.entry.id for trial in trials}
    rows = "".join(_page_row(trial, here) for trial in trials)
    body = (
        f"<p>{len(trials)} claims: {escape(tally)}. {escape(circumstances(trials))}</p>"
        "<table class='rows'><thead><tr><th>id</th><th>verdict</th><th>claim</th>"
        f"<th>what decides</th></tr></thead><tbody>{rows}</tbody></table>"
        f"<h2>Contradictions</h2><p>{escape(INTRO)}</p>"
        "<table class='rows'><thead><tr><th>id</th><th>topic</th><th>positions</th>"
        "<th>decided by</th><th>the course</th></tr></thead><tbody>"
        f"{''.join(_contradiction_row(row, here) for row in contradictions().values())}"
        "</tbody></table>"
    )
    return whole_page("The lecture's claims, tested", body)


def _page_row(trial: Trial, here: set[str]) -> str:
    changed = "" if trial.as_expected else " class='changed'"
    decides = finding(trial.measured.deciding, trial.measured.number)
    if (recorded := trial.on_record) is not None:
        decides += f"; on {recorded['gpu']}: {recorded['verdict']}, "
        decides += finding(recorded["deciding"], recorded["number"])
    condition = trial.condition if trial.verdict == "holds if" else ""
    holds = f"<p>It holds {escape(condition)}.</p>" if condition else ""
    others = ", ".join(_link(id_, here) for id_ in same_place(trial.entry.id))
    also = f"<p>In the same place: {others}</p>" if others else ""
    code = f"<p>Tried by <code>{escape(trial.code)}</code></p>"
    return (
        f"<tr id='{escape(trial.entry.id)}'{changed}><td>{escape(trial.entry.id)}</td>"
        f"{verdict_cell(trial.verdict)}<td>{escape(trial.entry.title)}{holds}"
        f"<details><summary>evidence</summary>{as_html(trial)}{code}{also}</details></td>"
        f"<td>{escape(decides)}</td></tr>"
    )


def _link(id_: str, here: set[str]) -> str:
    """A link to a claim or contradiction on this page; otherwise only the id."""
    there = id_ in here or id_.startswith("K")
    return f"<a href='#{id_}'>{id_}</a>" if there else escape(id_)


def _contradiction_row(row: Contradiction, here: set[str]) -> str:
    """Links point to the claims that are on this page."""
    positions = "<br>".join(map(escape, row.positions))
    by = ", ".join(_link(id_, here) for id_ in row.decided_by)
    return (
        f"<tr id='{row.id}'><td>{row.id}</td><td>{escape(row.topic)}</td><td>{positions}</td>"
        f"<td>{by or 'a choice'}</td><td>{escape(row.uses)}</td></tr>"
    )
