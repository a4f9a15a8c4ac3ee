"""Grade one notebook: the student's cells run in their own process, the referee judges the checks.

This is the work of one process of many. It reads no class directory and writes none: a job comes as
plain data and a result goes back, so the same work can be done on another machine. An error here,
and not in the submission, is the grader's fault: it gives no grade, never a zero.
"""

from __future__ import annotations

import hashlib
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from autograde import bank, devices
from autograde.answers import Raised
from autograde.class_dir import few
from autograde.classroom.assignment import exercises_version
from autograde.classroom.cells import Cell, grade_id, is_check, restore
from autograde.classroom.clean import Removed, clean_output, given_sources
from autograde.classroom.names import MAX_SHOWN
from autograde.classroom.needed import unneeded
from autograde.classroom.not_run import handed_in, misses_something
from autograde.classroom.notebook_text import read_notebook
from autograde.classroom.submissions import SubmissionFault
from autograde.classroom.verdicts import NOT_JUDGED, own_fault
from autograde.exercise import Exercise
from autograde.kinds import ValueExercise
from autograde.kinds.fix import CODE, RAN, written_change
from autograde.kinds.handed_on import calls_packed, codes_named, ran_besides, without_the_loop
from autograde.kinds.value import typed_another
from autograde.referee import RefereeFault, judge
from autograde.reported import on_a_line, quoted
from autograde.sandbox.isolation import Isolation, IsolationError
from autograde.sandbox.limits import Limits
from autograde.sandbox.protections import tell
from autograde.sandbox.reaching import WORDS
from autograde.sandbox.session import StudentSession
from autograde.seeds import another_seed
from autograde.sources import CheckCall, points_of
from autograde.verdict import PartResult, Verdict
from autograde.words import UNJUDGED, as_html, message
from course.engine import choose_device


def work(job: dict[str, Any]) -> dict[str, Any]:
    """What a process that grades is asked: to grade a submission, or first of all, with no path,
    which protections its machine gives."""
    return mark(job) if "path" in job else tell(job)


MAX_OUTPUTS = 2000
"""Outputs of a notebook that are kept: whoever writes the gradebook, one for all, takes about two
milliseconds for each."""
ONE_AT_A_TIME = threading.Lock()
"""The reference's random numbers are the process's own: a Dask worker may have several threads."""


def mark(job: dict[str, Any]) -> dict[str, Any]:
    """Grade a submission.

    Args:
        job: `path` (for messages), `folder` (whose files the student's process may see), `text`
            (of the notebook), `assignment`, `limits`, `isolation`, `seed`, `device`, and `run_all`
            where cells are run that no exercise needs.

    Returns:
        `graded`; if not, `reason`; `notes` on what is odd; `seconds`; and of a graded one `cells`
        (source and outputs of each code cell), how many of them were `not_run`, `checks`, `ended`.
    """
    started = time.monotonic()
    with ONE_AT_A_TIME:
        try:
            result = _mark(job)
        except SubmissionFault as fault:
            result = {"graded": False, "reason": str(fault), "notes": []}
        except Exception as fault:
            result = {"graded": False, "reason": own_fault(job["path"], fault), "notes": []}
    return {**result, "seconds": round(time.monotonic() - started, 3)}


def _mark(job: dict[str, Any]) -> dict[str, Any]:
    assignment = job["assignment"]
    cells, notes = read_notebook(job["path"], job["text"], assignment)
    restore(cells, assignment["cells"])
    _same_world(job)
    _same_points(job)
    released = [] if job.get("run_all") else assignment.get("released_code", [])
    not_run = unneeded(cells, released, assignment["calls"])
    run = _Run(job, cells, not_run)
    run.through()
    if not_run and not run.used_all_time and misses_something(run.shown, run.verdicts):
        again = {**job, "seed": another_seed(job["seed"])}  # what the first run saw is of no use
        run = _Run(again, cells, set())
        run.through()
    devices.must_compute(run.device)
    notes += (f"{job['path']}: {words}" for words in run.names_typed())
    return {"graded": True, **run.result(), "notes": [*notes, *run.notes]}


class _Run:
    """A submission's cells, run one after the other, and its checks, asked where they stand.

    Args:
        job: As `mark` is given it.
        cells: Of the submission, the assignment's own as they were.
        not_run: Places of cells that are shown as handed in.
    """

    def __init__(self, job: dict[str, Any], cells: list[Cell], not_run: set[int]) -> None:
        self.job, self.seed, self.cells, self.not_run = job, job["seed"], cells, not_run
        self.ended = ""
        self.noted: list[str] = []
        """What its code reached for: sentences, to be read by a person."""
        self.device = str(choose_device(job.get("device", "cpu")))
        self.removed = Removed(cells, given_sources(job["assignment"]))
        self.shown: list[dict[str, Any]] = []
        self.records: list[dict[str, Any]] = []
        self.verdicts: list[Verdict] = []
        self.answered: Answered = {}
        self.to_fix = _ToFix()
        self.notes: list[str] = []
        self.for_another: dict[str, list[str]] = {}
        """Exercises whose numbers are right for another name, by the name typed."""
        self.outputs_left = MAX_OUTPUTS
        self.used_all_time = False
        """Whether the process was ended as the whole notebook's time was over."""
        self.seeds: dict[str, int] = {}
        """Of the cases that a function was last asked, by its name."""

    def through(self) -> None:
        """Run the cells in a process of the student's, and ask the checks."""
        job, device = self.job, self.device
        hidden = tuple(Path(folder) for folder in job["isolation"]["hidden"])
        isolation = Isolation(
            trusted=job["isolation"]["trusted"], hidden=hidden, devices=devices.files(device)
        )
        limits = Limits(**job["limits"])
        with StudentSession(Path(job["folder"]), limits, isolation, device) as session:
            session.run(SEED_EVERYTHING.format(_students_seed(self.seed)))
            for number, cell in enumerate(self.cells):
                if cell["cell_type"] == "code":
                    about = self._looked_at(session, cell, run=number not in self.not_run)
                    self.shown.append({"source": cell["source"], **about})
            self.ended = session.ended
            self.noted = [words for what, words in WORDS.items() if what in session.noted]
            self.noted += self.to_fix.words()
            self.used_all_time = bool(session.ended) and session.is_last

    def _looked_at(self, session: StudentSession, cell: Cell, *, run: bool) -> dict[str, Any]:
        """A code cell's outputs: of a check its verdict, else what it shows."""
        if is_check(cell):
            verdict, text = self._judged(session, cell)
            self.verdicts.append(verdict)
            self.records.append(_record(cell, verdict, text))
            return {"outputs": [_shown(verdict, text)], "check": True}
        said = self.removed.say(cell)
        if not run:
            return {"outputs": self._kept(handed_in(cell, said)), "not_run": True}
        self.answered.clear()
        outputs = self._kept(session.run(cell["source"]))
        return {"outputs": [clean_output(output, said) for output in outputs]}

    def _kept(self, outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """As many of a cell's outputs as the notebook still has room for."""
        kept = outputs[: self.outputs_left]
        self.outputs_left -= len(kept)
        if more := len(outputs) - len(kept):
            words = f"{more:,} more outputs are not kept: a notebook has room for {MAX_OUTPUTS:,}."
            kept.append({"output_type": "stream", "name": "stdout", "text": f"{words}\n"})
        return kept

    def _judged(self, session: StudentSession, cell: Cell) -> tuple[Verdict, str]:
        """The verdict of a check and its message; an answer on which we fail costs itself alone."""
        call = self.job["assignment"]["calls"][grade_id(cell)]
        sources = [one["source"] for one in self.shown]
        exercise, student = bank.load(call["exercise_id"]), self.job.get("student", "")
        seed = self._seed_of(call["function"])
        try:
            verdict = _referee(session, call, seed, student, sources, self.answered, self.to_fix)
            if verdict.passed and exercise.kind != "fix":
                self.to_fix.right.append((sources, call["function"]))
            for typed in {*map(typed_another, verdict.parts)} - {""}:
                self.for_another.setdefault(typed, []).append(exercise.id)
            return verdict, message(verdict, exercise)
        except Exception as fault:
            if not is_of_the_answer(fault):
                raise
            self.notes.append(f"{self.job['path']}: {_to_read(cell, fault)}")
            verdict = _not_judged(exercise, call, seed, fault)
            return verdict, message(verdict, exercise)

    def _seed_of(self, function: str) -> int:
        """The seed of a function's cases: another one where a cell ran since they were asked, and
        could have worked out their answers."""
        before = self.seeds.get(function)
        if before is None:
            self.seeds[function] = self.seed
        elif not any(asked == function for asked, _ in self.answered):
            self.seeds[function] = another_seed(before)
        return self.seeds[function]

    def names_typed(self) -> Iterator[str]:
        """Of another name that was typed, and for whose numbers answers are right."""
        for typed, exercises in self.for_another.items():
            yield (
                f"{few(exercises)}: right for the numbers of '{typed}', the name typed at the top, "
                f"but not for those of '{self.job.get('student', '')}'. Whose notebook is it?"
            )

    def result(self) -> dict[str, Any]:
        """What `mark` returns of it."""
        return {
            "cleaned": self.removed.words(),
            "cells": self.shown,
            "not_run": sum(cell.get("not_run", False) for cell in self.shown),
            "checks": self.records,
            "ended": self.ended,
            "noted": self.noted,
            "device": self.device,
        }


SEED_EVERYTHING = """\
__import__("random").seed({0}); __import__("numpy").random.seed({0})
__import__("torch").manual_seed({0});"""
"""Before the first cell, so that work that draws at random gets the same grade every time."""


def _students_seed(seed: int) -> int:
    """From which the referee's own cannot be told."""
    return int.from_bytes(hashlib.sha256(f"student {seed}".encode()).digest()[:4])


def _same_points(job: dict[str, Any]) -> None:
    """That each check is worth in the class directory what it gives, as nbgrader keeps no more than
    that, and would show less as a part of it.

    Raises:
        SubmissionFault: One is not, as where somebody has changed the points of its cell.
    """
    assignment = job["assignment"]
    for cell in assignment["cells"]:
        call = assignment["calls"].get(grade_id(cell))
        worth = cell["metadata"]["nbgrader"].get("points")
        if call and worth != (gives := points_of(CheckCall(**call))):
            raise SubmissionFault(
                f"{job['path']}: cell '{grade_id(cell)}' is worth {worth:g} in "
                f"source/, but its check gives {gives:g}. Give the cell {gives:g} points there, "
                "release it, then grade again."
            )


def _same_world(job: dict[str, Any]) -> None:
    """On a machine of a cluster: that it sees the submission, and has the run's exercises."""
    if not Path(job["folder"]).is_dir():
        raise FileNotFoundError(f"{socket.gethostname()} cannot see {job['folder']}")
    if exercises_version(_exercises(job["assignment"])) != job["assignment"]["exercises"]:
        raise RuntimeError(
            f"{socket.gethostname()} has different exercises from this run: install the same "
            "version"
        )


def _exercises(assignment: dict[str, Any]) -> tuple[str, ...]:
    return tuple(sorted({call["exercise_id"] for call in assignment["calls"].values()}))


Answered = dict[tuple[str, int], tuple[Any, Any]]
"""Cases and answers since a cell was last run, by function and the case's identity."""


def _referee(
    session: StudentSession,
    call: dict[str, str],
    seed: int,
    student: str,
    sources: list[str],
    answered: Answered,
    to_fix: _ToFix,
) -> Verdict:
    exercise = bank.load(call["exercise_id"])
    if isinstance(exercise, ValueExercise):
        value, typed = session.value_of(call["function"])
        return exercise.judge_value(value, student, typed=typed)

    before = dict(answered)

    def ask(case: dict[str, Any]) -> Any:
        """The answer to a case; to one of the check just before, which a hidden one asks again,
        the answer that it got."""
        key = (call["function"], id(case))
        if key not in before:
            answered[key] = (
                case,
                _answer(session, exercise, call["function"], case, sources, to_fix),
            )
        return answered[key][1]

    device = torch.device(session.device)
    return judge(exercise, ask, seed=seed, parts=call["parts"], device=device)


OF_THE_MACHINE = (
    *(RefereeFault, IsolationError, OSError, MemoryError),
    *(torch.AcceleratorError, torch.OutOfMemoryError),
)


def is_of_the_answer(fault: Exception) -> bool:
    """Whether an exception of the referee's may come of what was answered: not where reference,
    sandbox, machine or device failed, which gives no grade at all."""
    if isinstance(fault, OF_THE_MACHINE):
        return False
    of_torch = str(fault) if isinstance(fault, RuntimeError) else ""
    return not (devices.is_lost(of_torch) or "allocate memory" in of_torch)


def _not_judged(exercise: Exercise, call: dict[str, str], seed: int, fault: Exception) -> Verdict:
    """No points for a check on whose answer the grader itself failed, and why."""
    asked = call.get("parts", "shown")
    parts = [p for p in exercise.parts if asked == "all" or p.hidden == (asked == "hidden")]
    says = f"The grader itself failed on this answer ({_short(fault)}), so it has no points until "
    raised = Raised(UNJUDGED, says + "a person has read it. This says nothing about the answer.")
    return Verdict(
        exercise_id=exercise.id,
        seed=seed,
        points=0,
        max_points=sum(part.points for part in parts),
        parts=[PartResult(part, False, raised=raised) for part in parts],
    )


def _to_read(cell: Cell, fault: Exception) -> str:
    return (
        f"{NOT_JUDGED}the answer to '{grade_id(cell)}' ({_short(fault)}). It has 0 points: read it "
        "and give its points by hand. Please report the error, too."
    )


def _short(fault: Exception) -> str:
    return f"{type(fault).__name__}: {quoted(on_a_line(str(fault), 100))}"


def _answer(
    session: StudentSession,
    exercise: Exercise,
    function: str,
    case: dict[str, Any],
    sources: list[str],
    to_fix: _ToFix,
) -> Any:
    answer = session.ask(exercise.id, function, case)
    if exercise.kind == "fix" and isinstance(answer, dict) and "changed" in answer:
        code = str(answer.pop(CODE, ""))
        ran = _as_told(answer.pop(RAN, {}))
        if not code:  # decorated: it has no points for its lines, and what ran is the loop as well
            ran = without_the_loop(exercise, sources, ran)
        to_fix.ran.setdefault(exercise.id, {}).update(ran)
        if (loop := (exercise.id, code)) not in to_fix.packed:  # each case has the same, as a rule
            to_fix.packed[loop] = calls_packed(exercise, sources, code)
        answer["changed"] = written_change(exercise, sources, code)  # not what the process says
    return answer


@dataclass
class _ToFix:
    """What a person is to read of loops to fix, by exercise."""

    ran: dict[str, dict[str, Any]] = field(default_factory=dict)
    packed: dict[tuple[str, str], int] = field(default_factory=dict)
    """By exercise and `code_of` the loop that was called."""
    right: list[tuple[list[str], str]] = field(default_factory=list)
    """What answered other exercises, which a loop may use: the cells up to the check, its name."""

    def words(self) -> list[str]:
        """A sentence for each."""
        said: list[str] = []
        for id, ran in self.ran.items():
            exercise = bank.load(id)
            if found := ran_besides(exercise, ran, self._may_use if ran else ()):
                names = few([_name(one) for one in sorted(found)], most=MOST_NAMED)
                said.append(
                    f"while its {exercise.name} was called, code of its own ran that the given one "
                    f"does not run, {sum(found.values())} lines or calls in all, which are not "
                    f"counted as changed: {names}"
                )
            if packed := max(n for (loop, _), n in self.packed.items() if loop == id):
                said.append(
                    f"its {exercise.name} makes {packed} calls more than the given one inside "
                    "comprehensions, lambdas, tuples and the like, where a line counts as one "
                    "change whatever it holds"
                )
        return said

    @cached_property
    def _may_use(self) -> set[str]:
        return {code for cells, name in self.right for code in codes_named(cells, name)}


MOST_NAMED = 10
"""Names that one line of the class page has room for."""


def _name(told: str) -> str:
    """A name as the student's process told it."""
    usual = (
        told.isascii() and told.replace(".", "").replace("<", "").replace(">", "").isidentifier()
    )
    return told if usual else quoted(on_a_line(told, MAX_SHOWN))


def _as_told(ran: Any) -> dict[str, Any]:
    return ran if isinstance(ran, dict) else {}


def _shown(verdict: Verdict, text: str) -> dict[str, Any]:
    """A check's result as `check` shows it: points for nbgrader, a message for people."""
    data = {"text/plain": f"{verdict.points:g}", "text/html": as_html(text, verdict.passed)}
    kind = {"output_type": "execute_result", "execution_count": None}
    return {**kind, "data": data, "metadata": {}}  # the notebook is validated when it is written


def _record(cell: Cell, verdict: Verdict, text: str) -> dict[str, Any]:
    return {
        "grade_id": grade_id(cell),
        "exercise": verdict.exercise_id,
        "points": verdict.points,
        "max_points": verdict.max_points,
        "status": verdict.status,
        "misconception": verdict.misconception,
        "message": text,
        "parts": {result.part.key: result.passed for result in verdict.parts},
    }
