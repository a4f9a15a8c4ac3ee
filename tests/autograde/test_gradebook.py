"""A gradebook that cannot be used: one line that names it, without its password."""

import shutil
import sqlite3

import pytest
from jsonschema import ValidationError
from nbformat import from_dict
from tornado.log import app_log
from traitlets.config import Config

from autograde.class_dir import ClassDirError
from autograde.classroom.export import read_marks
from autograde.classroom.gradebook import check_schemas_once, open_gradebook, shown_url
from autograde.classroom.lookups import students_in
from autograde.classroom.release import NbgraderFault, ask_nbgrader
from autograde.classroom.verdicts import own_fault
from tests.autograde.paper_class import ASSIGNMENT, Paper, make


@pytest.fixture
def folder(tmp_path):
    return make(tmp_path / "class", {"ada": Paper()})


def test_a_file_that_is_no_gradebook_is_named(folder):
    (folder / "gradebook.db").write_bytes(b"not a database" * 500)
    for ask in (students_in, read_marks):
        with pytest.raises(ClassDirError, match=r"gradebook\.db cannot be used \(file is not a"):
            ask(folder, ASSIGNMENT)


def test_a_gradebook_cut_off_is_named(folder):
    path = folder / "gradebook.db"
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(ClassDirError, match=r"gradebook\.db cannot be used \(database disk image"):
        students_in(folder, ASSIGNMENT)


def test_a_gradebook_that_another_program_holds_is_named(folder, monkeypatch):
    from autograde.classroom import gradebook

    monkeypatch.setattr(gradebook, "LOCK_WAIT_S", 0.1)
    shutil.copy(folder / "gradebook.db", folder / "held.db")  # another name: engines are kept
    with (folder / "nbgrader_config.py").open("a") as config:
        config.write(f"c.CourseDirectory.db_url = 'sqlite:///{folder}/held.db'\n")
    holder = sqlite3.connect(folder / "held.db")
    holder.execute("begin exclusive")
    with pytest.raises(ClassDirError, match=r"held\.db cannot be used \(database is locked\)"):
        students_in(folder, ASSIGNMENT)
    holder.close()
    assert students_in(folder, ASSIGNMENT) == {"ada"}


def test_a_fault_of_the_caller_stays_its_own(folder):
    with pytest.raises(KeyError), open_gradebook(folder):
        raise KeyError("mine")


FULL_LOG = """\
[ERROR] There was an error processing assignment: 03a
[ERROR] Traceback (most recent call last):
nbgrader.api.MissingEntry: No such submission: 03a for ada

During handling of the above exception, another exception occurred:

sqlite3.OperationalError: database or disk is full
"""


def test_a_full_disk_is_said_as_one_and_not_with_an_sql_statement(monkeypatch, caplog):
    class Full:
        def __init__(self, config):
            pass

        def autograde(self, *_args):
            try:
                raise RuntimeError("[SQL: INSERT INTO grade] [parameters: ('secret',)]")
            except RuntimeError as fault:
                app_log.exception("Rolling back session due to database error %s", fault)
            return {"success": False, "log": FULL_LOG}

    monkeypatch.setattr("nbgrader.apps.api.NbGraderAPI", Full)
    with pytest.raises(NbgraderFault) as fault:
        ask_nbgrader(Config(), "autograde", "03a", "ada")
    assert own_fault("ada.ipynb", str(fault.value)) == (
        "ada.ipynb: not graded because the disk is full (sqlite3.OperationalError: database or "
        "disk is full). Make room, then grade again."
    )
    assert caplog.text == ""


def test_a_password_is_not_shown():
    shown = shown_url("postgresql://teacher:secret@db.example/grades")
    assert "secret" not in shown and "db.example/grades" in shown


def test_a_cell_of_another_shape_is_still_refused_where_schemas_are_checked_once():
    from nbgrader.nbgraderformat.v3 import MetadataValidatorV3

    right = {"schema_version": 3, "grade_id": "a", "locked": True, "grade": False}
    right |= {"solution": False, "task": False}
    wrong = {**right, "locked": "no"}
    nodes = [
        from_dict({"cell_type": "code", "source": "", "metadata": {"nbgrader": marks}})
        for marks in (right, wrong)
    ]
    faults = []
    for prepare in (lambda: None, check_schemas_once):
        prepare()
        MetadataValidatorV3().validate_cell(nodes[0])
        with pytest.raises(ValidationError) as fault:
            MetadataValidatorV3().validate_cell(nodes[1])
        faults.append(str(fault.value))
    assert faults[0] == faults[1] and "'no' is not of type 'boolean'" in faults[0]
