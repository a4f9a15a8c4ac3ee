"""One class of hostile files beside an honest Zoe: nobody is stopped, each gets a clear reason."""

import io
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from autograde.classroom import feedback, grading
from autograde.classroom.export import write_marks
from autograde.classroom.grading import Outcome
from autograde.classroom.names import shown
from autograde.classroom.page import write_page
from autograde.classroom.reasons import read_verdicts
from autograde.classroom.report import Row, as_table, read_rows
from tests.attacks.handed_in import ASSIGNMENT, FULL, HANDED_IN, hand_in, new_class, student_of
from tests.attacks.world import LEFT_BEHIND
from tests.autograde.test_sandbox import as_ordinary_user

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Graded:
    """The class after a run."""

    folder: Path
    outcomes: dict[str, Outcome]
    seconds: float
    damage: list[str]
    rows: dict[str, Row]
    verdicts: dict[str, dict[str, Any]]


def untouched(folder: Path) -> dict[str, tuple[int, int]]:
    """Files that grading must leave alone: size and time of each."""
    kept = [folder / "nbgrader_config.py", *folder.glob("source/*/*"), *folder.glob("release/*/*")]
    kept += folder.glob("submitted/*/*/*")
    return {str(path): (path.lstat().st_size, path.lstat().st_mtime_ns) for path in kept}


@pytest.fixture(scope="module")
def graded(tmp_path_factory) -> Iterator[Graded]:
    folder = new_class(tmp_path_factory.mktemp("handed-in") / "class")
    hand_in(folder, "ada")
    for name, attack in HANDED_IN.items():
        hand_in(folder, student_of(name), attack.make)
    hand_in(folder, "zoe")
    before, started = untouched(folder), time.monotonic()
    outcomes = {outcome.student: outcome for outcome in grading.grade(folder, ASSIGNMENT, jobs=1)}
    seconds, after = time.monotonic() - started, untouched(folder)
    damage = [path for path in before.keys() | after.keys() if before.get(path) != after.get(path)]
    damage += [path for path in LEFT_BEHIND if os.path.exists(path)]
    rows = {row.student: row for row in read_rows(folder, ASSIGNMENT)}
    yield Graded(folder, outcomes, seconds, damage, rows, read_verdicts(folder, ASSIGNMENT))
    subprocess.run(["rm", "-rf", folder], check=True)  # shutil's rmtree cannot: too deep


def test_the_class_is_graded_to_its_end_and_nothing_is_damaged(graded):
    assert len(graded.outcomes) == len(HANDED_IN) + 2
    assert graded.damage == [] and graded.seconds < 120
    for honest in ("ada", "zoe"):
        assert graded.outcomes[honest].graded and graded.rows[honest].total == FULL


@pytest.mark.parametrize("name", HANDED_IN)
def test_what_is_odd_earns_what_it_must_or_is_told_why(graded, name):
    attack = HANDED_IN[name]
    student = attack.shown or student_of(name)
    verdict, row = graded.verdicts[student], graded.rows[student]
    reason = verdict.get("not_graded", "")
    assert (row.total if not reason else None) == attack.points, reason
    lines = [line for line in (reason, *verdict["notes"]) if line]
    outcome = graded.outcomes[student]
    assert lines == [line for line in (outcome.reason, *outcome.notes) if line]
    assert attack.says in " ".join(lines) and bool(lines) == bool(attack.says), lines
    for line in lines:
        assert line.isprintable() and len(line) < 500 and "error in the grader" not in line
        assert str(graded.folder / "submitted" / student) in line and line.endswith(".")
    if row.to_grade_by_hand:
        assert row.to_grade_by_hand == ["who-counts-more"]


def test_report_and_export_take_no_commands_from_names(graded):
    screen = Console(file=io.StringIO(), width=300)
    screen.print(as_table(list(graded.rows.values())))
    assert all(line.isprintable() for line in screen.file.getvalue().splitlines())
    page = write_page(graded.folder, ASSIGNMENT).read_text("utf-8")
    assert "<img src=x" not in page and "\u202e" not in page and "\x1b" not in page
    table = write_marks(graded.folder, ASSIGNMENT, "csv").read_text("utf-8")
    assert "'=cmd()" in table and ",=cmd" not in table
    assert "x;'=1+1" in table and ";=" not in table


def test_every_feedback_page_comes_in_time_and_runs_nothing(graded, monkeypatch):
    monkeypatch.setattr(feedback, "PAGE_S", 2.0)
    some = [
        "zoe",
        "markdown-endless",
        "title-escapes",
        "attachment-climbs",
        "pictures-multiplied",
        "widget-state",
    ]
    some += ["outputs-many", "output-nested", "exception-is-markup", r"caf\xe9", "pipe"]
    pages = feedback.write_feedback(graded.folder, ASSIGNMENT, some)
    text = {page.parts[-3]: page.read_text("utf-8") for page in pages}
    assert set(text) == set(some)
    assert not [who for who, page in text.items() if "<script" in page or "\u202e" in page]
    assert "cannot be shown here" in text["markdown-endless"]
    assert "cannot be shown here" not in text["zoe"]
    assert "3 of 3 points" in text["markdown-endless"]
    assert "would fill this page" in text["pictures-multiplied"]
    assert "not graded" in text["pipe"] and "which cannot be shown" in text[r"caf\xe9"]


LOOK = """
import json, sys
from pathlib import Path
from autograde.classroom.submissions import find_submissions
from autograde.classroom.files import write_whole
from autograde.classroom.reasons import read_verdicts
from autograde.classroom.verdicts import verdict_path
folder = Path(sys.argv[1])
for submission in find_submissions(folder, "a"):
    verdict = {"graded": False, "reason": submission.fault}
    write_whole(verdict_path(folder, "a", submission.student), json.dumps(verdict))
print(json.dumps({who: found["reason"] for who, found in read_verdicts(folder, "a").items()}))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs files of another user")
def test_what_an_ordinary_user_may_not_read_is_named_and_stops_nobody():
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o777)
        for student in ("file", "folder", "beside", "student", "zoe"):
            path = Path(place, "submitted", student, "a", "a.ipynb")
            path.parent.mkdir(parents=True)
            path.write_text("{}")
            (path.parent / "d").mkdir()
            closed = {"file": path, "folder": path.parent, "beside": path.parent / "d"}
            closed["student"] = path.parents[1]
            closed.get(student, Path(place)).chmod(0 if student in closed else 0o777)
        result = as_ordinary_user(LOOK, place)
    assert result.returncode == 0, result.stderr
    faults = json.loads(result.stdout)
    assert faults.pop("zoe") == "" and set(faults) == {"file", "folder", "beside", "student"}
    for student, fault in faults.items():
        assert f"/{student}/a/a.ipynb: cannot be read (Permission denied" in fault


@pytest.mark.parametrize(
    "name,seen",
    [
        ("ada", "ada"),
        ("né", "né"),
        ("a\u202eb", r"a\u202eb"),
        ("a\nb", r"a\nb"),
        (os.fsdecode(b"\xff"), r"\xff"),
        ("x" * 81, "x" * 80 + "…"),
    ],
)
def test_a_name_is_shown_on_one_line_that_any_page_can_hold(name, seen):
    assert shown(name) == seen and json.dumps(shown(name), ensure_ascii=False).encode()
