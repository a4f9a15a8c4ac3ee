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
LIMITS = {"cell_s": 60.0, "answer_s": 30.0, "notebook_s": 300.0}
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
            **{"times": LIMITS, "device": "cpu", "run_all": False, "trusted": False},
        }
        for name, version in names.items()
    ]
    lines += [line | {"event": "written"} for line in lines]
    path = made / "journal" / f"{ASSIGNMENT}.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return made


def noted(folder, student, event="graded", **more):
    """Note in the journal that a student was graded again, differently."""
    path = folder / "journal" / f"{ASSIGNMENT}.jsonl"
    last = next(json.loads(line) for line in path.read_text().splitlines() if student in line)
    last = {key: value for key, value in (last | more | {"event": event}).items() if value != ""}
    with path.open("a") as journal:
        journal.write(f"{json.dumps(last)}\n")


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
    assert "3 graded again: 0 with more points, 1 with fewer, 2 unchanged." in said


def test_work_is_graded_again_with_the_settings_that_it_had(folder, monkeypatch):
    noted(folder, "ben", run_all=True, times=LIMITS | {"answer_s": 99.0})
    workers = Inline({name: checks(4.0) for name in ("ada", "ben", "cem")})
    list(regrade.preview(folder, NOW, graders=workers))
    ada, ben, cem = workers.jobs
    assert {name: ada["limits"][name] for name in LIMITS} == LIMITS
    assert (ben["limits"]["answer_s"], ben["run_all"], cem["run_all"]) == (99.0, True, False)
    asked = []
    monkeypatch.setattr(regrade, "grade", lambda *given, **how: asked.append((given, how)) or [])
    list(regrade.apply(folder, ASSIGNMENT, ["ada", "ben", "cem"]))
    (alike, how), ((_, _, alone, limits), other) = asked
    assert alike[2] == ["ada", "cem"] and alike[3].answer_s == 30.0 and not how["run_all"]
    assert alone == ["ben"] and limits.answer_s == 99.0 and other["run_all"] and other["force"]


@pytest.mark.parametrize(
    "last, words",
    [
        ({"times": ""}, "before the journal noted with which time limits"),
        ({"trusted": True}, "use that here, too"),
        ({"device": "cuda:99"}, "it was graded on cuda:99. "),
        (None, f"submitted/ada/{ASSIGNMENT} is not there any more"),
    ],
)
def test_what_cannot_be_graded_as_before_costs_that_student_alone(folder, last, words):
    if last is None:
        (folder / "submitted" / "ada" / ASSIGNMENT).rename(folder / "submitted" / "ada" / "other")
    else:
        noted(folder, "ada", **last)
    workers = Inline({"ben": checks(2.0, status="per-tensor"), "cem": checks(4.0)})
    ada, ben, cem = regrade.preview(folder, NOW, graders=workers)
    assert ada.left and words in ada.reason and not cem.left
    assert [job["student"] for job in workers.jobs] == ["ben", "cem"]
    said = list(regrade.sentences([ada, ben, cem]))
    assert said[0].startswith("ada                  left as it is: ")
    assert said[-1] == "2 graded again: 0 with more points, 1 with fewer, 1 unchanged."


def test_what_a_killed_regrade_has_not_written_is_still_to_do(folder):
    noted(folder, "ada", version="now")
    assert sorted(regrade.concerned(folder, NOW)) == ["ada", "ben", "cem"]
    noted(folder, "ada", "written", version="now")
    assert sorted(regrade.concerned(folder, NOW)) == ["ben", "cem"]


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
    assert "since 2026-03-01T10:00  2 graded under it" in lines[1]
    assert lines[2].endswith("1 graded under it, the current version")


def test_work_that_was_changed_since_is_said_and_left_to_grade(folder):
    path = submission(folder, "ada", ASSIGNMENT)
    path.write_text(path.read_text() + "\n")
    workers = Inline({"ben": checks(4.0), "cem": checks(4.0)})
    first, *others = regrade.preview(folder, NOW, graders=workers)
    assert (first.student, first.left) == ("ada", True) and "has changed since" in first.reason
    assert [one.student for one in others] == ["ben", "cem"]


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
