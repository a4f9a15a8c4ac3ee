"""What a grade depends on: a changed reference makes a new version, a changed report does not."""

import ast
import json
import shutil

import pytest

from autograde.classroom import assignment, marking, notebook_text
from autograde.classroom.assignment import exercises_version, sources_from
from autograde.classroom.marking import mark
from autograde.classroom.submissions import SubmissionFault

EXERCISES = ("03a.accumulate", "03a.clip")


@pytest.fixture(scope="module")
def copies(tmp_path_factory):
    """The project's sources, to be changed."""
    folder = tmp_path_factory.mktemp("project")
    for name, place in assignment.OURS.items():
        shutil.copytree(place, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture
def copied(copies, monkeypatch):
    monkeypatch.setattr(assignment, "OURS", {name: copies / name for name in assignment.OURS})
    exercises_version.cache_clear()
    yield copies
    exercises_version.cache_clear()


@pytest.mark.parametrize(
    ("changed", "matters"),
    [
        ("autograde/bank/accumulate.py", True),
        ("course/engine/window.py", True),
        ("autograde/referee.py", True),
        ("autograde/compare.py", True),
        ("autograde/bank/evaluate.py", False),
        ("autograde/cli.py", False),
        ("autograde/classroom/report.py", False),
        ("course/debug/diagnose.py", False),
    ],
)
def test_a_version_changes_with_what_the_verdict_depends_on(copied, changed, matters):
    before = exercises_version(EXERCISES)
    exercises_version.cache_clear()
    with (copied / changed).open("a") as source:
        source.write("\n# mended\n")
    assert (exercises_version(EXERCISES) != before) == matters


def test_what_a_module_imports_is_found_by_its_text():
    source = (
        "from course.data import (\n    InMemoryLoader,  # in memory\n    load as read,\n)\n"
        "if True:\n    import course.engine, autograde.plain as plain  # ours\n"
        "    from autograde.bank import clip\n"
    )
    assert {
        *("course.data", "course.data.InMemoryLoader", "course.data.load"),
        *("course.engine", "autograde.plain", "autograde.bank", "autograde.bank.clip"),
    } <= assignment._imported(source)


def test_a_version_rests_on_the_sources_that_parsing_finds():
    """Prose that reads like an import may add a module; none may be missed."""
    for name, source in sources_from(["autograde.bank.accumulate", *assignment.JUDGES]).items():
        parsed = set()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import):
                parsed |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                parsed |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        assert parsed <= assignment._imported(source.decode()), name


def test_sources_are_those_of_this_project_only():
    sources = sources_from(["autograde.bank.accumulate"])
    assert "course.engine.window" in sources
    assert {name.partition(".")[0] for name in sources} == {"autograde", "course"}


def job(**changes: object) -> dict:
    plain = {
        "cells": [],
        "calls": {},
        "released": {},
        "exercises": exercises_version(()),
    }
    cell = {
        "cell_type": "markdown",
        "source": "",
        "id": "a",
        "metadata": {"nbgrader": {"grade_id": "essay", "grade": True, "solution": True}},
    }
    text = '{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [%s]}'

    return {
        "path": "submitted/ada/a/a.ipynb",
        "folder": "/nowhere",
        "text": text % json.dumps(cell),
        "assignment": {**plain, "cells": [cell]} | changes.pop("assignment", {}),
        "limits": {},
        "isolation": {"trusted": True, "hidden": []},
        "seed": 1,
        **changes,
    }


def test_a_machine_that_does_not_see_the_submission_is_the_graders_fault():
    result = mark(job())
    assert not result["graded"] and "cannot see /nowhere" in result["reason"]
    assert "because of an error in the grader itself" in result["reason"]


def test_a_machine_with_other_exercises_is_the_graders_fault(tmp_path):
    result = mark(job(folder=str(tmp_path), assignment={"exercises": "of another release"}))
    assert not result["graded"] and "install the same version" in result["reason"]


@pytest.mark.parametrize("worth", [1, 4])
def test_a_check_that_is_not_worth_what_it_gives_stops_with_a_line(worth):
    """nbgrader would refuse more points than the cell has, or show 3 of 4 for a right answer."""
    marks = {"grade_id": "clip-check", "points": worth}
    cell = {"cell_type": "code", "metadata": {"nbgrader": marks}}
    call = {"exercise_id": "03a.clip", "function": "clip", "parts": "shown"}
    about = {"cells": [cell], "calls": {"clip-check": call}}
    with pytest.raises(SubmissionFault, match=f"is worth {worth} in source/, .* gives 3"):
        marking._same_points({"path": "n.ipynb", "assignment": about})
    marks["points"] = 3
    marking._same_points({"path": "n.ipynb", "assignment": about})


def test_of_a_cell_that_stands_twice_the_note_says_which_one_is_judged():
    """Below its check the last one is defined too late; of written answers the last one counts."""
    marks = {"clip": False, "why": True}
    cells = [
        {"cell_type": "code", "source": "", "metadata": {"nbgrader": {"grade_id": i, "grade": g}}}
        for i, g in marks.items()
    ]
    notes = notebook_text._oddities([*cells, *cells], list(marks), [], {})
    assert notes == [
        "cell 'clip' occurs 2 times; a check judges the last one above it. Look at it.",
        "cell 'why' occurs 2 times; the last one counts. Look at it.",
    ]
