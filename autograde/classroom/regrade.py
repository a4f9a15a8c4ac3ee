"""Preview what a new version of the exercises would change: whose points, and how.

    journal -> who was graded under an older version, and how -> graded again in the same way, on
               the same cases, kept nowhere -> compared with the verdict on record -> said

In the same way: with the same time, on the same device, the same cells. Where the journal does not
say how, or it cannot be done here, nothing is done for that student.

Work that has changed since is said, and left: use `autograde grade` for it, and for work that was
never graded.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from itertools import chain
from pathlib import Path
from shlex import quote
from typing import Any

from autograde.class_dir import ClassDirError, few
from autograde.classroom.assignment import Assignment
from autograde.classroom.crew import Crew
from autograde.classroom.grading import (
    Outcome,
    Workers,
    crew_for,
    grade,
    isolation_for,
    job_for,
    rounds,
)
from autograde.classroom.journal import Known, journal_path, read_known, read_lines
from autograde.classroom.names import may_hold, shown
from autograde.classroom.reasons import read_verdicts
from autograde.classroom.submissions import (
    Submission,
    SubmissionFault,
    find_submissions,
    read_text,
)
from autograde.sandbox.limits import Limits

SHORT = 8
"""Letters of a version that are shown; any beginning that is one version's alone is taken."""
DAY = re.compile(r"\d{4}-\d\d-\d\d")


@dataclass(frozen=True, kw_only=True)
class Part:
    """One check, before and after."""

    exercise: str
    before: float
    after: float
    why: str
    """The verdicts' words, e.g. `right → no-clipping`."""
    by_hand: bool = False
    """A person gave these points: they stay, and the answer must be looked at again."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """What a new version changes for one student; no parts if nothing."""

    student: str
    parts: list[Part] = field(default_factory=list)
    reason: str = ""
    """Why it could not be graded; empty if it could."""
    left: bool = False
    """Whether it was not even tried."""

    @property
    def difference(self) -> float:
        """Points gained or lost, before penalties."""
        return sum(part.after - part.before for part in self.parts if not part.by_hand)


@dataclass(frozen=True, kw_only=True)
class How:
    """With which settings work was graded, and is graded again."""

    limits: Limits
    device: str
    run_all: bool
    trusted: bool


def how_of(known: Known) -> How | None:
    """How a student's work was graded; None where the journal is from before it was noted."""
    last = known.last
    times = last.get("times") or last.get("ran_out_of")
    if not times:
        return None
    return How(
        limits=Limits(**times),
        device=last.get("device", "cpu"),
        run_all=last.get("run_all", False),
        trusted=last.get("trusted", False),
    )


def versions(folder: Path, assignment: str) -> dict[str, str]:
    """The versions of an assignment under which work was graded, oldest first, and since when."""
    found: dict[str, str] = {}
    for line in read_lines(journal_path(folder, assignment)):
        if line["event"] == "graded" and line.get("version"):
            found.setdefault(line["version"], str(line.get("time", "")))
    return found


def describe_versions(folder: Path, about: Assignment) -> Iterator[str]:
    """A line per version: its first letters, since when, and how many grades are from it."""
    known = read_known(journal_path(folder, about.name))
    for version, time in versions(folder, about.name).items():
        number = sum(one.last.get("version") == version for one in known.values())
        now = ", the current version" if version == about.version else ""
        yield f"{version[:SHORT]:<{SHORT}}  since {time[:16]}  {number} graded under it{now}"


def concerned(folder: Path, about: Assignment, since: str = "") -> dict[str, Known]:
    """Students whose grade is from an older version, or in the gradebook still is.

    Args:
        folder: A class directory, absolute.
        about: The current assignment.
        since: Only work graded under this version or later, or on this day or later.

    Raises:
        ClassDirError: No version begins like this, or several do.
    """
    known = {
        student: one
        for student, one in read_known(journal_path(folder, about.name)).items()
        if one.last.get("graded") and (one.last.get("version") != about.version or not one.written)
    }
    if not since:
        return known
    if DAY.fullmatch(since):
        return {s: one for s, one in known.items() if _day(one.last.get("time", "")) >= since}
    order = list(versions(folder, about.name))
    meant = [version for version in order if version.startswith(since)]
    if len(meant) != 1:
        names = few([version[:SHORT] for version in order], most=12) or "none"
        raise ClassDirError(
            f"--since {since}: {len(meant)} versions begin like that. There are: {names}. You can "
            "also give a day: --since 2026-03-01."
        )
    later = set(order[order.index(meant[0]) :])
    return {student: one for student, one in known.items() if one.last["version"] in later}


def _day(time: str) -> str:
    """Of a journal's time, in this machine's zone."""
    try:
        return datetime.fromisoformat(time).astimezone().strftime("%Y-%m-%d")
    except ValueError:
        return ""


def preview(
    folder: Path,
    about: Assignment,
    *,
    since: str = "",
    jobs: int | None = None,
    trusted: bool = False,
    graders: Workers | None = None,
) -> Iterator[Change]:
    """Grade the affected students again, write nothing, and report what would change.

    Args:
        folder: A class directory, absolute.
        about: The assignment of now.
        since: See `concerned`.
        jobs: Processes that grade at the same time; None takes one per core.
        trusted: Run submissions with this user's own rights.
        graders: Who does the work; None starts processes here.
    """
    known = concerned(folder, about, since)
    if not known:
        return
    verdicts = read_verdicts(folder, about.name)
    hows: dict[str, How] = {}
    for student in sorted(known.keys() & verdicts.keys()):
        if verdicts[student].get("not_graded"):
            continue
        how = how_of(known[student])
        reason = _why_left(folder / "submitted" / student, about.name, how, trusted=trusted)
        if reason or how is None:
            yield Change(student=student, reason=reason, left=True)
        else:
            hows[student] = how
    if not hows:
        return
    submissions = []
    for one in find_submissions(folder, about.name, list(hows)):
        if one.sha == known[one.student].last["submission"]:
            submissions.append(one)
        else:
            yield Change(student=one.student, reason=CHANGED_SINCE, left=True)
    by_hand = _by_hand(folder, about.name)
    with closing(graders or _crew(jobs, hows.values())) as workers:
        isolation = isolation_for(folder, trusted=trusted)
        plain = about.to_json()
        jobs_to_do = (
            _job(one, plain, isolation, known[one.student].seeds[one.sha], hows[one.student])
            for one in submissions
        )
        for job, result in chain.from_iterable(rounds(jobs_to_do, workers)):
            student = job["student"]
            yield compare(student, verdicts[student], result, by_hand.get(student, set()))


CHANGED_SINCE = "what is handed in has changed since it was graded: `autograde grade` is for that."


def _why_left(home: Path, assignment: str, how: How | None, *, trusted: bool) -> str:
    """Why work cannot be graded again as it was; empty if it can."""
    if not may_hold(home, assignment):
        return f"submitted/{shown(home.name)}/{assignment} is not there any more."
    if how is None:
        return (
            "it was graded before the journal noted with which time limits. To grade it again: "
            f"autograde grade --force --students {quote(home.name)}, with the options of then."
        )
    if how.trusted and not trusted:
        return "it was graded with --trust-submissions. To grade it again, use that here, too."
    return _why_not_on(how.device)


@cache
def _why_not_on(device: str) -> str:
    if device == "cpu":
        return ""  # torch need not be loaded to know
    from course.engine import DeviceError, choose_device

    try:
        choose_device(device)
    except DeviceError as fault:
        return f"it was graded on {device}. {fault}"
    return ""


def _crew(jobs: int | None, hows: Collection[How]) -> Crew:
    """Processes for everybody: patient enough for the longest, one if there is a GPU to share."""
    devices = {how.device for how in hows} - {"cpu"}
    longest = max((how.limits for how in hows), key=lambda limits: limits.notebook_s)
    return crew_for(jobs, longest, min(devices, default="cpu"))


def _job(
    submission: Submission, plain: dict[str, Any], isolation: dict[str, Any], seed: int, how: How
) -> dict[str, Any]:
    job = job_for(submission, plain, how.limits, isolation, seed, how.device, run_all=how.run_all)
    try:
        return {**job, "text": read_text(submission.path)}
    except SubmissionFault:  # it was read when it was graded, and its hash is the same
        return {**job, "text": ""}


def apply(
    folder: Path,
    assignment: str,
    students: Iterable[str],
    *,
    jobs: int | None = None,
    trusted: bool = False,
) -> Iterator[Outcome]:
    """Grade students again, each as before, and write it; see `autograde.classroom.grading.grade`.

    Args:
        folder: A class directory, absolute.
        assignment: Its name.
        students: Of whom the preview could grade.
        jobs, trusted: As for `preview`.
    """
    known = read_known(journal_path(folder, assignment))
    alike: dict[How, list[str]] = {}
    for student in students:
        if how := how_of(known[student]):
            alike.setdefault(how, []).append(student)
    for how, names in alike.items():
        more = {"device": how.device, "run_all": how.run_all, "trusted": trusted}
        yield from grade(folder, assignment, names, how.limits, jobs=jobs, force=True, **more)


def compare(
    student: str, verdict: dict[str, Any], result: dict[str, Any], by_hand: set[str]
) -> Change:
    """Compare a new result with the verdict on record."""
    if not result.get("graded"):
        return Change(student=student, reason=result.get("reason") or result.get("failed", ""))
    before = {check["grade_id"]: check for check in verdict.get("checks", [])}
    parts = []
    for check in result["checks"]:
        old = before.get(check["grade_id"], {})
        was, now = old.get("points", 0.0), check["points"]
        if was != now:
            why = f"{old.get('status', 'not asked')} → {check['status']}"
            hand = check["grade_id"] in by_hand
            parts.append(
                Part(exercise=check["exercise"], before=was, after=now, why=why, by_hand=hand)
            )
    return Change(student=student, parts=parts)


def _by_hand(folder: Path, assignment: str) -> dict[str, set[str]]:
    """Cells whose points a person gave, by student."""
    from nbgrader import api

    from autograde.classroom.gradebook import open_gradebook

    found: dict[str, set[str]] = {}
    base = api.BaseCell.__table__
    with open_gradebook(folder) as gradebook:
        rows = (
            gradebook.db.query(api.SubmittedAssignment.student_id, base.c.name)
            .select_from(api.Grade)
            .join(api.SubmittedNotebook, api.SubmittedNotebook.id == api.Grade.notebook_id)
            .join(
                api.SubmittedAssignment,
                api.SubmittedAssignment.id == api.SubmittedNotebook.assignment_id,
            )
            .join(api.Assignment, api.Assignment.id == api.SubmittedAssignment.assignment_id)
            .join(base, base.c.id == api.Grade.cell_id)
            .filter(api.Assignment.name == assignment, api.Grade.manual_score.isnot(None))
        )
        for student, cell in rows:
            found.setdefault(student, set()).add(cell)
    return found


def sentences(changes: Sequence[Change]) -> Iterator[str]:
    """One line per check that changes, by student, and a summary."""
    for change in sorted(changes, key=lambda one: one.student):
        name = shown(change.student)
        if change.left:
            yield f"{name:<20} left as it is: {change.reason}"
        elif change.reason:
            yield f"{name:<20} can no longer be graded: {change.reason}"
        for part in change.parts:
            stays = "  (given by hand: stays, but must be looked at again)" if part.by_hand else ""
            yield (
                f"{name:<20} {part.exercise:<22} {part.before:g} → {part.after:g}  "
                f"{part.why}{stays}"
            )
    graded = [change for change in changes if not change.reason]
    more = sum(one.difference > 0 for one in graded)
    fewer = sum(one.difference < 0 for one in graded)
    yield (
        f"{len(graded)} graded again: {more} with more points, {fewer} with fewer, "
        f"{len(graded) - more - fewer} unchanged."
    )
