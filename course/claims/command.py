"""`course claims`: test one claim or all, and print the findings. It does not need Typer."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from course.claims.contradictions import Contradiction, find_contradiction
from course.claims.page import document, page, summary
from course.claims.registry import catalogue, compute, compute_all, place_of
from course.claims.show import line
from course.claims.trial import VERDICTS, Trial
from course.ledger import rows
from course.ledger.rows import TEXTS
from course.pages import check_page
from course.report import dumped, wrapped
from course.whole import check_seed


def run_command(
    id: str | None = None,
    *,
    list_only: bool = False,
    as_json: bool = False,
    html: Path | None = None,
    verdict: str | None = None,
    part: str | None = None,
    seed: int = 0,
    device: str | None = None,
    out: IO[str] | None = None,
    progress: IO[str] | None = None,
) -> int:
    """Test one claim or all, and print the findings.

    Args:
        id: A claim (`F26`) or a contradiction (`K17`); None: all claims.
        list_only: Ids and titles only; imports no torch.
        as_json: Plain JSON on `out`.
        html: Also write all of it to this file as one page.
        verdict: Only claims with this verdict on record.
        part: Only claims from this part of the sources, e.g. `chapter c5`.
        seed: Seed of every experiment.
        device: `cpu`, `cuda`, or None: the GPU, if there is one, for the claims that use it.
        out: Where results go; standard output by default.
        progress: Where the name of the running claim goes; standard error by default.

    Returns:
        0, or 1 if a verdict is not the one on record.

    Raises:
        UnknownIdError: No such id.
        ValueError: This torch cannot compute on `device`, the seed is invalid, or the page cannot
        be written; raised before anything is tested.
    """
    out, progress = out or sys.stdout, progress or sys.stderr
    if list_only:
        print(listing(as_json=as_json), file=out)
        return 0
    check_seed(seed)
    if device is not None:
        place_of(device)
    if html is not None:
        check_page(Path(html))
    if id is not None and id.strip().upper().startswith("K"):
        row = _contradiction(id, html)
        print(dumped(row.to_json()) if as_json else contradiction_text(row), file=out)
        return 0
    if id is not None:
        trials = [compute(id, seed=seed, device=device)]
        print(dumped(trials[0].to_json()) if as_json else trials[0], file=out)
    else:
        whole = verdict is part is None
        tried = (
            compute_all(seed=seed, device=device)
            if whole
            else (compute(i, seed=seed, device=device) for i in chosen(verdict, part))
        )
        trials = _said_one_by_one(tried, None if as_json else out, progress, quiet=not out.isatty())
        text = dumped(document(trials)) if as_json else f"\n{summary(trials, whole=whole)}"
        print(text, file=out)
    if html is not None:
        Path(html).write_text(page(trials), "utf-8")
        print(f"page written to {html}", file=progress)
    return int(not all(trial.as_expected for trial in trials))


def _contradiction(id: str, html: Path | None) -> Contradiction:
    row = find_contradiction(id)
    if html is not None:
        raise ValueError(
            f"--html {html}: a page shows claims, and {row.id} is a contradiction. Leave out the "
            "id: the page of all claims ends with all contradictions."
        )
    return row


def _said_one_by_one(
    tried: Iterable[Trial], out: IO[str] | None, progress: IO[str], *, quiet: bool
) -> list[Trial]:
    """All trials; one line each on `out`, and the progress if nothing else shows that it runs."""
    trials = []
    counts = (quiet or out is None) and progress.isatty()
    for trial in tried:
        trials.append(trial)
        if out is not None:
            print(line(trial, colour=out.isatty()), file=out, flush=True)
        if counts:
            print(f"\r{trial.entry.id} of {len(catalogue())}", end="", file=progress)
    if counts:
        print("\r", end="", file=progress)
    return trials


def chosen(verdict: str | None, part: str | None) -> list[str]:
    """Ids of the claims with this verdict on record that come from this part of the sources.

    Args:
        verdict: `holds`, `holds if`, `does not hold`, `needs GPU`, `not decidable`; None: any.
        part: A source (`lecture`, `module`, `chapter`, `essay`), with or without a section or a
            word of a heading (`chapter c5`, `lecture clipping`); None: any.

    Raises:
        ValueError: There is no such verdict, or no claim is left.
    """
    if verdict is not None and verdict not in VERDICTS:
        raise ValueError(f"--verdict '{verdict}': expected one of {', '.join(VERDICTS)}.")
    found = list(catalogue())
    if part is not None:
        source, _, where = part.strip().partition(" ")
        if source not in TEXTS:
            raise ValueError(f"--part '{part}': start with {', '.join(TEXTS)}, e.g. chapter c5.")
        found = [
            id_
            for id_ in found
            if any(
                text == source and where.lower() in place.lower()
                for text, place in rows()[id_].places
            )
        ]
    if verdict is not None:
        found = [id_ for id_ in found if catalogue()[id_].load().expected == verdict]
    if not found:
        raise ValueError(
            f"No claim matches --verdict {verdict or 'any'} and --part {part or 'any'}."
        )
    return found


def listing(*, as_json: bool = False) -> str:
    """Ids and titles of all claims; with `as_json` their sources as well."""
    entries = catalogue().values()
    if as_json:
        return dumped([{"id": e.id, "title": e.title, "source": e.source} for e in entries])
    return "\n".join(f"{entry.id:<5} {entry.title}" for entry in entries)


def contradiction_text(row: Contradiction) -> str:
    """One contradiction as a block."""
    lines = [f"{row.id}  {row.topic}", *(f"     {position}" for position in row.positions)]
    lines.append(f"     decided by: {', '.join(row.decided_by) or 'nothing that can be run'}")
    return "\n".join([*lines, *wrapped(f"The course: {row.uses}", start=" " * 5)])
