"""What a run of few submissions does not do before the first cell runs: held without timing it."""

import subprocess
import sys
from types import SimpleNamespace

import nbformat
import pytest

from autograde import bank
from autograde.by_hand import refusal
from autograde.class_dir import ClassDirError
from autograde.classroom import cells, example, grading, lookups
from autograde.classroom.cells import read_cells
from autograde.classroom.crew import once
from autograde.classroom.release import release
from autograde.sandbox import parent, stubs
from autograde.sandbox.session import StudentSession
from course.catalogue import read_catalogue
from tests.autograde.paper_class import ASSIGNMENT, Paper, make
from tests.short_class import short_class

NEVER = ("sklearn", "torch._inductor", "sympy", "jupytext", "nbgrader", "sqlalchemy")
"""Loaded by nobody but the writer of the gradebook, or by who asks for it."""
ELSEWHERE = ("torch", "numpy", "nbformat", "jsonschema", "IPython", "matplotlib", *NEVER)
"""What the command leaves to other processes: it reads JSON and SQL, and hands out work."""
LOADED = "import sys; print([name for name in {names} if name in sys.modules])"
COMMAND = f"""
import sys
from autograde.cli import app
try:
    app()
finally:
    {LOADED.format(names=ELSEWHERE)}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A released class in which two have handed in."""
    folder = short_class(tmp_path_factory.mktemp("start-up") / "class")
    release(folder, example.ASSIGNMENT)
    example.hand_in(folder)
    for path in (folder / "submitted").iterdir():
        if path.name not in ("ada", "ben"):
            path.rename(folder / path.name)
    return folder.resolve()


def grade(folder, isolation) -> list[str]:
    trust = ["--trust-submissions"] * isolation.trusted
    command = [sys.executable, "-c", COMMAND, "grade", "--dir", folder, "--jobs", "1", *trust]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_a_command_that_grades_and_one_that_need_not_load_little_themselves(folder, isolation):
    for said in ("2 of 2 submissions graded.", "2 of 2 submissions graded, 2 of them before"):
        lines = grade(folder, isolation)
        assert lines[-1] == "[]" and any(line.startswith(said) for line in lines), lines


def test_where_nothing_is_to_do_no_process_is_started(monkeypatch, tmp_path):
    folder = make(tmp_path / "class", {"ada": Paper(), "ben": Paper()})
    done = SimpleNamespace(last={"notes": ["odd"]})
    monkeypatch.setattr(grading, "check_release", lambda *_about: None)
    monkeypatch.setattr(
        grading, "read_assignment", lambda *_about: SimpleNamespace(name=ASSIGNMENT)
    )
    monkeypatch.setattr(grading, "read_known", lambda _path: dict.fromkeys(["ada", "ben"], done))
    monkeypatch.setattr(grading, "is_done", lambda *_about, **_how: True)
    started = []
    monkeypatch.setattr(parent, "start", started.append)
    outcomes = list(grading.grade(folder, ASSIGNMENT))
    assert started == [] and not (folder / "journal" / f"{ASSIGNMENT}.pending").exists()
    assert [(one.student, one.unchanged, one.notes) for one in outcomes] == [
        ("ada", True, ["odd"]),
        ("ben", True, ["odd"]),
    ]
    monkeypatch.setattr(grading, "is_done", lambda *about, **_k: about[3].student == "ada")
    grading.grade(folder, ASSIGNMENT)
    assert started == [1]  # one of two: a light parent, whatever was handed in before


def test_the_writer_starts_when_the_first_submissions_have_been_handed_out():
    happened = []

    class Noting:
        pending = 0

        def __init__(self, name):
            self.name = name

        has_room = True

        def give(self, job):
            happened.append(f"{self.name} gets {job}")
            self.pending = 1

        def prepare(self):
            happened.append(f"{self.name} prepares")

        def handles(self):
            return []

        def collect(self):
            self.pending = 0
            return iter(())

    for jobs in ([1, 2], []):
        list(grading.rounds(iter(jobs), Noting("grader"), Noting("writer")))
    assert happened == ["grader gets 1", "grader gets 2", "writer prepares"]


def test_a_student_process_of_a_light_parent_holds_little():
    with StudentSession() as session:
        (said,) = session.run(
            f"{LOADED.format(names=NEVER)}\n"
            "import gc; print(gc.isenabled(), gc.get_freeze_count() > 10**5)"
        )
    assert said["text"] == "[]\nTrue True\n"


def test_what_is_not_wanted_is_not_compiled(monkeypatch):
    """Of loops to fix the bank defines some hundred variants; a parent of students needs none."""
    from autograde.kinds import fix

    text = "\ndef fit(model):\n    return model\n"
    wanted = fix.variant(text, "here.py", ("model)", "other)"), ("return model", "return other"))
    monkeypatch.setattr(fix, "answers_wanted", False)
    refusal("other", "other")  # what all refusals are made of is compiled once
    monkeypatch.setattr("builtins.compile", None)
    refused = fix.variant(text, "here.py", ("model)", "other)"))
    assert wanted(3) == 3 and refused.__name__ == wanted.__name__ == "fit"
    assert refused.__code__.co_filename == wanted.__code__.co_filename == "here.py"
    assert not hasattr(refused, "__source__")
    with pytest.raises(stubs.NotAllowedError, match="fit does what this exercise asks"):
        refused(3)


@pytest.mark.parametrize("through_nbgrader", [False, True])
def test_a_gradebook_answers_the_same_with_and_without_nbgrader(
    folder, tmp_path, monkeypatch, through_nbgrader
):
    paper = make(
        tmp_path / "class",
        {"ada": Paper(names={"email": "ada@school"}), "zoë": Paper(), "none": Paper(attempts=0)},
    )
    if through_nbgrader:
        monkeypatch.setattr(lookups, "_sqlite_file", lambda _folder: None)
    else:
        monkeypatch.setitem(sys.modules, "autograde.classroom.gradebook", None)
    assert lookups.students_in(paper, ASSIGNMENT) == {"ada", "zoë", "none"}
    assert lookups.students_in(paper, "another' or 1 = 1") == set()
    assert lookups.off_roster(paper, ["new", "ada", "also new"]) == ["also new", "new"]
    assert lookups.off_roster(folder, ["new"]) == []  # there is no list
    about = grading.read_assignment(folder, example.ASSIGNMENT)
    assert lookups.changed_since_release(folder, about.name, about.cells) == []
    assert lookups.changed_since_release(folder, "another", about.cells) is None
    other = [{**cell, "source": "else"} for cell in about.cells]
    checks = [c["metadata"]["nbgrader"]["grade_id"] for c in about.cells if cells.is_check(c)]
    assert {*checks} <= {*lookups.changed_since_release(folder, about.name, other)}


def test_a_look_at_a_gradebook_that_is_not_there_leaves_it_to_nbgrader(tmp_path):
    folder = make(tmp_path / "class", {"ada": Paper()})
    (folder / "gradebook.db").unlink()
    assert lookups.students_in(folder, ASSIGNMENT) == set()
    assert (folder / "gradebook.db").stat().st_size > 0
    with (folder / "nbgrader_config.py").open("a") as config:
        config.write("c.CourseDirectory.db_url = 'sqlite:////proc/none/x.db'\n")
    with pytest.raises(ClassDirError, match=r"x\.db cannot be used"):
        lookups.students_in(folder, ASSIGNMENT)


def test_notebooks_of_the_class_are_read_as_nbformat_reads_them(folder, tmp_path, monkeypatch):
    paths = [path for part in ("source", "release") for path in (folder / part).glob("*/*.ipynb")]
    read = {path: nbformat.read(path, as_version=4).cells for path in paths}
    in_lines = tmp_path / "lines.ipynb"
    in_lines.write_text(nbformat.writes(nbformat.read(paths[0], as_version=4)), "utf-8")
    assert '"source": [' in in_lines.read_text("utf-8") and len(paths) == 2
    read[in_lines] = read[paths[0]]
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "nbformat", None)
        for path, wanted in read.items():
            assert read_cells(path) == wanted
    old = tmp_path / "old.ipynb"
    old.write_text(nbformat.v3.writes_json(nbformat.v3.new_notebook(worksheets=[
        nbformat.v3.new_worksheet(cells=[nbformat.v3.new_code_cell("1 + 1")])])))  # fmt: skip
    assert [cell["source"] for cell in read_cells(old)] == ["1 + 1"]
    old.write_text('{"nbformat": 4, "nbformat_minor": 5, "cells"')
    with pytest.raises(nbformat.reader.NotJSONError):
        read_cells(old)


def test_a_grader_finds_the_catalogue_that_the_parent_has_made():
    assert once(f"{__name__}:tells", {}) == {"read": 0, "exercises": len(bank.catalogue())}


def tells(_job):
    """In a process that grades: how many catalogues it read to know its exercises."""
    before = read_catalogue.cache_info().misses
    found = bank.catalogue()
    return {"read": read_catalogue.cache_info().misses - before, "exercises": len(found)}
