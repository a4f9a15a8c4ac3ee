"""A class, as an instructor runs it: the example class, bad submissions, and stock nbgrader."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from autograde import class_dir
from autograde.classroom import example, grading
from autograde.classroom.assignment import read_assignment
from autograde.classroom.example import ASSIGNMENT
from autograde.classroom.feedback import write_feedback
from autograde.classroom.grading import isolation_for, job_for
from autograde.classroom.marking import mark
from autograde.classroom.release import release
from autograde.classroom.report import read_rows
from autograde.classroom.submissions import find_submissions
from autograde.demo import compare
from autograde.sandbox.limits import Limits
from autograde.seeds import new_seed
from autograde.sources import source_paths
from tests.sampling import THOROUGH, only_thorough
from tests.short_class import hand_in, short_class, submission

NAMES = list(source_paths())
LIMITS = Limits(cell_s=20.0, answer_s=5.0)


def autograde(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "autograde.cli", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def new_class(folder: Path) -> Path:
    short_class(folder)
    release(folder, ASSIGNMENT)
    return folder


@pytest.fixture(scope="module")
def example_class(tmp_path_factory, isolation) -> Path:
    folder = new_class(tmp_path_factory.mktemp("example") / "class")
    example.hand_in(folder)
    list(grading.grade(folder, ASSIGNMENT, limits=LIMITS, trusted=isolation.trusted))
    write_feedback(folder, ASSIGNMENT)
    return folder


@pytest.mark.slow
def test_the_example_class_gets_what_it_must(example_class):
    assert compare(read_rows(example_class, ASSIGNMENT), example.expected()) == []


@pytest.mark.slow
def test_every_student_has_a_feedback_page_with_the_reason(example_class):
    def page(student):
        path = example_class / "feedback" / student / ASSIGNMENT / f"{ASSIGNMENT}.html"
        return " ".join(path.read_text("utf-8").split())

    assert "Dividing by K makes a short micro-batch count as much" in page("cleo")
    assert "clear" in page("dan") and "zero_grad() for each batch" in page("dan")
    assert "no answer within" in page("gus")
    assert "not graded" in page("hana") and "not valid JSON" in page("hana")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES if THOROUGH else NAMES[1::4])
def test_a_notebooks_own_solutions_earn_every_point_where_they_are_locked_away(
    name, tmp_path, isolation
):
    """Nothing that a right answer reaches is taken from it, and nothing runs out of time.

    `make thorough` grades whole notebooks, here of every fourth one the cells that
    its exercises need; `test_notebooks.py` runs the others through.
    """
    folder = tmp_path / "class"
    class_dir.init(folder, [name]) if THOROUGH else short_class(folder, name)
    notebook = nbformat.read(release(folder, name), as_version=4)
    example.answered(notebook, "ada", example.solutions(folder, name))
    hand_in(folder, "ada", name, notebook)
    (submitted,) = find_submissions(folder, name, None)
    about, locked = read_assignment(folder, name), isolation_for(folder, trusted=isolation.trusted)
    job = job_for(submitted, about.to_json(), Limits(), locked, new_seed())
    result = mark({**job, "text": submitted.path.read_text("utf-8")})
    assert result["graded"] and not result["ended"], result
    asked = {call["exercise_id"] for call in about.calls.values()}
    assert {check["exercise"] for check in result["checks"]} == asked
    lost = [check for check in result["checks"] if check["points"] < check["max_points"]]
    assert not lost, lost


@pytest.mark.slow
def test_right_numbers_of_another_name_are_noted_for_a_person(tmp_path, isolation):
    name = "01a-tensors-and-autograd"
    folder = short_class(tmp_path / "class", name)
    notebook = nbformat.read(release(folder, name), as_version=4)
    example.answered(notebook, "Eve", example.solutions(folder, name))
    hand_in(folder, "ada", name, notebook)
    (submitted,) = find_submissions(folder, name, None)
    about, locked = read_assignment(folder, name), isolation_for(folder, trusted=isolation.trusted)
    job = job_for(submitted, about.to_json(), Limits(), locked, new_seed())
    (note,) = mark({**job, "text": submitted.path.read_text("utf-8")})["notes"]
    assert "the numbers of 'Eve', the name typed at the top, but not for those of 'ada'" in note
    assert "01a.flat-shape" in note and "01a.tape" not in note


@pytest.mark.slow
def test_grading_again_with_the_same_submissions_gives_the_same_points(example_class, isolation):
    before = {row.student: row.scores for row in read_rows(example_class, ASSIGNMENT)}
    again = grading.grade(
        example_class,
        ASSIGNMENT,
        ["ben", "cleo"],
        LIMITS,
        jobs=1,
        force=True,
        trusted=isolation.trusted,
    )
    outcomes = list(again)
    assert [outcome.student for outcome in outcomes] == ["ben", "cleo"]
    assert {row.student: row.scores for row in read_rows(example_class, ASSIGNMENT)} == before


@pytest.mark.slow
def test_a_grade_given_by_hand_survives_a_regrade(example_class, isolation):
    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{example_class}/gradebook.db") as gradebook:
        grade = gradebook.find_grade("who-counts-more", ASSIGNMENT, ASSIGNMENT, "ben")
        assert grade.needs_manual_grade
        grade.manual_score, grade.needs_manual_grade = 1.5, False
        gradebook.db.commit()
    again = {"force": True, "trusted": isolation.trusted}
    list(grading.grade(example_class, ASSIGNMENT, ["ben"], LIMITS, **again))
    (row,) = [row for row in read_rows(example_class, ASSIGNMENT) if row.student == "ben"]
    assert row.scores["who-counts-more"] == 1.5 and row.total == 17.5


@pytest.mark.slow
def test_the_report_prints_a_table_and_json(example_class):
    printed = autograde("report", "--dir", example_class)
    assert printed.returncode == 0 and "divided-by-k" in printed.stdout
    rows = json.loads(autograde("report", "--dir", example_class, "--json").stdout)
    assert {row["student"] for row in rows} == set(example.expected())


@pytest.mark.slow
@only_thorough
def test_stock_nbgrader_works_in_a_class_directory_and_gives_the_same_points(
    example_class, tmp_path
):
    """Oracle: stock generate_assignment, autograde and generate_feedback, each its own command."""
    folder = short_class(tmp_path / "stock")
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
    }

    def nbgrader(*words):
        command = [sys.executable, "-m", "nbgrader", *words]
        result = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300
        )
        assert result.returncode == 0, result.stderr

    nbgrader("generate_assignment", ASSIGNMENT)
    for student in ("ben", "cleo"):
        target = submission(folder, student)
        target.parent.mkdir(parents=True)
        shutil.copy(submission(example_class, student), target)
    nbgrader("autograde", ASSIGNMENT)
    nbgrader("generate_feedback", ASSIGNMENT)

    from nbgrader.api import Gradebook

    def auto_scores(root):
        with Gradebook(f"sqlite:///{root}/gradebook.db") as gradebook:
            return {
                (student, grade.name): grade.auto_score
                for student in ("ben", "cleo")
                for notebook in gradebook.find_submission(ASSIGNMENT, student).notebooks
                for grade in notebook.grades
            }

    assert auto_scores(folder) == auto_scores(example_class)
    assert (folder / "feedback" / "ben" / ASSIGNMENT / f"{ASSIGNMENT}.html").exists()


def edit(path: Path, change) -> None:
    notebook = json.loads(path.read_text("utf-8"))
    change(notebook)
    path.write_text(json.dumps(notebook), "utf-8")


def cell(notebook: dict, grade_id: str) -> dict:
    (found,) = [
        c
        for c in notebook["cells"]
        if c["metadata"].get("nbgrader", {}).get("grade_id") == grade_id
    ]
    return found


def no_graded_cells(path):
    edit(path, lambda nb: [c["metadata"].clear() for c in nb["cells"]])


def duplicated_grade_id(path):
    def change(nb):
        copy = json.loads(json.dumps(cell(nb, "clip")))
        nb["cells"].append({**copy, "id": "another"})

    edit(path, change)


def duplicated_cell_id(path):
    edit(path, lambda nb: nb["cells"].append(json.loads(json.dumps(cell(nb, "clip-check")))))


def deleted_check(path):
    edit(path, lambda nb: nb["cells"].remove(cell(nb, "clip-check")))


def edited_check(path):
    edit(path, lambda nb: cell(nb, "clip-check").update(source="5 + 5"))


def inflated_points(path):
    def change(nb):
        cell(nb, "clip-check")["metadata"]["nbgrader"]["points"] = 300
        cell(nb, "clip-check")["outputs"] = [
            {"output_type": "execute_result", "data": {"text/plain": "300"}, "metadata": {},
             "execution_count": 1}
        ]  # fmt: skip

    edit(path, change)


def a_directory(path):
    path.unlink()
    path.mkdir()


BAD = {
    "cells": (no_graded_cells, "has none of the assignment's graded cells", None),
    "cut": (lambda path: path.write_text(path.read_text()[:500]), "is not valid JSON", None),
    "deleted": (deleted_check, "cell 'clip-check' was deleted; it was restored", 40),
    "dir": (a_directory, "is a directory, not a notebook", None),
    "edited": (edited_check, "check cell 'clip-check' was edited; the original was graded", 40),
    "empty": (lambda path: path.write_text(""), "is empty", None),
    "gone": (lambda path: path.unlink(), "does not exist", None),
    "list": (
        lambda path: path.write_text("[1, 2]"),
        "holds a list where a notebook is expected",
        None,
    ),
    "renamed": (lambda path: path.rename(path.with_name("my.ipynb")), "found my.ipynb", None),
    "twice": (duplicated_grade_id, "cell 'clip' occurs 2 times", 40),
    "twins": (duplicated_cell_id, "cell 'clip-check' occurs 2 times", 40),
}


@pytest.fixture(scope="module")
def bad_class(tmp_path_factory, isolation):
    """All right answers, handed in in every wrong way, and a well-behaved Zoe after them all."""
    folder = new_class(tmp_path_factory.mktemp("bad") / "class")
    example.hand_in(folder)
    right = submission(folder, "ada").read_text("utf-8")
    shutil.rmtree(folder / "submitted")
    for student in [*BAD, "points", "zoe"]:
        path = submission(folder, student)
        path.parent.mkdir(parents=True)
        path.write_text(right, "utf-8")
        if student in BAD:
            BAD[student][0](path)
    inflated_points(submission(folder, "points"))
    trust = ["--trust-submissions"] if isolation.trusted else []
    return folder, autograde("grade", "--dir", folder, *trust)


@pytest.mark.slow
@pytest.mark.parametrize("student", BAD)
def test_a_bad_submission_gets_one_line_that_names_the_file_and_what_to_do(bad_class, student):
    folder, result = bad_class
    _, message, points = BAD[student]
    lines = [line for line in result.stderr.splitlines() if f"/{student}/" in line]
    lines = [line for line in lines if "the numbers of 'ada'" not in line]  # who wrote all of them
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith(f"autograde: {folder}/submitted/{student}/") and message in lines[0]
    (row,) = [row for row in read_rows(folder, ASSIGNMENT) if row.student == student]
    assert (row.total if points else bool(row.not_graded)) == (points or True)


@pytest.mark.slow
def test_bad_submissions_stop_nobody_and_leave_exit_code_2(bad_class):
    folder, result = bad_class
    assert result.returncode == 2
    gradable = 2 + sum(points is not None for _, _, points in BAD.values())
    assert f"{gradable} of {len(BAD) + 2} submissions graded" in result.stdout
    totals = {row.student: row.total for row in read_rows(folder, ASSIGNMENT)}
    assert totals["zoe"] == 40 and totals["points"] == 40


@pytest.mark.parametrize(
    "words,message",
    [
        (["grade", "--dir", "nowhere"], "nowhere does not exist. Create it first: autograde init"),
        (["release", "--dir", "/"], "is not a class directory"),
        (["init", "/etc/passwd"], "is a file"),
        (["init", "x", "--assignment", "99z"], "'99z' is not an assignment of the course"),
        (["init", "/usr"], "holds other files"),
    ],
)
def test_the_users_fault_is_one_line_and_exit_code_2(words, message):
    result = autograde(*words)
    assert result.returncode == 2
    assert message in result.stderr and result.stderr.count("\n") == 1


def test_a_class_directory_without_submissions_or_grades_says_what_is_next(tmp_path):
    folder = tmp_path / "class"
    class_dir.init(folder, [ASSIGNMENT])
    for words, message in [
        (["grade"], "holds no submission"),
        (["report"], "First: autograde grade"),
        (["feedback"], "First: autograde grade"),
        (["release", "04-nothing"], "has no assignment '04-nothing'"),
    ]:
        result = autograde(*words, "--dir", folder)
        assert result.returncode == 2 and message in result.stderr, result.stderr


def test_the_assignment_need_not_be_named_while_only_one_was_handed_in(tmp_path):
    folder = tmp_path / "class"
    class_dir.init(folder)
    for name in class_dir.assignments(folder)[:2]:
        (folder / "submitted" / "ada" / name).mkdir(parents=True)
        only_one = name == class_dir.assignments(folder)[0]
        if only_one:
            assert class_dir.check_assignment(folder, None) == name
    with pytest.raises(class_dir.ClassDirError, match="Name the assignment"):
        class_dir.check_assignment(folder, None)


def test_init_twice_keeps_the_instructors_config(tmp_path):
    folder = tmp_path / "class"
    class_dir.init(folder, [ASSIGNMENT])
    (folder / "nbgrader_config.py").write_text("c = get_config()\nc.mine = 1\n")
    class_dir.init(folder, [ASSIGNMENT])
    assert "mine" in (folder / "nbgrader_config.py").read_text()


def test_help_is_helpful():
    for command in ("init", "release", "grade", "feedback", "report"):
        result = autograde(command, "--help")
        assert result.returncode == 0 and "--help" in result.stdout
    assert "submissions" in autograde("grade", "--help").stdout


def test_notebooks_of_the_class_are_plain_nbgrader_sources(tmp_path):
    class_dir.init(tmp_path / "class")
    path = tmp_path / "class" / "source" / ASSIGNMENT / f"{ASSIGNMENT}.ipynb"
    nbformat.validate(nbformat.read(path, as_version=4))
