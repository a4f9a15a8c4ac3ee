"""A class run: what to grade, who grades it, and with what result, so that nothing is lost.

    find submissions -> leave out what is graded and unchanged -> hand the others to graders
    a result comes   -> keep it in journal/ASSIGNMENT.pending/ -> note `graded` in the journal
                     -> hand it to the one writer of the gradebook -> note `written`

If it is killed anywhere and run again, it continues: what was graded is not graded again, and what
was not written is written, once.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Container, Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import datetime
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Protocol

from autograde.class_dir import ClassDirError
from autograde.classroom.assignment import Assignment, read_assignment
from autograde.classroom.crew import Crew
from autograde.classroom.files import write_whole
from autograde.classroom.journal import Journal, Known, journal_path, read_known, take
from autograde.classroom.lookups import changed_since_release, students_in
from autograde.classroom.submissions import (
    Submission,
    SubmissionFault,
    find_submissions,
    read_text,
)
from autograde.classroom.verdicts import own_fault, verdict_path
from autograde.sandbox import parent
from autograde.sandbox.limits import Limits
from autograde.seeds import new_seed

GRADERS = "autograde.classroom.marking:work"
WRITER = "autograde.classroom.gradebook:write"
WRITE_CPU_S = 60.0
"""Processor time that writing one submission may take; an ordinary one takes 0.2 s."""
LOOK_S = 0.5
"""How often to look for processes that are stuck."""
UNWRITTEN = 64
"""Results that may wait for the writer before no more submissions are handed out."""
END = object()
"""No more jobs."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What happened to one submission."""

    student: str
    reason: str = ""
    """Why it was not graded; empty if it was."""
    notes: list[str]
    """What is unusual about it although it was graded."""
    seconds: float = 0.0
    """Wall-clock time of the grading."""
    unchanged: bool = False
    """Graded by an earlier run; nothing was done."""

    @property
    def graded(self) -> bool:
        """Whether there is a grade. Without one there is a reason, never a zero."""
        return not self.reason


class Workers(Protocol):
    """A crew here, or a cluster elsewhere."""

    @property
    def pending(self) -> int: ...
    @property
    def has_room(self) -> bool: ...
    def give(self, job: dict[str, Any]) -> None: ...
    def handles(self) -> list[Any]: ...
    def collect(self) -> Iterable[tuple[dict[str, Any], dict[str, Any]]]: ...
    def close(self) -> None: ...


def grade(
    folder: Path,
    assignment: str,
    students: list[str] | None = None,
    limits: Limits = Limits(),  # noqa: B008
    *,
    jobs: int | None = None,
    scheduler: str = "",
    force: bool = False,
    trusted: bool = False,
    device: str = "cpu",
    run_all: bool = False,
) -> Iterator[Outcome]:
    """Grade the submissions of a class, and yield each outcome as soon as it is known.

    Errors that can be found early are raised at once, before the first outcome is requested.

    Grades go to nbgrader's gradebook, graded notebooks to autograded/, reasons to verdicts/. Work
    that was already graded is skipped unless the submission or the exercise has changed since; work
    that could not be graded is tried again.

    Args:
        folder: A class directory, absolute.
        assignment: Its name; it must have been released, because that is when nbgrader learns its
            cells.
        students: Only these; None takes all.
        limits: Time and memory of a submission.
        jobs: Processes that grade at the same time; None takes one per core, and one for a GPU.
        scheduler: Address of a Dask scheduler whose workers grade instead.
        force: Also grade unchanged work, on the same cases.
        trusted: Run submissions with this user's own rights instead of locked away.
        device: Where answers are computed: `cpu`, `cuda:0`, or `auto`, which each worker decides.
        run_all: Also run cells that no exercise needs, see `autograde.classroom.needed`.

    Raises:
        FileNotFoundError: Nothing was handed in.
        ClassDirError: The source notebook has changed since it was released.
        JournalBusyError: Another run is grading this assignment.
    """
    plan = make_plan(folder, assignment, students, limits, force=force, run_all=run_all)
    if plan.num_to_do and not scheduler:
        parent.start(plan.num_to_do)  # it warms up until the first outcome is asked for
    return carry_out(plan, jobs=jobs, scheduler=scheduler, trusted=trusted, device=device)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a run will look at: read, and found fit to be graded."""

    folder: Path
    assignment: Assignment
    submissions: list[Submission]
    limits: Limits
    force: bool
    run_all: bool
    unchanged: list[Outcome]
    """Of submissions that need not be graded again, as things stand."""

    @property
    def num_to_do(self) -> int:
        """How many submissions are new, or have changed since they were graded."""
        return len(self.submissions) - len(self.unchanged)


def make_plan(
    folder: Path,
    assignment: str,
    students: list[str] | None = None,
    limits: Limits = Limits(),  # noqa: B008
    *,
    force: bool = False,
    run_all: bool = False,
) -> Plan:
    """Read what is to be graded, and refuse what can't be; arguments and faults as of `grade`."""
    submissions = find_submissions(folder, assignment, students)
    about = read_assignment(folder, assignment)
    check_release(folder, about)
    known, written = read_known(journal_path(folder, assignment)), students_in(folder, assignment)
    unchanged = [
        Outcome(student=one.student, notes=known[one.student].last["notes"], unchanged=True)
        for one in submissions
        if not force
        and one.student in written & known.keys()
        and is_done(folder, about, limits, one, known[one.student], run_all=run_all)
    ]
    return Plan(
        folder=folder,
        assignment=about,
        submissions=submissions,
        limits=limits,
        force=force,
        run_all=run_all,
        unchanged=unchanged,
    )


def carry_out(
    plan: Plan,
    *,
    jobs: int | None = None,
    scheduler: str = "",
    trusted: bool = False,
    device: str = "cpu",
    crew: Crew | None = None,
) -> Iterator[Outcome]:
    """Grade what a plan says, and yield each outcome as it comes; see `grade`.

    Args:
        plan: Whom to grade.
        jobs, scheduler, trusted, device: As for `grade`.
        crew: Who grades, where it has been asked something before; it is sent home in the end.
    """
    if not plan.num_to_do:
        yield from plan.unchanged
        return
    how = {"trusted": trusted, "device": device, "run_all": plan.run_all}
    with (
        ClassRun(plan.folder, plan.assignment, plan.limits, **how) as run,
        closing(crew or _workers(jobs, scheduler, plan.limits, device)) as graders,
    ):
        written = students_in(plan.folder, plan.assignment.name)
        yield from run.grade(plan.submissions, graders, written=written, force=plan.force)


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _workers(jobs: int | None, scheduler: str, limits: Limits, device: str) -> Workers:
    if scheduler:
        from autograde.classroom.cluster import Cluster

        return Cluster(scheduler, GRADERS)
    return crew_for(jobs, limits, device)


def crew_for(jobs: int | None, limits: Limits, device: str) -> Crew:
    """Processes here that grade; they start when there is something to do. See `grade`."""
    patience_s = max(3600.0, 2 * limits.notebook_s)
    jobs = jobs or (usable_cores() if device == "cpu" else 1)
    return Crew(GRADERS, jobs, patience_s=patience_s)


def is_done(
    folder: Path,
    assignment: Assignment,
    limits: Limits,
    submission: Submission,
    known: Known,
    *,
    run_all: bool,
) -> bool:
    """Whether a submission was graded as it is, by today's exercises, and that is written."""
    last = known.last
    return (
        bool(submission.sha)
        and last.get("graded", False)
        and last["submission"] == submission.sha
        and last["version"] == assignment.version
        and not _has_more_time(last, limits)
        and not (run_all and last.get("not_run"))
        and known.written
        and verdict_path(folder, assignment.name, submission.student).exists()
    )


def _has_more_time(last: dict[str, Any], limits: Limits) -> bool:
    """Whether something ran out of time, and there is more of it now."""
    before, now = last.get("ran_out_of"), asdict(limits)
    return bool(before) and any(now[name] > before[name] for name in before)


class ClassRun:
    """One run over a class: journal, pending results, and the writer of the gradebook."""

    def __init__(
        self,
        folder: Path,
        assignment: Assignment,
        limits: Limits,
        *,
        trusted: bool = False,
        device: str = "cpu",
        writer: str = WRITER,
        run_all: bool = False,
    ) -> None:
        self.device, self.run_all = device, run_all
        self.seed = new_seed()
        """Of all cases of this run: who answers alike gets the same points, and the right answers
        are computed once. The next run has another, which no feedback has told."""
        self.folder, self.assignment, self.limits = folder, assignment, limits
        self.isolation = isolation_for(folder, trusted=trusted)
        path = journal_path(folder, assignment.name)
        self.journal = Journal(path)
        self.known = read_known(path)
        self.plain = assignment.to_json()
        self.pending = path.with_suffix(".pending")
        self._sweep()
        self.writer = Crew(writer, 1, cpu_s=WRITE_CPU_S, finishes=True)

    def grade(
        self,
        submissions: list[Submission],
        graders: Workers,
        *,
        written: Container[str] = frozenset(),
        force: bool = False,
    ) -> Iterator[Outcome]:
        """Grade what has changed, on the given workers, and yield every outcome.

        Those of earlier runs come first, then each as it is done.

        Args:
            submissions: Each student's.
            graders: Who does the work.
            written: Students whose submission the gradebook still holds; the others are graded.
            force: Grade also what is unchanged.
        """
        to_do = []
        for submission in submissions:
            known = self.known.get(submission.student, Known())
            if not force and self._is_done(submission, known) and submission.student in written:
                yield Outcome(student=submission.student, notes=known.last["notes"], unchanged=True)
            else:
                to_do.append(submission)
        jobs = (self._start(submission, force) for submission in to_do)
        for done in rounds(jobs, graders, self.writer):
            for job, result in done:
                self._keep(job, result)
            for job, reply in self.writer.collect():
                yield self._written(job, reply)

    def _is_done(self, submission: Submission, known: Known) -> bool:
        about = self.folder, self.assignment, self.limits
        return is_done(*about, submission, known, run_all=self.run_all)

    def _start(self, submission: Submission, force: bool) -> dict[str, Any] | None:
        """A job for a grader; None where the result is known: then the writer has it."""
        known = self.known.setdefault(submission.student, Known())
        seed = known.seeds.get(submission.sha, self.seed)
        how = {"device": self.device, "run_all": self.run_all}
        job = job_for(submission, self.plain, self.limits, self.isolation, seed, **how)
        kept = None if force else self._kept(job, known)
        if kept is not None:
            self._write(job, kept)
            return None
        fault = submission.fault
        if not fault:
            try:
                return {**job, "text": read_text(submission.path)}
            except SubmissionFault as unreadable:
                fault = str(unreadable)
        self._keep(job, {"graded": False, "reason": fault, "notes": []})
        return None

    def _kept(self, job: dict[str, Any], known: Known) -> dict[str, Any] | None:
        """A result that was noted as graded, and not yet as written, by a run that was killed."""
        last, path = known.last, self._pending_path(job)
        wanted = (job["submission"], self.assignment.version)
        if known.written or not last or (last["submission"], last["version"]) != wanted:
            return None
        if not last["graded"] or not path.exists() or (self.run_all and last.get("not_run")):
            return None
        text = path.read_bytes()
        return json.loads(text) if hashlib.sha256(text).hexdigest() == last["result"] else None

    def _sweep(self) -> None:
        """Remove what a run that was killed left: half-written results, and written ones."""
        waiting = {f"{name}.json" for name, about in self.known.items() if not about.written}
        for path in self.pending.glob("*"):
            if path.name not in waiting:
                path.unlink()

    def _pending_path(self, job: dict[str, Any]) -> Path:
        return self.pending / f"{job['student']}.json"

    def _keep(self, job: dict[str, Any], result: dict[str, Any]) -> None:
        """Keep a result, note it in the journal, and hand it to the writer."""
        if "failed" in result:
            result = {"graded": False, "reason": own_fault(job["path"], result["failed"])}
        result = {"notes": [], "reason": "", "seconds": 0.0, **result}
        text = json.dumps(result, ensure_ascii=False)
        write_whole(self._pending_path(job), text)
        self._note(
            job,
            event="graded",
            graded=result["graded"],
            seed=job["seed"],
            device=result.get("device", job.get("device", "cpu")),
            run_all=job.get("run_all", False),
            times=self._times(),
            trusted=self.isolation["trusted"],
            not_run=result.get("not_run", 0),
            seconds=result["seconds"],
            reason=result["reason"],
            notes=result["notes"],
            ran_out_of=self._times() if ran_out_of_time(result) else {},
            result=hashlib.sha256(text.encode()).hexdigest(),
        )
        self._write(job, result)

    def _times(self) -> dict[str, float]:
        limits = self.limits
        return {n: getattr(limits, n) for n in ("cell_s", "answer_s", "notebook_s")}

    def _write(self, job: dict[str, Any], result: dict[str, Any]) -> None:
        light = {key: value for key, value in job.items() if key != "text"}
        self.writer.give({**light, "folder": str(self.folder), "result": result})

    def _written(self, job: dict[str, Any], reply: dict[str, Any]) -> Outcome:
        result = job["result"]
        failed = reply.get("failed")
        reason = own_fault(job["path"], failed) if failed else reply["reason"]
        if not reason or not result["graded"]:  # else it is tried again, from what is kept
            self._note(job, event="written", durable=False)
            self._pending_path(job).unlink(missing_ok=True)
        else:
            self._note(job, event="unwritten", reason=reason)
        return Outcome(
            student=job["student"],
            reason=reason,
            notes=result["notes"],
            seconds=result["seconds"],
        )

    def _note(self, job: dict[str, Any], *, durable: bool = True, **more: Any) -> None:
        record = {
            **more,
            "student": job["student"],
            "submission": job["submission"],
            "version": self.assignment.version,
            "time": datetime.now().astimezone().isoformat(timespec="seconds"),
        }
        self.journal.append(record, durable=durable)
        take(self.known, record)

    def __enter__(self) -> ClassRun:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.writer.close()
        self.journal.close()


def rounds(
    jobs: Iterator[dict[str, Any] | None], graders: Workers, writer: Workers | None = None
) -> Iterator[list[tuple[dict[str, Any], dict[str, Any]]]]:
    """Hand out jobs while there is room, and give what came back, round by round, to the last.

    Args:
        jobs: Each is made when there is room for it; None needs no grader.
        graders: Who does the work.
        writer: Who takes the results, where somebody does: it is waited for as well.
    """
    more = True
    crews = [crew for crew in (graders, writer) if crew is not None]
    while more or any(crew.pending for crew in crews):
        while more and graders.has_room and (writer is None or writer.pending < UNWRITTEN):
            job = next(jobs, END)
            more = job is not END
            if more and job is not None:
                graders.give(job)
        wait([handle for crew in crews for handle in crew.handles()], timeout=LOOK_S)
        if writer is not None and graders.pending:
            writer.prepare()  # only now: it loads nbgrader while the first submissions run
        yield list(graders.collect())


def isolation_for(folder: Path, *, trusted: bool) -> dict[str, Any]:
    """How a submission is locked away, for a job: the class directory is hidden from it."""
    return {"trusted": trusted, "hidden": [str(folder)]}


def job_for(
    submission: Submission,
    assignment: dict[str, Any],
    limits: Limits,
    isolation: dict[str, Any],
    seed: int,
    device: str = "cpu",
    *,
    run_all: bool = False,
) -> dict[str, Any]:
    """What a grader needs to know about a submission, but for its text."""
    return {
        "student": submission.student,
        "submission": submission.sha,
        "path": str(submission.path),
        "folder": str(submission.path.parent),
        "assignment": assignment,
        "limits": asdict(limits),
        "isolation": isolation,
        "seed": seed,
        "device": device,
        "run_all": run_all,
    }


def ran_out_of_time(result: dict[str, Any]) -> bool:
    """Whether a cell, an answer or the whole notebook was stopped for the time it took."""
    run = [cell for cell in result.get("cells", []) if not cell.get("not_run")]
    outputs = [output for cell in run for output in cell["outputs"]]
    said = [result.get("ended", ""), *(o.get("evalue", "") for o in outputs)]
    return any(check.get("status") == "raised Timeout" for check in result.get("checks", [])) or (
        any("no answer within" in words or "whole notebook were over" in words for words in said)
    )


def check_release(folder: Path, assignment: Assignment) -> None:
    """Refuse to grade by a source notebook that is not the one that was released.

    Raises:
        ClassDirError: It has changed since, or was never released.
    """
    changed = changed_since_release(folder, assignment.name, assignment.cells)
    if changed is None:
        raise ClassDirError(
            f"The gradebook of {folder} does not know {assignment.name}: it was not released, or "
            f"the gradebook is new. Run: autograde release {assignment.name} --dir {folder}"
        )
    if changed:
        raise ClassDirError(
            f"source/{assignment.name} differs from what was released, see '{changed[0]}'. Run: "
            f"autograde release {assignment.name} --dir {folder}"
        )
