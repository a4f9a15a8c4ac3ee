"""Exported marks, read back with the csv module and compared with nbgrader's own export."""

import csv
import errno
import io
import os

import pytest
from nbgrader.api import Gradebook

from autograde.classroom.export import (
    FORMULA,
    as_csv,
    is_final,
    open_questions,
    read_marks,
    write_marks,
)
from tests.autograde.paper_class import ASSIGNMENT, Paper, make

PAPERS = {
    "ada": Paper(names={"first_name": "Ada", "last_name": "Lovelace", "email": "ada@x.org"}),
    "ben": Paper(clip=1.5, extra=1.0, names={"lms_user_id": "4711", "first_name": "Ben"}),
    "cleo": Paper(accumulate=3, penalty=2.25),
    "dan": Paper(clip=0, accumulate=1, why=0, penalty=5),
    "eve": Paper(why=None, names={"first_name": '=HYPERLINK("http://x")', "last_name": "-1+1"}),
    "=finn": Paper(names={"email": "@SUM(A1)", "last_name": "\tTab", "first_name": 'A, "B"\n+C'}),
    "gus": Paper(extra=3.0),
    "hana": Paper(not_graded="submitted/hana/x.ipynb: is not valid JSON."),
}


@pytest.fixture(scope="module")
def paper_class(tmp_path_factory):
    folder = make(tmp_path_factory.mktemp("export") / "class", PAPERS)
    with Gradebook(f"sqlite:///{folder}/gradebook.db") as gradebook:
        gradebook.add_student("zoe", first_name="Zoe")  # enrolled, and handed in nothing
    return folder


@pytest.fixture(scope="module")
def by_nbgrader(paper_class):
    """Oracle: the columns of `nbgrader export`, from nbgrader's own SQL."""
    scores = {}
    with Gradebook(f"sqlite:///{paper_class}/gradebook.db") as gradebook:
        for submission in gradebook.assignment_submissions(ASSIGNMENT):
            penalty = submission.late_submission_penalty
            scores[submission.student.id] = max(0.0, submission.score - penalty)
    return scores


def exported(folder, to):
    text = as_csv(read_marks(folder, ASSIGNMENT), to)
    return list(csv.reader(io.StringIO(text, newline="")))


def plain(field):
    return field.removeprefix("'")


def test_canvas_gets_its_header_its_points_possible_and_the_gradebooks_points(
    paper_class, by_nbgrader
):
    head, possible, *rows = exported(paper_class, "canvas")
    assert head == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", ASSIGNMENT]
    assert possible[0].strip() == "Points Possible" and float(possible[-1]) == 10
    assert {len(row) for row in (head, possible, *rows)} == {6}
    given = {plain(row[3]): float(row[5]) for row in rows if row[5]}
    assert given == by_nbgrader
    assert [row[1] for row in rows if row[3] == "ben"] == ["4711"]
    assert ("Lovelace, Ada", "ada") in [(row[0], row[3]) for row in rows]


def test_moodle_gets_every_field_it_can_map_a_user_by(paper_class, by_nbgrader):
    head, *rows = exported(paper_class, "moodle")
    assert head[:5] == ["First name", "Last name", "Username", "ID number", "Email address"]
    assert {plain(row[2]): float(row[5]) for row in rows if row[5]} == by_nbgrader
    assert ["Ada", "Lovelace", "ada", "", "ada@x.org", "10"] in rows


def test_the_plain_table_adds_up(paper_class, by_nbgrader):
    head, *lines = exported(paper_class, "csv")
    rows = {plain(line[1]): dict(zip(head, line, strict=True)) for line in lines}
    for student, score in by_nbgrader.items():
        row = rows[student]
        cells = sum(float(row[name]) for name in ("clip-check", "accumulate-check", "why"))
        assert float(row["raw_score"]) == cells
        assert float(row["score"]) == max(0, cells - float(row["late_penalty"])) == score


def test_extra_credit_is_in_and_the_penalty_is_off(paper_class):
    scores = {mark.student: mark.score for mark in read_marks(paper_class, ASSIGNMENT).students}
    assert scores["gus"] == 13.0  # 4 + 3 extra, 4, 2
    assert scores["ben"] == 8.5
    assert scores["cleo"] == 6.75
    assert scores["dan"] == 0.0  # never below


def test_no_grade_is_an_empty_field_and_never_a_zero(paper_class):
    rows = exported(paper_class, "csv")
    for name in ("hana", "zoe"):
        (row,) = [row for row in rows if name in row]
        assert dict(zip(rows[0], row, strict=True))["score"] == ""


@pytest.mark.parametrize("to", ["canvas", "moodle"])
def test_who_has_no_grade_is_left_out_as_an_empty_field_would_clear_a_mark(paper_class, to):
    fields = [field for row in exported(paper_class, to) for field in row]
    assert not {"hana", "zoe"} & set(fields) and {"ada", "dan"} < set(fields)
    assert all(row[5] for row in exported(paper_class, to)), "no mark is cleared"


def test_a_canvas_number_is_its_id_and_other_ids_are_the_schools(tmp_path):
    about = {"num": {"lms_user_id": "4711"}, "sis": {"lms_user_id": "S-12"}}
    folder = make(tmp_path / "class", {id: Paper(names=names) for id, names in about.items()})
    rows = {row[3]: row[1:3] for row in exported(folder, "canvas")}
    assert rows["num"] == ["4711", ""] and rows["sis"] == ["", "S-12"]


@pytest.mark.parametrize("to", ["canvas", "moodle", "csv"])
def test_a_file_reads_back_as_it_was_meant(tmp_path, to):
    """Quotes, commas, semicolons, lines, writing systems; UTF-8 without a byte order mark."""
    names = {"first_name": '李 "Bob"; Ørsted, Jr', "last_name": "O'Neil\nن"}
    folder = make(tmp_path / "class", {"zoë": Paper(names=names, clip=1.25)})
    raw = write_marks(folder, ASSIGNMENT, to).read_bytes()
    assert not raw.startswith(b"\xef\xbb\xbf") and b"\r\n" in raw
    rows = list(csv.reader(io.StringIO(raw.decode("utf-8"), newline="")))
    assert len({len(row) for row in rows}) == 1
    last = rows[-1]
    both = ", ".join((names["last_name"], names["first_name"]))
    assert (both in last) if to == "canvas" else set(names.values()) < set(last)
    assert "zoë" in last and "7.25" in last


@pytest.mark.parametrize("to", ["canvas", "moodle", "csv"])
def test_no_field_is_a_formula(paper_class, to):
    for row in exported(paper_class, to):
        for field in row:
            if not _is_number(field):
                assert not field.lstrip(" ").startswith(FORMULA), field


def _is_number(field):
    try:
        return float(field) is not None
    except ValueError:
        return False


def test_open_questions_name_who_has_no_grade(paper_class):
    marks = read_marks(paper_class, ASSIGNMENT)
    lines = open_questions(marks)
    assert lines == [
        "1 answer waits for a person, so these points may still change: use formgrader, then "
        "export again",
        "not graded, left empty: hana",
        "nothing handed in, left empty: zoe",
        "not on the class list: cleo, dan, gus",
    ]
    assert not is_final(marks)
    lines = open_questions(marks, "moodle")
    assert lines[1] == "not graded, left out, so that Moodle keeps what it has: hana"
    assert "refuses a file" in lines[-1]


def test_a_file_is_written_where_it_is_wanted_and_other_forms_are_refused(paper_class, tmp_path):
    assert write_marks(paper_class, ASSIGNMENT, "moodle").parent == paper_class / "export"
    path = write_marks(paper_class, ASSIGNMENT, "canvas", tmp_path / "here" / "x.csv")
    assert path.read_bytes().startswith(b"Student,ID,")
    with pytest.raises(ValueError, match="--to blackboard: marks can be exported to canvas, moodl"):
        write_marks(paper_class, ASSIGNMENT, "blackboard")
    with pytest.raises(ValueError, match="cannot be written"):
        write_marks(paper_class, ASSIGNMENT, "csv", tmp_path)


def test_a_full_disk_leaves_the_marks_that_were_there(paper_class, tmp_path, monkeypatch):
    path = write_marks(paper_class, ASSIGNMENT, "csv", tmp_path / "x.csv")
    before = path.read_bytes()

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ValueError, match=r"x\.csv cannot be written \(No space left"):
        write_marks(paper_class, ASSIGNMENT, "canvas", path)
    assert [p.name for p in tmp_path.glob("*.csv")] == ["x.csv"] and path.read_bytes() == before


def test_a_class_without_marks_says_what_is_next(tmp_path):
    folder = make(tmp_path / "class", {})
    with pytest.raises(FileNotFoundError, match="First: autograde grade"):
        read_marks(folder, ASSIGNMENT)
    with pytest.raises(FileNotFoundError, match="no marks for other"):
        read_marks(folder, "other")
