"""Exported marks, read back with the csv module and compared with nbgrader's own export."""

import csv
import errno
import io
import os
import re
from datetime import timedelta

import pytest
from nbgrader.api import Gradebook

from autograde.classroom.export import (
    FORMULA,
    as_csv,
    doubtful_times,
    is_final,
    nothing_handed_in,
    open_questions,
    read_marks,
    stale_penalties,
    write_marks,
)
from tests.autograde.paper_class import ASSIGNMENT, DUE, Paper, make

PAPERS = {
    "ada": Paper(names={"first_name": "Ada", "last_name": "Lovelace", "email": "ada@x.org"}),
    "ben": Paper(clip=1.5, extra=1.0, names={"lms_user_id": "4711", "first_name": "Ben"}),
    "cleo": Paper(accumulate=3, penalty=2.25),
    "dan": Paper(clip=0, accumulate=1, why=0, penalty=5),
    "eve": Paper(why=None, names={"first_name": '=HYPERLINK("http://x")', "last_name": "-1+1"}),
    "=finn": Paper(names={"email": "@SUM(A1)", "last_name": "\tTab", "first_name": 'A, "B"\n+C'}),
    "x;=1+1": Paper(names={"last_name": 'a|@b\t=c";-d', "first_name": "a-b; c=d, e@f"}),
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
    return field.removeprefix("'").replace(";'=", ";=")


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
                parts = re.split('[;,|\t\r\n"]', field)
                assert not any(part.lstrip(" ").startswith(FORMULA) for part in parts), field
    assert any("a-b; c=d, e@f" in field for row in exported(paper_class, to) for field in row)


def _is_number(field):
    try:
        return float(field) is not None
    except ValueError:
        return False


def test_open_questions_name_who_has_no_grade(paper_class):
    marks = read_marks(paper_class, ASSIGNMENT)
    lines = open_questions(marks)
    assert lines == [
        "1 answer waits to be graded by hand, so these points may still change: use formgrader, "
        "then export again",
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


def test_who_handed_in_nothing_is_on_the_class_list_only(paper_class):
    assert nothing_handed_in(paper_class, ASSIGNMENT) == ["zoe"]


@pytest.mark.parametrize(("text", "read"), [
    ("05.03.2026 12:00", "2026-05-03"),
    ("1/3/2026", "2026-01-03"),
    ("on 03-01-26 at 10:00", "2026-03-01"),
    ("2026-03-05 12:00:00 UTC", ""),
    ("2026-03-05T09:00:00+01:00", ""),
    ("13.03.2026 12:00", ""),
    ("03.03.2026 12:00", ""),
    ("5 March 2026 10:11:12", ""),
    ("yesterday, 1/3/x", ""),
    ("", ""),
])  # fmt: skip
def test_a_time_that_may_mean_another_day_is_named_with_what_was_read(tmp_path, text, read):
    from nbgrader.utils import parse_utc

    folder = make(tmp_path / "class", {"ada": Paper()})
    (folder / "submitted" / "ada" / ASSIGNMENT / "timestamp.txt").write_text(text)
    found = doubtful_times(folder, ASSIGNMENT)
    assert set(found) == ({"ada"} if read else set())
    if read:
        assert f"read as {read}" in found["ada"] and f"{parse_utc(text):%Y-%m-%d}" == read
        year, month, day = read.split("-")
        assert f"If the day comes first, write {year}-{day}-{month} " in found["ada"]
        assert f"{parse_utc(text)} UTC; then grade again" in found["ada"]


def test_what_is_no_small_file_is_not_read_for_its_time(tmp_path):
    folder = make(tmp_path / "class", {name: Paper() for name in ("ada", "ben", "cleo")})
    ada, ben, cleo = (
        folder / "submitted" / name / ASSIGNMENT / "timestamp.txt"
        for name in ("ada", "ben", "cleo")
    )
    os.mkfifo(ada)  # whose reader would wait for ever
    ben.symlink_to("/dev/zero")
    cleo.write_text("05.03.2026 12:00" + " " * 1000)
    assert doubtful_times(folder, ASSIGNMENT) == {}


SHARE = """
from nbgrader.plugins import BasePlugin

class TenPercent(BasePlugin):
    def late_submission_penalty(self, student_id, score, total_seconds_late):
        return 0.1 * score

c.AssignLatePenalties.plugin_class = TenPercent
"""


@pytest.fixture
def late_class(tmp_path):
    """ada was late and lost a tenth of her points so far; ben came in time."""
    folder = make(tmp_path / "class", {"ada": Paper(why=None, penalty=0.8), "ben": Paper()})
    with (folder / "nbgrader_config.py").open("a") as config:
        config.write(SHARE)
    change(folder, "ada", lambda notebook: setattr(notebook.assignment, "timestamp", after(1)))
    change(folder, "ben", lambda notebook: setattr(notebook.assignment, "timestamp", after(-1)))
    return folder


def after(days):
    return DUE + timedelta(days=days)


def change(folder, student, what):
    with Gradebook(f"sqlite:///{folder}/gradebook.db") as gradebook:
        what(gradebook.find_submission_notebook(ASSIGNMENT, ASSIGNMENT, student))
        gradebook.db.commit()


def grade_by_hand(notebook):
    (why,) = [grade for grade in notebook.grades if grade.name == "why"]
    why.manual_score, why.needs_manual_grade = 2.0, False


def test_a_penalty_that_a_grade_by_hand_has_left_behind_is_named(late_class):
    late = {mark.student: mark.late_s for mark in read_marks(late_class, ASSIGNMENT).students}
    assert late == {"ada": 86400, "ben": 0}
    assert stale_penalties(late_class, ASSIGNMENT) == {}
    change(late_class, "ada", grade_by_hand)
    ((student, words),) = stale_penalties(late_class, ASSIGNMENT).items()
    assert student == "ada" and "is 0.8 points, but would now be 1" in words
    assert words.endswith(f"autograde grade {ASSIGNMENT} --force --students ada")
    change(late_class, "ada", lambda notebook: setattr(notebook, "late_submission_penalty", 1.0))
    assert stale_penalties(late_class, ASSIGNMENT) == {}


def test_another_due_date_leaves_penalties_behind(late_class):
    with Gradebook(f"sqlite:///{late_class}/gradebook.db") as gradebook:
        gradebook.find_assignment(ASSIGNMENT).duedate = after(-2)
        gradebook.db.commit()
    assert set(stale_penalties(late_class, ASSIGNMENT)) == {"ben"}, "in time before, late now"
    with Gradebook(f"sqlite:///{late_class}/gradebook.db") as gradebook:
        gradebook.find_assignment(ASSIGNMENT).duedate = after(2)
        gradebook.db.commit()
    ((student, words),) = stale_penalties(late_class, ASSIGNMENT).items()
    assert student == "ada" and "would now be 0" in words


def test_an_extension_of_no_due_date_makes_nobody_late(late_class):
    with Gradebook(f"sqlite:///{late_class}/gradebook.db") as gradebook:
        gradebook.find_submission(ASSIGNMENT, "ada").extension = timedelta(hours=1)
        gradebook.find_assignment(ASSIGNMENT).duedate = None
        gradebook.db.commit()
    assert {mark.late_s for mark in read_marks(late_class, ASSIGNMENT).students} == {0}


def test_a_penalty_is_within_zero_and_the_score_as_nbgrader_has_it(late_class):
    config = late_class / "nbgrader_config.py"
    for wanted, penalty in (("score + 5", 8.0), ("-1.0", 0.0), ("None", 0.0)):
        config.write_text(config.read_text().replace("0.1 * score", wanted))
        change(late_class, "ada", lambda n, to=penalty: setattr(n, "late_submission_penalty", to))
        assert stale_penalties(late_class, ASSIGNMENT) == {}
        config.write_text(config.read_text().replace(wanted, "0.1 * score"))
