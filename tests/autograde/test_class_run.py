"""A class run: killed anywhere it goes on; nothing is lost, nothing is graded or written twice.

Most runs here are simulated: real drivers, crews and journals, with the work of `simulated.py`.
"""

import io
import json
import multiprocessing
import random
import re
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from multiprocessing import forkserver
from pathlib import Path

import pytest

from autograde import cli
from autograde.classroom.assignment import Assignment
from autograde.classroom.crew import Crew, once
from autograde.classroom.grading import ClassRun, Outcome, journal_path
from autograde.classroom.journal import JournalBusyError, read_known, read_lines
from autograde.classroom.regrade import how_of
from autograde.classroom.submissions import Submission
from autograde.sandbox import parent
from autograde.sandbox.limits import Limits
from tests import short_class
from tests.sampling import THOROUGH

WORK = "tests.autograde.simulated"
ROOMY = Limits()
PLAIN = Assignment(name="a", cells=[], released={}, given=[], calls={}, exercises="", version="v1")


def hand_in(folder: Path, wishes: dict[str, dict]) -> None:
    for student, wish in wishes.items():
        short_class.hand_in(folder, student, "a", json.dumps(wish))
    with sqlite3.connect(folder / "scores.db") as db:
        db.execute("create table if not exists scores (student primary key, points)")


def submissions(folder: Path) -> list[Submission]:
    paths = sorted((folder / "submitted").glob("*/a/a.ipynb"))
    return [Submission(student=p.parts[-3], path=p, sha=p.read_text()) for p in paths]


def noted(path: Path) -> Counter:
    return Counter(path.read_text().split()) if path.exists() else Counter()


def scores(folder: Path) -> dict[str, int]:
    with sqlite3.connect(folder / "scores.db") as db:
        return dict(db.execute("select student, points from scores"))


def run(
    folder: Path,
    *,
    jobs: int = 2,
    assignment=PLAIN,
    order=1,
    limits=ROOMY,
    run_all=False,
    **options,
) -> list[Outcome]:
    with (
        ClassRun(folder, assignment, limits, writer=f"{WORK}:write", run_all=run_all) as class_run,
        closing(Crew(f"{WORK}:mark", jobs)) as graders,
    ):
        found = submissions(folder)[::order]
        return list(class_run.grade(found, graders, written=scores(folder), **options))


def drive(folder: str, key: bytes | None) -> None:
    """A run in a process of its own, to be killed."""
    parent.share(key)
    run(Path(folder))


def start_driver(folder: Path) -> multiprocessing.process.BaseProcess:
    parent.start()
    process = parent.warm_context().Process(target=drive, args=(str(folder), parent.key()))
    parent.begin(process)
    return process


def lines(folder: Path) -> list[dict]:
    return list(read_lines(journal_path(folder, "a")))


def events(folder: Path, event: str) -> Counter:
    return Counter(line["student"] for line in lines(folder) if line["event"] == event)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3 if THOROUGH else 1))
def test_a_driver_killed_at_random_moments_goes_on_and_each_score_is_there_once(tmp_path, seed):
    moments = random.Random(seed)
    students = {f"s{number:02}": {"n": number} for number in range(30)}
    hand_in(tmp_path, students)
    marked_at_kill = []
    for _ in range(3):
        before = len(lines(tmp_path))
        process = start_driver(tmp_path)
        until = before + moments.randrange(0, 20)
        deadline = time.monotonic() + 30
        while process.is_alive() and len(lines(tmp_path)) < until and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(moments.uniform(0, 0.01))
        process.kill()
        process.join()
        graded = {s for s, about in read_known(journal_path(tmp_path, "a")).items() if about.last}
        marked_at_kill.append((graded, noted(tmp_path / "marked")))
    assert any(0 < len(graded) < len(students) for graded, _ in marked_at_kill), "no kill hit a run"
    outcomes = run(tmp_path)
    assert sorted(outcome.student for outcome in outcomes) == list(students)
    assert all(outcome.graded for outcome in outcomes)
    assert events(tmp_path, "graded") == dict.fromkeys(students, 1)
    marked = noted(tmp_path / "marked")
    for graded, then in marked_at_kill:  # what the journal knew was not marked again
        assert all(marked[student] == then[student] for student in graded)
    seeds = {line["student"]: line["seed"] for line in lines(tmp_path) if line["event"] == "graded"}
    assert scores(tmp_path) == {who: (seed + students[who]["n"]) % 2 for who, seed in seeds.items()}
    assert not list((tmp_path / "journal" / "a.pending").iterdir())


def by_student(outcomes: list[Outcome]) -> dict[str, Outcome]:
    return {outcome.student: outcome for outcome in outcomes}


def changes(folder: Path, **options) -> set[str]:
    """Who was marked by another run."""
    before = noted(folder / "marked")
    assert all(outcome.graded for outcome in run(folder, **options))
    return set(noted(folder / "marked") - before)


def test_asked_to_run_all_it_grades_again_what_was_not_run_in_whole(tmp_path):
    hand_in(tmp_path, {"ada": {"not_run": 3}, "ben": {}})
    assert changes(tmp_path) == {"ada", "ben"}
    assert changes(tmp_path) == set()
    assert changes(tmp_path, run_all=True) == {"ada"}
    assert changes(tmp_path, run_all=True) == changes(tmp_path) == set()


def test_a_grader_killed_once_is_replaced_and_its_submission_graded(tmp_path):
    students = {f"s{number}": {} for number in range(6)}
    hand_in(tmp_path, {**students, "s3": {"dies_once": str(tmp_path / "died")}})
    outcomes = run(tmp_path)
    assert all(outcome.graded for outcome in outcomes) and len(outcomes) == 6
    assert noted(tmp_path / "marked") == {**dict.fromkeys(students, 1), "s3": 2}
    assert set(scores(tmp_path)) == set(students)


def test_a_submission_whose_graders_always_die_is_not_graded_and_stops_nobody(tmp_path):
    hand_in(tmp_path, {"ada": {}, "ben": {"dies_always": True}, "cleo": {}})
    outcomes = by_student(run(tmp_path))
    assert outcomes["ada"].graded and outcomes["cleo"].graded
    assert (
        "not graded because of an error in the grader itself (3 processes" in outcomes["ben"].reason
    )
    assert (
        "3 processes worked on it, and the last one died with exit code -9"
        in outcomes["ben"].reason
    )
    assert set(scores(tmp_path)) == {"ada", "cleo"}, "never a zero"


def test_a_fault_of_the_grader_is_kept_with_its_reason_and_tried_again(tmp_path):
    hand_in(tmp_path, {"ada": {}, "ben": {"raises": "out of luck"}})
    reason = by_student(run(tmp_path))["ben"].reason
    assert (
        "ben/a/a.ipynb: not graded because of an error in the grader itself "
        "(ValueError: out of luck)" in reason
    )
    (line,) = [x for x in lines(tmp_path) if x["event"] == "graded" and x["student"] == "ben"]
    assert line["graded"] is False and line["reason"] == reason
    assert set(scores(tmp_path)) == {"ada"}, "never a zero"
    before = noted(tmp_path / "marked")
    assert by_student(run(tmp_path))["ben"].reason == reason
    assert noted(tmp_path / "marked") - before == Counter(["ben"])


def test_a_raised_time_limit_grades_those_again_who_ran_out_of_it(tmp_path):
    hand_in(tmp_path, {"ada": {}, "ben": {"ended": "no answer within 1 s: is there a loop?"}})
    less, more = Limits(cell_s=1.0), Limits(cell_s=2.0)
    run(tmp_path, limits=less)
    assert noted(tmp_path / "marked") == Counter(["ada", "ben"])
    run(tmp_path, limits=less)
    assert noted(tmp_path / "marked") == Counter(["ada", "ben"])
    run(tmp_path, limits=more)
    assert noted(tmp_path / "marked") == Counter(["ada", "ben", "ben"])
    run(tmp_path, limits=more)
    assert noted(tmp_path / "marked") == Counter(["ada", "ben", "ben"])
    known = read_known(journal_path(tmp_path, "a"))
    assert (how_of(known["ada"]).limits, how_of(known["ben"]).limits) == (less, more)


def test_work_that_cannot_be_imported_fails_each_job_by_name():
    with closing(Crew(f"{WORK}:forgotten", 1)) as crew_of_one:
        crew_of_one.give({"student": "ada"})
        failed = []
        wait_until(lambda: failed.extend(crew_of_one.collect()) or failed)
    assert "has no attribute 'forgotten'" in failed[0][1]["failed"]


def test_work_that_takes_too_long_is_not_said_to_have_died():
    with closing(Crew(f"{WORK}:sleep", 1, patience_s=0.1)) as crew_of_one:
        crew_of_one.give({"seconds": 60})
        failed = []
        wait_until(lambda: failed.extend(crew_of_one.collect()) or failed)
    assert failed[0][1] == {"failed": "the process that worked on it was ended after 0.1 s"}


def test_a_job_that_burns_the_processor_is_ended_and_the_next_is_done():
    with closing(Crew(f"{WORK}:burn", 1, cpu_s=0.5)) as crew_of_one:
        crew_of_one.give({"seconds": 60})
        crew_of_one.give({"seconds": 0})
        done = []
        wait_until(lambda: done.extend(crew_of_one.collect()) or len(done) == 2)
    assert "0.5 s of processor time" in done[0][1]["failed"] and done[1][1] == {}


def test_a_job_that_fills_the_memory_fails_and_the_next_is_done(monkeypatch):
    with closing(Crew(f"{WORK}:fill", 1)) as crew_of_one:
        crew_of_one.give({"gib": 64})
        crew_of_one.give({"gib": 0})
        done = []
        wait_until(lambda: done.extend(crew_of_one.collect()) or len(done) == 2)
    assert "MemoryError" in done[0][1]["failed"] and done[1][1] == {}


def test_a_grader_can_have_forks_made_by_the_warm_parent(monkeypatch):
    """Python 3.14's wants to be shown a key, which the standard library hands to nobody."""
    if sys.version_info < (3, 14):
        monkeypatch.setattr(forkserver._forkserver, "_forkserver_authkey", b"k" * 32, raising=False)
    assert once(f"{WORK}:fork", {}) == {"exit code": 7, "key": parent.key().hex()}


def test_a_process_is_asked_for_again_where_the_warm_parent_was_just_dying(monkeypatch):
    faults = [ConnectionRefusedError(), None]

    class Process:
        def start(self) -> None:
            if fault := faults.pop(0):
                raise fault

    monkeypatch.setattr(parent, "DIES_S", 0.0)
    parent.begin(Process())
    assert faults == []


@pytest.mark.parametrize("remove", ["unlink", "whole folder"])
def test_a_warm_parent_whose_socket_is_gone_is_replaced(remove):
    """In a process of its own: the others' parent stays."""
    code = (
        "import os, shutil, sys\n"
        "from multiprocessing import forkserver\n"
        "from autograde.sandbox import parent\n"
        "parent.PRELOAD.clear()\n"
        "def begin():\n"
        "    process = parent.warm_context().Process(target=print)\n"
        "    parent.begin(process); process.join()\n"
        "    return process.exitcode\n"
        "assert begin() == 0\n"
        "socket = forkserver._forkserver._forkserver_address\n"
        f"remove = os.unlink if {remove!r} == 'unlink' else shutil.rmtree\n"
        "remove(socket if remove is os.unlink else os.path.dirname(socket))\n"
        "assert begin() == begin() == 0\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_write_that_fails_is_not_graded_then_tried_again_without_marking_again(tmp_path):
    hand_in(tmp_path, {"ada": {}, "ben": {}})
    (tmp_path / "refuses").write_text("ben")
    outcomes = by_student(run(tmp_path))
    assert outcomes["ada"].graded and "(OSError: no room for ben)" in outcomes["ben"].reason
    assert [x["student"] for x in lines(tmp_path) if x["event"] == "unwritten"] == ["ben"]
    assert set(scores(tmp_path)) == {"ada"}
    (tmp_path / "refuses").unlink()
    assert changes(tmp_path) == set()
    assert set(scores(tmp_path)) == {"ada", "ben"}


def test_only_what_changed_is_graded_again(tmp_path):
    hand_in(tmp_path, {"ada": {}, "ben": {}})
    assert changes(tmp_path) == {"ada", "ben"}
    assert changes(tmp_path) == set()
    assert all(outcome.unchanged for outcome in run(tmp_path))
    hand_in(tmp_path, {"ben": {"n": 2}, "cleo": {}})
    assert changes(tmp_path) == {"ben", "cleo"}
    mended = replace(PLAIN, version="v2")
    assert changes(tmp_path, assignment=mended) == {"ada", "ben", "cleo"}
    assert changes(tmp_path, assignment=mended) == set()
    assert changes(tmp_path, assignment=mended, force=True) == {"ada", "ben", "cleo"}


def test_what_the_gradebook_has_lost_is_graded_again(tmp_path):
    hand_in(tmp_path, {"ada": {}, "ben": {}})
    run(tmp_path)
    with sqlite3.connect(tmp_path / "scores.db") as db:
        db.execute("delete from scores where student = 'ada'")
    assert changes(tmp_path) == {"ada"}


def test_jobs_and_order_change_no_grade(tmp_path):
    hand_in(tmp_path, {f"s{number:02}": {"n": number} for number in range(16)})
    run(tmp_path, jobs=2)
    first, seeds = scores(tmp_path), {line["student"]: line.get("seed") for line in lines(tmp_path)}
    run(tmp_path, jobs=1, order=-1, force=True)
    assert scores(tmp_path) == first
    assert events(tmp_path, "graded") == dict.fromkeys(first, 2)
    assert {line["student"]: line.get("seed") for line in lines(tmp_path)} == seeds


def test_an_earlier_submission_handed_in_again_gets_its_own_seed_again(tmp_path):
    def seed() -> int:
        run(tmp_path)
        return [line for line in lines(tmp_path) if line["event"] == "graded"][-1]["seed"]

    hand_in(tmp_path, {"ada": {"n": 1}})
    first = seed()
    hand_in(tmp_path, {"ada": {"n": 2}})
    assert seed() != first
    hand_in(tmp_path, {"ada": {"n": 1}})
    assert seed() == first


def test_a_run_asks_everybody_the_same_and_the_next_run_something_else(tmp_path):
    hand_in(tmp_path, {"ada": {}, "ben": {}})
    run(tmp_path)
    hand_in(tmp_path, {"cleo": {}})
    run(tmp_path)
    seeds = {line["student"]: line["seed"] for line in lines(tmp_path) if "seed" in line}
    assert seeds["ada"] == seeds["ben"] != seeds["cleo"]


def test_what_a_killed_run_left_half_done_is_swept_away(tmp_path):
    hand_in(tmp_path, {"ada": {}})
    run(tmp_path)
    for name in ("ada.json", ".ada.json.123", "zoe.json"):
        (tmp_path / "journal" / "a.pending" / name).write_text("{")
    assert changes(tmp_path) == set()
    assert not list((tmp_path / "journal" / "a.pending").iterdir())


@pytest.mark.parametrize("kept_is_whole", [True, False])
def test_a_kept_result_is_written_and_a_torn_one_is_marked_again(tmp_path, kept_is_whole):
    hand_in(tmp_path, {"ada": {}})
    (tmp_path / "refuses").write_text("ada")
    run(tmp_path)
    (tmp_path / "refuses").unlink()
    kept = tmp_path / "journal" / "a.pending" / "ada.json"
    if not kept_is_whole:
        kept.write_bytes(kept.read_bytes()[:-20])
    assert changes(tmp_path) == (set() if kept_is_whole else {"ada"})
    assert set(scores(tmp_path)) == {"ada"}


def test_a_submission_that_goes_away_meanwhile_stops_nobody(tmp_path, monkeypatch):
    hand_in(tmp_path, {"ada": {}, "ben": {}})
    found = submissions(tmp_path)
    found[0].path.unlink()
    monkeypatch.setattr(f"{__name__}.submissions", lambda folder: found)
    outcomes = by_student(run(tmp_path))
    assert "no longer exists" in outcomes["ada"].reason and outcomes["ben"].graded


def test_two_runs_of_an_assignment_do_not_meet(tmp_path):
    hand_in(tmp_path, {"ada": {}})
    with (
        ClassRun(tmp_path, PLAIN, Limits(), writer=f"{WORK}:write"),
        pytest.raises(JournalBusyError, match="in use by another autograde grade"),
    ):
        run(tmp_path)


def test_a_crew_leaves_in_the_middle_of_a_job_when_its_foreman_is_gone(tmp_path):
    hand_in(tmp_path, {"ada": {"seconds": 60, "says_when_left": str(tmp_path / "left")}})
    process = start_driver(tmp_path)
    wait_until(lambda: noted(tmp_path / "marked"))
    process.kill()
    process.join()
    wait_until((tmp_path / "left").exists)


def wait_until(holds, timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


class Terminal(io.StringIO):
    """A stderr that a person looks at."""

    def isatty(self) -> bool:
        return True


def outcomes_of(count: int, *, unchanged: int = 0) -> Iterator[Outcome]:
    for number in range(count):
        if number >= unchanged:
            time.sleep(0.15)  # tqdm draws at most ten times a second
        yield Outcome(student=f"s{number}", notes=[], unchanged=number < unchanged)


def test_a_terminal_shows_how_many_are_done_the_rate_and_the_time_left(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert len(list(cli._with_progress(outcomes_of(6, unchanged=2), 6))) == 6
    drawn = sys.stderr.getvalue().split("\r")
    halfway = next(line for line in drawn if " 2/4 " in line)  # two were graded before
    assert re.search(r"50%.*\[00:0\d<00:0\d, +\d\.\d+ submissions/s\]", halfway), drawn


def test_elsewhere_each_submission_is_a_line(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    list(cli._with_progress(outcomes_of(3, unchanged=1), 3))
    assert capsys.readouterr().out == "graded      s1  0.0 s\ngraded      s2  0.0 s\n"
