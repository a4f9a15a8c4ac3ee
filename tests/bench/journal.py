"""What a class run itself costs: 100,000 simulated submissions, whose work is empty.

Everything of a run but grading and nbgrader: the driver finds out what is to be done, hands out
jobs of a real assignment's size, keeps each result, notes it in the journal, has it written, notes
that. Afterwards the journal must hold each submission once, and a second run must do nothing.

    python -m tests.bench.journal --submissions 100000
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from autograde.classroom.assignment import Assignment
from autograde.classroom.crew import Crew
from autograde.classroom.grading import ClassRun, journal_path
from autograde.classroom.journal import read_lines
from autograde.classroom.submissions import Submission
from autograde.sandbox.limits import Limits
from tests.bench.harness import FOLDER

GOAL_MS = 5.0
"""The driver's own cost of one submission, milliseconds."""
NOTEBOOK_CHARACTERS = 40_000
"""About as much as the first graded notebook, filled in."""
CHECKPOINTS = 10


def mark(job: dict[str, Any]) -> dict[str, Any]:
    """Grade nothing; the result is about as large as a real one."""
    return {
        "graded": True,
        "notes": [],
        "cells": [{"source": job["text"]}],
        "checks": [],
        "ended": "",
    }


def write(_job: dict[str, Any]) -> dict[str, Any]:
    """Write nothing."""
    return {"reason": ""}


def simulate(num_submissions: int, jobs: int = 2) -> dict[str, Any]:
    """Run a class of simulated submissions.

    Returns:
        `driver_cpu_ms` and `wall_ms` a submission; `wall_ms_by_tenth`, which shows whether the
        rate holds; `driver_peak_mib` of memory; `second_run_ms` a submission, when nothing is to
        be done; `graded_twice` and `lost`, which must be 0.
    """
    with tempfile.TemporaryDirectory() as name:
        return _simulate(Path(name), num_submissions, jobs)


def _simulate(folder: Path, num_submissions: int, jobs: int) -> dict[str, Any]:
    assignment = _assignment()
    text = folder / "notebook.ipynb"
    text.write_text("x" * NOTEBOOK_CHARACTERS)
    submissions = [
        Submission(student=f"s{number:06}", path=text, sha=f"{number:064x}")
        for number in range(num_submissions)
    ]
    outcomes = _run(
        folder, assignment, submissions[:jobs], jobs
    )  # the crew starts before the clock
    list(outcomes)
    started, cpu = time.perf_counter(), time.process_time()
    tenths = []
    for count, _ in enumerate(_run(folder, assignment, submissions, jobs), start=1):
        if count % max(1, num_submissions // CHECKPOINTS) == 0:
            tenths.append(time.perf_counter() - started)
    wall_s, cpu_s = time.perf_counter() - started, time.process_time() - cpu
    started = time.perf_counter()
    again = list(_run(folder, assignment, submissions, jobs))
    second_s = time.perf_counter() - started
    graded = Counter(
        line["student"]
        for line in read_lines(journal_path(folder, assignment.name))
        if line["event"] == "graded"
    )
    parts = [after - before for before, after in zip([0.0, *tenths], tenths, strict=False)]
    return {
        "submissions": num_submissions,
        "jobs": jobs,
        "driver_cpu_ms": round(1000 * cpu_s / num_submissions, 3),
        "wall_ms": round(1000 * wall_s / num_submissions, 3),
        "wall_ms_by_tenth": [round(1000 * s * CHECKPOINTS / num_submissions, 3) for s in parts],
        "driver_peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "second_run_ms": round(1000 * second_s / num_submissions, 3),
        "graded_twice": sum(count > 1 for count in graded.values()),
        "lost": num_submissions - len(graded) + sum(not outcome.unchanged for outcome in again),
    }


def _run(folder: Path, assignment: Assignment, submissions: list, jobs: int) -> Iterator[Any]:
    everybody = frozenset(submission.student for submission in submissions)
    for submission in submissions:  # what the writer would have written
        path = folder / "verdicts" / assignment.name / f"{submission.student}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    with (
        ClassRun(folder, assignment, Limits(), writer="tests.bench.journal:write") as run,
        closing(Crew("tests.bench.journal:mark", jobs)) as graders,
    ):
        yield from run.grade(submissions, graders, written=everybody)


def _assignment() -> Assignment:
    from autograde.class_dir import init
    from autograde.classroom.assignment import read_assignment
    from autograde.sources import source_paths

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "class"
        assignment = next(iter(source_paths()))
        init(folder, [assignment])
        return read_assignment(folder, assignment)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--submissions", type=int, default=100_000)
    parser.add_argument("--jobs", type=int, default=2)
    settings = parser.parse_args()
    found = simulate(settings.submissions, settings.jobs)
    for name, value in found.items():
        print(f"{name:<18} {value}")
    holds = found["driver_cpu_ms"] < GOAL_MS and not found["graded_twice"] and not found["lost"]
    print(f"under {GOAL_MS:g} ms of the driver's time each: {'yes' if holds else 'NO'}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / "journal.json"
    document = {"versions": {"python": platform.python_version()}, "goal_ms": GOAL_MS, **found}
    path.write_text(json.dumps(document, indent=2) + "\n")
    print(f"written to {path}")
    raise SystemExit(0 if holds else 1)


if __name__ == "__main__":
    main()
