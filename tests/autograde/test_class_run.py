"""A class run: killed anywhere it goes on; nothing is lost, nothing is graded or written twice.

Most runs here are simulated: real drivers, crews and journals, with the work of `simulated.py`.
"""

import json
import multiprocessing
import random
import sqlite3
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from autograde.classroom import crew
from autograde.classroom.assignment import Assignment
from autograde.classroom.crew import Crew
from autograde.classroom.grading import ClassRun, Outcome, journal_path
from autograde.classroom.journal import read_known, read_lines
from autograde.classroom.submissions import Submission
from autograde.sandbox.session import quiet_environment, warm_context
from autograde.sandbox.student import Limits

WORK = "tests.autograde.simulated"
PLAIN = Assignment(name="a", cells=[], released={}, calls={}, exercises="", version="v1")


def hand_in(folder: Path, wishes: dict[str, dict]) -> None:
    for student, wish in wishes.items():
        path = folder / "submitted" / student / "a" / "a.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(wish))
    with sqlite3.connect(folder / "scores.db") as db:
        db.execute("create table if not exists scores (student primary key, points)")


def submissions(folder: Path) -> list[Submission]:
    paths = sorted((folder / "submitted").glob("*/a/a.ipynb"))
    return [Submission(student=p.parts[-3], path=p, sha=p.read_text()) for p in paths]


def noted(path: Path) -> Counter:
    return Counter(path.read_text().split()) if path.exists() else Counter()


def scores(folder: Path) -> dict[str, int]:
    with sqlite3.connect(folder / "scores.db") as db:
        return dict(db.execute("select student, points from scores"))


def run(folder: Path, *, jobs: int = 2, assignment=PLAIN, order=1, **options) -> list[Outcome]:
    with (
        ClassRun(folder, assignment, Limits(), writer=f"{WORK}:write") as class_run,
        closing(Crew(f"{WORK}:mark", jobs)) as graders,
    ):
        found = submissions(folder)[::order]
        return list(class_run.grade(found, graders, written=scores(folder), **options))


def drive(folder: str) -> None:
    """A run in a process of its own, to be killed."""
    crew._share_warm_parent()
    run(Path(folder))


def start_driver(folder: Path) -> multiprocessing.process.BaseProcess:
    process = warm_context().Process(target=drive, args=(str(folder),))
    with quiet_environment():
        process.start()
    return process


def lines(folder: Path) -> list[dict]:
    return list(read_lines(journal_path(folder, "a")))


def events(folder: Path, event: str) -> Counter:
    return Counter(line["student"] for line in lines(folder) if line["event"] == event)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_driver_killed_at_random_moments_goes_on_and_each_score_is_there_once(tmp_path, seed):
    moments = random.Random(seed)
    students = {f"s{number:02}": {"n": number} for number in range(30)}
    hand_in(tmp_path, students)
    marked_at_kill = []
    for _ in range(3):
        before = len(lines(tmp_path))
        process = start_driver(tmp_path)
        until = before + moments.randrange(0, 20)
        deadline = time.monotonic() + 30
        while process.is_alive() and len(lines(tmp_path)) < until and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(moments.uniform(0, 0.01))
        process.kill()
        process.join()
        graded = {s for s, about in read_known(journal_path(tmp_path, "a")).items() if about.last}
        marked_at_kill.append((graded, noted(tmp_path / "marked")))
    outcomes = run(tmp_path)
    assert sorted(outcome.student for outcome in outcomes) == list(students)
    assert all(outcome.graded for outcome in outcomes)
    assert events(tmp_path, "graded") == dict.fromkeys(students, 1)
    marked = noted(tmp_path / "marked")
    for graded, then in marked_at_kill:  # what the journal knew was not marked again
        assert all(marked[student] == then[student] for student in graded)
    seeds = {line["student"]: line["seed"] for line in lines(tmp_path) if line["event"] == "graded"}
    assert scores(tmp_path) == {student: seed % 2 for student, seed in seeds.items()}
    assert not list((tmp_path / "journal" / "a.pending").iterdir())
