"""Who is on the class list, who is not, and who is gone; oracle: nbgrader's own gradebook."""

import io
import json
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from autograde.classroom.export import read_marks
from autograde.classroom.feedback import write_feedback
from autograde.classroom.gradebook import open_gradebook
from autograde.classroom.lookups import off_roster
from autograde.classroom.page import class_page
from autograde.classroom.report import as_table, read_rows
from tests.autograde.paper_class import ASSIGNMENT, Paper, make
from tests.short_class import submission

WRONG_NAME = "is not there (found my notebook.ipynb: rename it)."


@pytest.fixture
def folder(tmp_path) -> Path:
    path = submission(tmp_path / "class", "hana", ASSIGNMENT)
    papers = {
        "ada": Paper(names={"first_name": "Ada"}),
        "ben": Paper(names={"lms_user_id": "17"}),
        "bne": Paper(),
        "hana": Paper(not_graded=f"{path}: {WRONG_NAME}"),
    }
    return make(tmp_path / "class", papers)


def remove(folder: Path, student: str) -> None:
    with open_gradebook(folder) as gradebook:
        gradebook.remove_student(student)


def test_who_is_not_on_the_class_list_is_named_in_the_run_and_in_the_report(folder):
    assert off_roster(folder, ["bne", "ada", "ben"]) == ["bne"]
    rows = {row.student: row.off_roster for row in read_rows(folder, ASSIGNMENT)}
    assert rows == {"ada": False, "ben": False, "bne": True, "hana": True}
    assert "not on the class list" in class_page(folder, ASSIGNMENT)


def test_without_a_class_list_nobody_is_off_it(tmp_path):
    folder = make(tmp_path / "class", {"ada": Paper(), "ben": Paper()})
    assert off_roster(folder, ["ada", "ben", "new"]) == []
    assert not any(row.off_roster for row in read_rows(folder, ASSIGNMENT))
    assert "not on the class list" not in class_page(folder, ASSIGNMENT)


def test_a_renamed_folder_leaves_nobody_behind(folder):
    shutil.rmtree(folder / "submitted" / "bne")
    assert "bne" in {row.student for row in read_rows(folder, ASSIGNMENT)}, "it has a grade"
    remove(folder, "bne")
    shutil.rmtree(folder / "submitted" / "hana")  # was not graded
    assert [row.student for row in read_rows(folder, ASSIGNMENT)] == ["ada", "ben"]
    assert [mark.student for mark in read_marks(folder, ASSIGNMENT).students] == ["ada", "ben"]
    pages = write_feedback(folder, ASSIGNMENT)
    assert {page.parents[1].name for page in pages} == {"ada", "ben"}


def test_the_table_gives_the_whole_reason_also_where_it_names_a_notebook(folder):
    console = Console(file=io.StringIO(), width=200)
    console.print(as_table(read_rows(folder, ASSIGNMENT)))
    assert WRONG_NAME in console.file.getvalue()


def test_what_the_report_says_about_a_row_is_plain_data(folder):
    text = json.dumps([row.to_json() for row in read_rows(folder, ASSIGNMENT)])
    assert [row["off_roster"] for row in json.loads(text)] == [False, False, True, True]
