"""The class on one page: offline, light and dark, printable, readable without its plots.

    rows, verdicts, journal, notebooks -> numbers and sentences -> page.html

Every text is escaped by the template; plots are SVG inside the page, and each says in words what it
shows. A number that the class is too small for is a sentence, never a NaN.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from autograde.class_dir import few
from autograde.classroom.class_plots import exercise_plot, score_plot, score_words
from autograde.classroom.conspicuous import words_for
from autograde.classroom.export import (
    doubtful_times,
    nothing_handed_in,
    read_marks,
    stale_penalties,
)
from autograde.classroom.files import write_whole
from autograde.classroom.journal import journal_path, read_known
from autograde.classroom.reasons import read_verdicts
from autograde.classroom.report import Row, read_rows
from autograde.classroom.safe_html import POLICY
from autograde.classroom.similarity import (
    LEAST_CLASS,
    MIN_SHARED,
    Cells,
    Pair,
    near_identical,
)
from autograde.classroom.statistics import ExerciseStatistics, median, statistics_of
from autograde.classroom.student_code import (
    READ_BYTES,
    READ_S,
    could_not_be_read,
    read_code,
    side_by_side,
)
from autograde.classroom.verdicts import NOT_JUDGED
from autograde.reported import legible
from autograde.sandbox.bounds import TooMuchError, at_most

MAX_PAIRS = 20
"""Pairs shown side by side; more are named."""
KINDS = (
    *("not graded", "crashed", "timed out", "lateness", "edited checks", "odd"),
    "not on the class list",
    *("cleaned", "to read", "near-identical", "by hand"),
)
"""Why a submission needs a person, most urgent first."""
WHAT_IT_MEANS = {
    "edited checks": "a locked cell is missing, or differs from the released one by more than "
    "trailing blanks. The released one was graded, so this changes no points.",
    "odd": "the notebook differs in some other way; the line says what was graded.",
    "to read": "the grader failed on an answer, or did not read some code; or the code resembles "
    "the course's own, names a part of Python that an answer rarely needs, or fixes a loop by "
    "another function. There are honest reasons for the last three; read the cell first.",
    "cleaned": "what a browser would run or fetch was removed from what is shown; as-handed-in.txt "
    "in autograded/ holds everything. Most of it comes from tools that students use.",
    "near-identical": "two students wrote almost the same. It is unknown who wrote first, and "
    "students who learn together write alike.",
}
"""What a kind says, and what it does not: these are questions, and change no points."""
OWN_NOTEBOOK = re.compile(r"^submitted/[^/]+/([^/]+)/\1\.ipynb: ")


@dataclass(frozen=True, kw_only=True)
class Shared:
    """A misconception and the students who show it."""

    exercise: str
    name: str
    message: str
    """What the check says to a student who has it."""
    students: list[str]


@dataclass(frozen=True, kw_only=True)
class Concern:
    """Something about a submission that a person should look at."""

    student: str
    kind: str
    words: str


def write_page(folder: Path, assignment: str, output: Path | None = None) -> Path:
    """Write the class page, by default report/ASSIGNMENT.html in the class directory.

    Raises:
        FileNotFoundError: Nothing has been graded yet.
        ValueError: The file cannot be written.
    """
    path = output or folder / "report" / f"{assignment}.html"
    text = class_page(folder, assignment)
    try:
        write_whole(path, text)
    except OSError as fault:
        raise ValueError(f"{path} cannot be written ({fault.strerror}). Try --html FILE.") from None
    return path


def class_page(folder: Path, assignment: str) -> str:
    """The class page as HTML.

    Args:
        folder: A class directory, absolute.
        assignment: Its name.

    Raises:
        FileNotFoundError: Nothing has been graded yet.
    """
    rows = read_rows(folder, assignment)
    verdicts = read_verdicts(folder, assignment)
    graded = [row for row in rows if not row.not_graded]
    students, given, unread = read_code(folder, assignment, [row.student for row in rows])
    pairs = near_identical(students, given)
    missing = nothing_handed_in(folder, assignment)
    of_graded = {row.student: verdicts[row.student] for row in graded}
    late = {**stale_penalties(folder, assignment), **doubtful_times(folder, assignment)}
    exercises = exercise_statistics(graded)
    scores = [row.total for row in graded]
    best = max((row.max_total for row in graded), default=0.0)
    return render(
        "page.html",
        assignment=assignment,
        rows=rows,
        graded=graded,
        missing=len(missing),
        missing_names=few(missing, most=40),
        what_it_means=WHAT_IT_MEANS,
        concerns=concerns(rows, verdicts, pairs, students, folder, late, unread),
        waiting=sum(len(row.to_grade_by_hand) for row in rows),
        score_words=score_words(scores, best),
        so_far=scores_so_far(graded),
        score_plot=score_plot(scores, best),
        exercises=exercises,
        exercise_plot=exercise_plot(exercises),
        shared=shared_misconceptions(of_graded),
        unknown=unrecognised(of_graded),
        time=time_and_attempts(folder, assignment, verdicts),
        pairs=[(pair, side_by_side(pair, students)) for pair in pairs[:MAX_PAIRS]],
        more_pairs=pairs[MAX_PAIRS:],
        compared=len(students),
        least=MIN_SHARED // 2,
        least_class=LEAST_CLASS,
    )


def render(template: str, **about: Any) -> str:
    """A page of ours: every text is escaped, and the policy lets nothing run or be fetched.

    Args:
        template: A file next to this one.
        about: What it shows.
    """
    import jinja2
    from markupsafe import Markup

    here = Path(__file__)
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda shown: legible(shown) if type(shown) is str else shown,
    )
    return environment.from_string(here.with_name(template).read_text("utf-8")).render(
        policy=POLICY,
        style=Markup(here.with_name("page.css").read_text("utf-8")),
        made=datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
        **about,
    )


def exercise_statistics(graded: list[Row]) -> list[ExerciseStatistics]:
    """Difficulty and discrimination of each exercise, in the notebook's order."""
    names = list(dict.fromkeys(name for row in graded for name in row.scores))
    totals = {row.student: sum(row.scores.values()) for row in graded}
    best = {name: score for row in graded for name, score in row.max_scores.items()}
    waiting = {name: len(who) for name, who in waiting_answers(graded).items()}
    final = {
        name: {
            row.student: row.scores[name]
            for row in graded
            if name in row.scores and name not in row.to_grade_by_hand
        }
        for name in names
    }
    return [
        statistics_of(name, final[name], totals, best[name], waiting=waiting.get(name, 0))
        for name in names
    ]


def scores_so_far(graded: list[Row]) -> str:
    """What the scores include and what is missing, a sentence each; empty if nothing is to be
    said."""
    said = []
    if waiting := sum(len(row.to_grade_by_hand) for row in graded):
        if waiting == 1:
            said.append("Not final: 1 answer that must be graded by hand counts as 0 so far.")
        else:
            said.append(
                f"Not final: {waiting} answers that must be graded by hand count as 0 so far."
            )
    if late := sum(row.penalty > 0 for row in graded):
        said.append(f"Late penalties are subtracted ({_count(late, 'student')}).")
    return " ".join(said)


def shared_misconceptions(verdicts: Mapping[str, Mapping[str, Any]]) -> list[Shared]:
    """How many students show each misconception, most shared first."""
    who: dict[tuple[str, str], list[str]] = defaultdict(list)
    for student, verdict in verdicts.items():
        for check in verdict.get("checks", []):
            for name in filter(None, (check.get("misconception") or "").split(", ")):
                if student not in who[check["exercise"], name]:
                    who[check["exercise"], name].append(student)
    found = [
        Shared(exercise=exercise, name=name, message=_message(exercise, name), students=students)
        for (exercise, name), students in who.items()
    ]
    return sorted(found, key=lambda shared: (-len(shared.students), shared.exercise, shared.name))


def _message(exercise: str, name: str) -> str:
    from autograde import bank
    from course.catalogue import UnknownIdError

    try:
        known = {w.name: w.message for w in bank.load(exercise).wrong if w.message}
    except UnknownIdError:
        known = {}
    message = known.get(name, "The bank no longer holds this misconception.")
    return OWN_NUMBER.sub(r"\1", message)


OWN_NUMBER = re.compile(r"\{(\w+)[^{}]*\}")
"""A number that each student has drawn; the row stands for all of them, so it is named."""


def unrecognised(verdicts: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str, list[str]]]:
    """Answers that are wrong without a known misconception: exercise, status and students."""
    who: dict[tuple[str, str], list[str]] = defaultdict(list)
    for student, verdict in verdicts.items():
        for check in verdict.get("checks", []):
            key = check["exercise"], check["status"]
            if check["status"] != "right" and not check.get("misconception"):
                who[key] += [student] if student not in who[key] else []
    ordered = sorted(who.items(), key=lambda item: (-len(item[1]), item[0]))
    return [(exercise, status, students) for (exercise, status), students in ordered]


MOST_CELLS = 30
"""Cells that one line about two students names."""


def concerns(
    rows: list[Row],
    verdicts: Mapping[str, Mapping[str, Any]],
    pairs: list[Pair],
    code: Mapping[str, Cells],
    folder: Path,
    late: Mapping[str, str] | None = None,
    unread: Mapping[str, Sequence[str]] | None = None,
) -> list[Concern]:
    """Submissions that need a person, by kind and student.

    Args:
        late: Doubts about submission times and late penalties, by student.
        unread: What of a student's code was not read, and why, by student.
    """
    found = []
    for row in rows:
        said = _concerns_about(row, verdicts[row.student], code.get(row.student, {}))
        found += [(row.student, kind, words) for kind, words in said]
        if late and row.student in late:
            found.append((row.student, "lateness", late[row.student]))
        if unread and not row.not_graded:
            found += [(row.student, "to read", words) for words in unread.get(row.student, ())]
    for cell, students in waiting_answers(rows).items():
        words = f"{cell}: {few(students, most=20)}"
        found.append((_count(len(students), "student"), "by hand", words))
    for pair in pairs:
        places = few([name for name, *_ in pair.places], most=MOST_CELLS)
        words = f"{100 * pair.score:.0f} % alike in {places}"
        found.append((f"{pair.first}, {pair.second}", "near-identical", words))
    concerns = [
        Concern(student=whose, kind=kind, words=_without_place(words, folder))
        for whose, kind, words in found
    ]
    return sorted(concerns, key=lambda concern: KINDS.index(concern.kind))


def _concerns_about(
    row: Row, verdict: Mapping[str, Any], cells: Cells
) -> Iterator[tuple[str, str]]:
    """What one submission gives a person to look at: the kind, and the words."""
    if row.not_graded:
        yield "not graded", row.not_graded
    if verdict.get("ended"):
        yield "crashed", verdict["ended"]
    slow = [name for name, status in row.seen.items() if status == "raised Timeout"]
    if slow:
        yield "timed out", f"no answer in time: {', '.join(slow)}"
    for note in verdict.get("notes", []):
        edited = "was edited" in note or "was deleted" in note
        unjudged = f": {NOT_JUDGED}" in note
        yield "edited checks" if edited else "to read" if unjudged else "odd", note
    if removed := verdict.get("cleaned"):
        yield "cleaned", few(removed, most=8)
    if row.off_roster:
        yield "not on the class list", "is the folder's name the student's id?"
    yield from (("to read", words) for words in verdict.get("noted", ()))
    yield from (("to read", words) for words in _words_in_time(cells, row))


def _without_place(words: str, folder: Path) -> str:
    """Words without the path of a submission: the row says whose it is."""
    return OWN_NOTEBOOK.sub("", words.replace(f"{folder}/", ""))


def _words_in_time(cells: Cells, row: Row) -> list[str]:
    try:
        with at_most(READ_S, READ_BYTES):
            return words_for(cells, row.max_scores)
    except TooMuchError as fault:
        return [f"reading its code takes {fault}"]
    except Exception as fault:  # of one submission: the page still comes for all
        return [could_not_be_read(fault)]


def waiting_answers(rows: list[Row]) -> dict[str, list[str]]:
    """Whose answers must be graded by hand: one line per question, even in a class of 1,000."""
    waiting: dict[str, list[str]] = {}
    for row in rows:
        for cell in row.to_grade_by_hand:
            waiting.setdefault(cell, []).append(row.student)
    return waiting


def time_and_attempts(
    folder: Path, assignment: str, verdicts: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """What is recorded about time and attempts, and what is not, a sentence each."""
    return [
        *_attempts(folder, assignment),
        *_grading_time(verdicts),
        *_not_run(verdicts),
        *_handed_in(folder, assignment, len(verdicts)),
        "How long students worked is not recorded: a notebook does not contain it, and the course "
        "does not track it.",
    ]


def _attempts(folder: Path, assignment: str) -> Iterator[str]:
    attempts = {
        student: known.attempts
        for student, known in read_known(journal_path(folder, assignment)).items()
        if known.attempts
    }
    if not attempts:
        yield "How often students handed in is not recorded: there is no journal."
        return
    counts = sorted(Counter(attempts.values()).items())
    words = ", ".join(
        f"{_count(many, 'student')} with {_count(count, 'version')}" for count, many in counts
    )
    most = max(attempts.values())
    who = [student for student, count in attempts.items() if count == most]
    named = f"; most often: {few(who)}" if most > 1 else ""
    yield f"Versions of the notebook that were handed in and graded or refused: {words}{named}."


def _grading_time(verdicts: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    seconds = {s: v["seconds"] for s, v in verdicts.items() if v.get("seconds")}
    if seconds:
        slowest = max(seconds, key=lambda student: seconds[student])
        yield (
            f"Grading took a median of {median(list(seconds.values())):.1f} s per submission, "
            f"{seconds[slowest]:.1f} s at most ({slowest})."
        )


def _not_run(verdicts: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """How many code cells were not run, where any was, and of whom all were."""
    known = {student: one for student, one in verdicts.items() if one.get("code_cells")}
    some = {student: one for student, one in known.items() if one.get("not_run")}
    if some:
        counts = sorted(one["not_run"] for one in some.values())
        least, most = counts[0], counts[-1]
        number = f"{least}" if least == most else f"{least} to {most}"
        cells = max(one["code_cells"] for one in some.values())
        whole = sorted(set(known) - set(some))
        of_all = f" Every cell was run for {few(whole, most=20)}." if whole else ""
        yield (
            f"{number} of {cells} code cells were not run: no exercise needs them, and "
            f"they were handed in unchanged. Their outputs are shown as handed in.{of_all}"
        )


def _handed_in(folder: Path, assignment: str, count: int) -> Iterator[str]:
    """When, of so many submissions, and who was late."""
    marks = read_marks(folder, assignment).students
    stamps = sorted(mark.timestamp for mark in marks if mark.timestamp)
    late = sorted((mark for mark in marks if mark.late_s > 0), key=lambda mark: -mark.late_s)
    if late:
        named = few([f"{mark.student} ({_how_late(mark.late_s)})" for mark in late], most=20)
        yield f"After the due date: {named}."
    if stamps:
        when = f"from {stamps[0]} to {stamps[-1]}" if stamps[1:] else f"at {stamps[0]}"
        yield f"Handed in {when} UTC ({len(stamps)} of {count} with a timestamp.txt)."
    else:
        yield (
            "When students handed in is not recorded: there is no timestamp.txt next to any "
            "notebook."
        )


def _how_late(seconds: float) -> str:
    """As `1 d 12 h`, or `40 min`."""
    minutes = math.ceil(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours = minutes // 60
    return f"{hours // 24} d {hours % 24} h" if hours >= 24 else f"{hours} h {minutes % 60} min"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
