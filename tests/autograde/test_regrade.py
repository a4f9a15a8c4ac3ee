"""A new version of the exercises: whose points change is known before any of them does."""

import json

import pytest
from nbgrader.api import Gradebook

from autograde.class_dir import ClassDirError
from autograde.classroom import regrade
from autograde.classroom.assignment import Assignment
from autograde.classroom.release import last_words
from autograde.classroom.submissions import find_submissions
from tests.autograde.paper_class import ASSIGNMENT, Paper, make
from tests.short_class import submission

NOW = Assignment(
    name=ASSIGNMENT, cells=[], released={}, given=[], calls={}, exercises="", version="now"
)
TIMES = {"old": "2026-02-01T10:00:00+00:00", "new": "2026-03-01T10:00:00+00:00"}


class Inline:
    """Workers that answer at once with results known beforehand, and keep the jobs."""

    has_room = True

    def __init__(self, results):
        self.results, self.jobs, self.done = results, [], []

    @property
    def pending(self):
        return len(self.done)

    def give(self, job):
        self.jobs.append(job)
        self.done.append((job, self.results[job["student"]]))

    def handles(self):
        return []

    def collect(self):
        done, self.done = self.done, []
        return done

    def close(self):
        pass


def checks(clip, accumulate=4.0, status="right"):
    return {
        "graded": True,
        "checks": [
            {
                "grade_id": "clip-check",
                "exercise": "03a.clip",
                "points": clip,
                "status": "right" if clip == 4.0 else status,
            },
            {
                "grade_id": "accumulate-check",
                "exercise": "03a.accumulate",
                "points": accumulate,
                "status": "right",
            },
        ],
    }


@pytest.fixture
def folder(tmp_path):
    """Ada was graded under `old`, Ben and Cem under `new`, Dan under the version of now."""
    names = {"ada": "old", "ben": "new", "cem": "new", "dan": "now"}
    made = make(tmp_path / "class", {name: Paper(cells={"a": name}) for name in names})
    shas = {one.student: one.sha for one in find_submissions(made, ASSIGNMENT)}
    lines = [
        {
            **{"event": "graded", "graded": True, "student": name, "submission": shas[name]},
            **{"version": version, "seed": 7, "notes": [], "time": TIMES.get(version, "")},
        }
        for name, version in names.items()
    ]
    path = made / "journal" / f"{ASSIGNMENT}.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return made


def everything_in(folder):
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path: path.read_bytes() for path in files}


def test_whose_points_change_is_said_and_nothing_is_changed(folder):
    before = everything_in(folder)
    workers = Inline(
        {"ada": checks(2.0, status="per-tensor"), "ben": checks(4.0), "cem": checks(4.0)}
    )
    found = list(regrade.preview(folder, NOW, graders=workers))
    assert everything_in(folder) == before
    assert [job["seed"] for job in workers.jobs] == [7, 7, 7], "the same cases"
    said = "\n".join(regrade.sentences(found))
    assert "ada                  03a.clip               4 → 2  right → per-tensor" in said
    assert "ben" not in said and "dan" not in said
    assert "3 graded again: 0 with more points, 1 with fewer, 2 with as many." in said


@pytest.mark.parametrize(
    "since, who",
    [
        ("", ["ada", "ben", "cem"]),
        ("old", ["ada", "ben", "cem"]),
        ("n", None),
        ("new", ["ben", "cem"]),
        ("2026-02-15", ["ben", "cem"]),
        ("2027-01-01", []),
        ("other", None),
    ],
)
def test_since_is_a_version_and_all_later_ones_or_a_day(folder, since, who):
    if who is None:
        with pytest.raises(
            ClassDirError, match=r"versions begin like that. There are: old, new, now"
        ):
            regrade.concerned(folder, NOW, since)
    else:
        assert sorted(regrade.concerned(folder, NOW, since)) == who


def test_the_versions_are_listed_with_what_is_graded_by_each(folder):
    lines = list(regrade.describe_versions(folder, NOW))
    assert [line.split()[0] for line in lines] == ["old", "new", "now"]
    assert "since 2026-03-01T10:00  2 graded by it" in lines[1]
    assert lines[2].endswith("1 graded under it, the current version")


def test_work_that_was_changed_since_is_left_to_grade(folder):
    path = submission(folder, "ada", ASSIGNMENT)
    path.write_text(path.read_text() + "\n")
    workers = Inline({"ben": checks(4.0), "cem": checks(4.0)})
    assert [one.student for one in regrade.preview(folder, NOW, graders=workers)] == ["ben", "cem"]


def test_points_given_by_hand_stay_and_work_that_fails_is_named(folder):
    with Gradebook(f"sqlite:///{folder}/gradebook.db") as gradebook:
        gradebook.find_grade("clip-check", ASSIGNMENT, ASSIGNMENT, "ada").manual_score = 4.0
        gradebook.db.commit()
    results = {
        "ada": checks(1.0),
        "ben": {"graded": False, "reason": "is gone"},
        "cem": checks(4.0),
    }
    found = list(regrade.preview(folder, NOW, graders=Inline(results)))
    ada, ben, _ = found
    assert ada.difference == 0 and ada.parts[0].by_hand and ben.reason == "is gone"
    said = "\n".join(regrade.sentences(found))
    assert "given by hand: stays" in said and "can no longer be graded: is gone" in said


def test_nbgraders_pointer_to_a_traceback_is_not_its_last_word():
    log = (
        "[ERROR] There was an error processing assignment: x\n[ERROR] Traceback (most recent call "
        "last):\n  File ...\nRuntimeError: the real reason\n\nTraceback (most recent call last):\n"
        "nbgrader.converters.base.NbGraderException: Please see the the above traceback for "
        "details on the specific errors on the above failures."
    )
    assert last_words(log) == "RuntimeError: the real reason"
    assert last_words(log.rpartition("\n")[2]) == "nbgrader gave no reason"
