"""Real submissions, graders and gradebook: a run fails, is killed, goes on, and is repeated."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import nbformat
import pytest
import typer

from autograde import cli
from autograde.classroom import example, grading
from autograde.classroom.crew import Crew
from autograde.classroom.example import ASSIGNMENT
from autograde.classroom.journal import read_lines
from autograde.classroom.lookups import students_in
from autograde.classroom.reasons import read_verdicts
from autograde.classroom.release import release
from autograde.classroom.report import read_rows
from autograde.demo import compare
from autograde.sandbox.limits import Limits
from tests.short_class import short_class, submission

LIMITS = Limits(cell_s=20.0, answer_s=5.0)
STUDENTS = ["ada", "ben", "cleo"]
DEFAULTS = {
    "assignment": ASSIGNMENT,
    "students": None,
    "scheduler": "",
    "force": False,
    "cell_timeout": 20.0,
    "answer_timeout": 5.0,
}
DRAWS = """
import random, numpy, torch
print("drawn", random.random(), numpy.random.rand(), torch.rand(1).item())
"""


def graded(folder: Path) -> list[str]:
    lines = read_lines(grading.journal_path(folder, ASSIGNMENT))
    return [line["student"] for line in lines if line["event"] == "graded" and line["graded"]]


def drawn(folder: Path, student: str) -> list[str]:
    path = folder / "autograded" / student / ASSIGNMENT / f"{ASSIGNMENT}.ipynb"
    outputs = [o for cell in nbformat.read(path, 4).cells for o in cell.get("outputs", [])]
    return [o.text for o in outputs if o.output_type == "stream" and "drawn" in o.text]


def kill_one_grader(crew: Crew) -> list[int]:
    """In the background: kill -9 the first grader that has work. The list names it then."""
    killed: list[int] = []

    def kill() -> None:
        deadline = time.monotonic() + 60
        while not killed and time.monotonic() < deadline:
            busy = [member for member in crew.members if member.task is not None]
            if busy:
                time.sleep(0.5)
                os.kill(busy[0].process.pid, signal.SIGKILL)
                killed.append(busy[0].process.pid)
            time.sleep(0.01)

    threading.Thread(target=kill, daemon=True).start()
    return killed


@pytest.mark.slow
def test_a_killed_run_of_real_submissions_goes_on_and_repeats_exactly(
    tmp_path, isolation, monkeypatch, capsys
):
    short_class(tmp_path)
    release(tmp_path, ASSIGNMENT)
    example.hand_in(tmp_path)
    for path in (tmp_path / "submitted").iterdir():
        if path.name not in STUDENTS:
            path.rename(tmp_path / path.name)
    notebook_path = submission(tmp_path, "ben", ASSIGNMENT)
    notebook = nbformat.read(notebook_path, 4)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(DRAWS))
    nbformat.write(notebook, notebook_path)

    # 0. Graders that do not work: everybody is named at the end, and nobody has a zero.
    monkeypatch.setattr(grading, "GRADERS", "autograde.classroom.marking:forgotten")
    with pytest.raises(typer.Exit) as left:
        cli.grade(folder=tmp_path, jobs=1, trust_submissions=isolation.trusted, **DEFAULTS)
    monkeypatch.undo()
    assert left.value.exit_code == 2
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("autograde:")]
    assert [Path(line.split(":")[1].strip()).parts[-3] for line in said] == STUDENTS
    assert all(
        "not graded because of an error in the grader itself (AttributeError" in line
        for line in said
    )
    assert students_in(tmp_path, ASSIGNMENT) == set()

    # 1. The command, killed as soon as the first grade is known.
    trust = ["--trust-submissions"] if isolation.trusted else []
    command = [sys.executable, "-m", "autograde.cli", "grade", "--dir", str(tmp_path), *trust]
    driver = subprocess.Popen([*command, "--jobs", "1"], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not graded(tmp_path) and driver.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    driver.kill()
    assert driver.wait() == -signal.SIGKILL
    before = graded(tmp_path)
    assert 0 < len(before) < len(STUDENTS)

    # 2. Again, and this time a grader is killed.
    crew = Crew(grading.GRADERS, 2)
    killed = kill_one_grader(crew)
    monkeypatch.setattr(grading, "_workers", lambda *_which: crew)
    outcomes = list(grading.grade(tmp_path, ASSIGNMENT, limits=LIMITS, trusted=isolation.trusted))
    monkeypatch.undo()
    assert killed and all(outcome.graded for outcome in outcomes)
    assert sorted(outcome.student for outcome in outcomes) == STUDENTS
    assert Counter(graded(tmp_path)) == dict.fromkeys(STUDENTS, 1)
    expected = {student: example.expected()[student] for student in STUDENTS}
    verdicts = read_verdicts(tmp_path, ASSIGNMENT)
    assert compare(read_rows(tmp_path, ASSIGNMENT), expected) == [], json.dumps(verdicts["ada"])
    with sqlite3.connect(tmp_path / "gradebook.db") as db:
        assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
        (submissions,) = db.execute("select count(*) from submitted_assignment").fetchone()
        (grades,) = db.execute("select count(*) from grade").fetchone()
        (cells,) = db.execute("select count(*) from grade_cells").fetchone()
    assert (submissions, grades) == (len(STUDENTS), len(STUDENTS) * cells)

    # 3. All of it again, by another number of processes in another order: the same to the letter.
    numbers = drawn(tmp_path, "ben")
    find = grading.find_submissions
    monkeypatch.setattr(grading, "find_submissions", lambda *which: find(*which)[::-1])
    again = {"force": True, "jobs": 1, "trusted": isolation.trusted}
    list(grading.grade(tmp_path, ASSIGNMENT, limits=LIMITS, **again))
    assert _without_time(read_verdicts(tmp_path, ASSIGNMENT)) == _without_time(verdicts)
    assert drawn(tmp_path, "ben") == numbers and len(numbers) == 1


def _without_time(verdicts: dict) -> str:
    return json.dumps([{**v, "seconds": 0} for v in verdicts.values()], sort_keys=True)
