"""What a person graded stays graded while what they looked at is the same, and only then.

Submissions are written as if graded, without running them; the oracle is stock nbgrader, which asks
again after every regrade.
"""

import copy
import json
import shutil
from contextlib import contextmanager
from pathlib import Path

import nbformat
import pytest

from autograde import class_dir
from autograde.class_dir import nbgrader_config
from autograde.classroom import gradebook
from autograde.classroom.assignment import read_assignment
from autograde.classroom.cells import grade_id, is_check, restore
from autograde.classroom.example import ASSIGNMENT
from autograde.classroom.release import ask_nbgrader, release
from autograde.classroom.settled import looked_at
from autograde.classroom.verdicts import verdict_path
from tests import short_class

WRITTEN = "who-counts-more"
CHECK = "clip-check"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("settled") / "class"
    class_dir.init(folder, [ASSIGNMENT])
    release(folder, ASSIGNMENT)
    return folder


def hand_in(folder: Path, student: str, **sources: str) -> None:
    notebook = nbformat.read(folder / "release" / ASSIGNMENT / f"{ASSIGNMENT}.ipynb", 4)
    for cell in notebook.cells:
        cell.source = sources.get((grade_id(cell) or "").replace("-", "_"), cell.source)
    short_class.hand_in(folder, student, ASSIGNMENT, notebook)


def write(folder: Path, student: str, *, points: float = 1.0, graded: bool = True) -> dict:
    """Write a grading of what lies in submitted/: each check gets as many points."""
    about = read_assignment(folder, ASSIGNMENT).to_json()
    path = short_class.submission(folder, student, ASSIGNMENT)
    cells = nbformat.read(path, 4).cells
    restore(cells, about["cells"])
    data = {"text/plain": str(points)}
    output = nbformat.v4.new_output("execute_result", data=data)
    shown = [
        {"source": cell.source, "outputs": [copy.deepcopy(output)] if is_check(cell) else []}
        for cell in cells
        if cell.cell_type == "code"
    ]
    result = {"graded": graded, "reason": "" if graded else "is not there", "notes": []}
    result |= {"cells": shown, "checks": [], "ended": "", "seconds": 0.0}
    job = {"folder": str(folder), "student": student, "path": str(path), "assignment": about}
    return gradebook.write({**job, "seed": 1, "result": result})


@contextmanager
def grade_of(folder: Path, student: str, cell: str = WRITTEN):
    with gradebook.open_gradebook(folder) as opened:
        yield opened.find_grade(cell, ASSIGNMENT, ASSIGNMENT, student)
        opened.db.commit()


def by_hand(folder: Path, student: str, score: float, cell: str = WRITTEN) -> None:
    with grade_of(folder, student, cell) as grade:
        grade.manual_score, grade.needs_manual_grade = score, False


def state(folder: Path, student: str, cell: str = WRITTEN) -> tuple[float, bool]:
    with grade_of(folder, student, cell) as grade:
        return grade.manual_score, grade.needs_manual_grade


def test_an_answer_whose_text_is_the_same_stays_settled(folder):
    hand_in(folder, "ada", who_counts_more="because")
    assert write(folder, "ada") == {"reason": ""}
    assert state(folder, "ada") == (None, True)
    by_hand(folder, "ada", 1.5)
    hand_in(folder, "ada", who_counts_more="because", clip="clip = None")
    write(folder, "ada", points=0.0)
    assert state(folder, "ada") == (1.5, False)


def test_stock_nbgrader_asks_again_and_ours_does_not_settle_what_it_asks(folder):
    hand_in(folder, "abe", who_counts_more="because")
    write(folder, "abe")
    by_hand(folder, "abe", 1.5)
    config = nbgrader_config(folder)
    config.Autograde.autograde_preprocessors = ["nbgrader.preprocessors.SaveAutoGrades"]
    ask_nbgrader(config, "autograde", ASSIGNMENT, "abe", force=True)
    assert state(folder, "abe") == (1.5, True)
    write(folder, "abe")
    assert state(folder, "abe") == (1.5, True)


def test_an_answer_with_another_text_waits_and_keeps_its_score(folder):
    hand_in(folder, "ben", who_counts_more="because")
    write(folder, "ben")
    by_hand(folder, "ben", 1.5)
    hand_in(folder, "ben", who_counts_more="because of its size")
    write(folder, "ben")
    assert state(folder, "ben") == (1.5, True)
    write(folder, "ben")  # nobody has looked in between
    assert state(folder, "ben") == (1.5, True)


def test_a_check_that_a_person_overrode_waits_when_its_code_or_its_points_change(folder):
    hand_in(folder, "cleo", clip="clip = 1")
    write(folder, "cleo")
    by_hand(folder, "cleo", 2.5, CHECK)
    write(folder, "cleo")
    assert state(folder, "cleo", CHECK) == (2.5, False)
    hand_in(folder, "cleo", clip="clip = 1", who_counts_more="more words")
    write(folder, "cleo")
    assert state(folder, "cleo", CHECK) == (2.5, False)
    write(folder, "cleo", points=0.5)
    assert state(folder, "cleo", CHECK) == (2.5, True)
    by_hand(folder, "cleo", 2.5, CHECK)
    hand_in(folder, "cleo", evaluate="evaluate = 2", clip="clip = 1")
    write(folder, "cleo", points=0.5)
    assert state(folder, "cleo", CHECK) == (2.5, True)


def test_a_write_that_was_killed_half_way_settles_nothing_that_nobody_has_seen(folder):
    """Killed after autograded/ was made anew, before the grades and the verdict were written."""
    hand_in(folder, "dan", who_counts_more="because")
    write(folder, "dan")
    by_hand(folder, "dan", 1.5)
    verdict = verdict_path(folder, ASSIGNMENT, "dan").read_text("utf-8")
    hand_in(folder, "dan", who_counts_more="something else")
    write(folder, "dan")
    verdict_path(folder, ASSIGNMENT, "dan").write_text(verdict, "utf-8")
    by_hand(folder, "dan", 1.5)
    write(folder, "dan")
    assert state(folder, "dan") == (1.5, True)


def test_a_file_that_cannot_be_graded_in_between_changes_nothing(folder):
    hand_in(folder, "eve", who_counts_more="because")
    write(folder, "eve")
    by_hand(folder, "eve", 1.5)
    assert "is not there" in write(folder, "eve", graded=False)["reason"]
    write(folder, "eve")
    assert state(folder, "eve") == (1.5, False)


def test_without_autograded_the_verdict_is_enough_and_without_a_verdict_somebody_looks(folder):
    hand_in(folder, "finn", who_counts_more="because")
    write(folder, "finn")
    by_hand(folder, "finn", 1.5)
    shutil.rmtree(folder / "autograded" / "finn")
    write(folder, "finn")
    assert state(folder, "finn") == (1.5, False)
    verdict_path(folder, ASSIGNMENT, "finn").write_text("[not json")
    write(folder, "finn")
    assert state(folder, "finn") == (1.5, True)


def test_a_picture_in_an_answer_is_part_of_it():
    marks = {"nbgrader": {"grade_id": "a", "grade": True, "solution": True}}
    cell = nbformat.v4.new_markdown_cell("see picture", metadata=marks)
    plain = looked_at([cell])
    cell["attachments"] = {"p.png": {"image/png": "aaaa"}}
    with_picture = looked_at([cell])
    on_disk = json.loads(json.dumps(cell)) | {"source": ["see ", "picture"]}
    assert plain != with_picture == looked_at([on_disk])
