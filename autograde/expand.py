"""Expand `# %% exercise ID` in a notebook's source to that exercise's cells, from the bank.

    # %% exercise 03a.clip
    # What is asked, in Markdown: shown below the head.
    def clip_by_global_norm(parameters, max_norm):
        ...
        ### BEGIN SOLUTION
        ...
        ### END SOLUTION

    head        title, difficulty, minutes, points, what to read; then the text above
                and, of a loop to fix, how many lines may differ
    answer      the code; a number's solution in terms of `q`; an option's is made here
    check       with the bank's points
    hidden      where the bank has hidden parts: collapsed, and empty for students
    reason      where the exercise asks for one: question and rubric, and a cell for the answer

Grade ids are the exercise's own: `clip`, `clip-check`, `clip-hidden`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from typing import Any

from autograde import bank
from autograde.exercise import Exercise
from autograde.kinds import Number, Reason, ValueExercise
from autograde.kinds.fix import limit

MARKER = re.compile(r"^# %% exercise +(\S+) *$")


class ExpandError(ValueError):
    """An exercise's cell in a source lacks something; the message says what."""


def expand(text: str) -> str:
    """The source with every exercise's cell written out.

    Args:
        text: jupytext percent text.

    Raises:
        ExpandError: An unknown exercise, or a cell without what its kind needs.
    """
    out: list[str] = []
    lines = iter(text.splitlines())
    line = next(lines, None)
    while line is not None:
        if found := MARKER.match(line):
            body: list[str] = []
            while (line := next(lines, None)) is not None and not line.startswith("# %%"):
                body.append(line)
            out += [*cells_of(found[1], body), ""]
        else:
            out.append(line)
            line = next(lines, None)
    return "\n".join(out) + "\n"


def cells_of(id: str, body: list[str]) -> Iterator[str]:
    """The lines of an exercise's cells.

    Args:
        id: The exercise.
        body: Lines of its cell in the source: a text in comments, then code.
    """
    if id not in bank.catalogue():
        known = ", ".join(bank.catalogue())
        raise ExpandError(f"# %% exercise {id}: the bank has no such exercise. It has: {known}.")
    exercise = bank.load(id)
    text, code = _parted(body)
    if exercise.kind == "fix":
        text += ["", limit(exercise)]
    yield from _markdown([head(exercise), *(["", *text] if text else [])])
    if isinstance(exercise, ValueExercise):
        if exercise.parts:
            yield from _value_cells(exercise, code)
    else:
        yield from _code_cells(exercise, code)
    if reason := getattr(exercise, "reason", None):
        yield from _reason_cells(exercise, reason)


def tail(exercise: Exercise) -> str:
    """What the exercise's grade ids begin with: its id without the notebook's."""
    return exercise.id.partition(".")[2]


def head(exercise: Exercise) -> str:
    """Title, difficulty, minutes, points and reading, as Markdown."""
    dots = "●" * exercise.difficulty + "○" * (3 - exercise.difficulty)
    points = "1 point" if exercise.points == 1 else f"{exercise.points:g} points"
    reading = ", ".join(f"`{item}`" if "." in item else item for item in exercise.read)
    return (
        f"**Exercise {exercise.id} · {exercise.title}**  \n"
        f"{dots} · {exercise.minutes} min · {points} · read {reading}"
    )


def _parted(body: list[str]) -> tuple[list[str], list[str]]:
    """The leading comment as Markdown lines, and the code after it."""
    rest = body.copy()
    text = []
    while rest and (rest[0].startswith("# ") or rest[0] == "#"):
        text.append(rest.pop(0)[2:])
    code = "\n".join(rest).strip("\n")
    return text, code.splitlines()


def _code_cells(exercise: Exercise, code: list[str]) -> Iterator[str]:
    if exercise.kind == "fix":
        yield from _given_loop(exercise, code)
        return
    kind = "class" if exercise.kind == "class" else "def"
    if not any(re.match(rf"{kind} {exercise.name}\b", line) for line in code):
        raise ExpandError(
            f"# %% exercise {exercise.id}: its cell defines no `{kind} {exercise.name}`, which "
            f"the bank asks for: {exercise.signature}."
        )
    _need_solution(exercise, code)
    yield from _cell(tail(exercise), code, solution=True)
    yield from _check_cells(exercise)


def _given_loop(exercise: Exercise, code: list[str]) -> Iterator[str]:
    """The bank's loop to be fixed, and the fixed one in its place for who may see it."""
    if code:
        raise ExpandError(
            f"# %% exercise {exercise.id}: the loop to be fixed is the bank's GIVEN, and its "
            "solution FIXED; leave out the code."
        )
    module = sys.modules[exercise.run.__module__]
    given, fixed = module.GIVEN.strip(), module.FIXED.strip()
    yield from _cell(tail(exercise), [given, *_solution(fixed.splitlines())], solution=True)
    yield from _check_cells(exercise)


def _solution(lines: list[str]) -> list[str]:
    """A solution that leaves nothing in its place.

    nbgrader puts a stub that raises where a solution stood; the mark scheme takes it away, too.
    """
    begin, end = ("### BEGIN MARK SCHEME", "### BEGIN SOLUTION"), "### END SOLUTION"
    return [*begin, *lines, end, "### END MARK SCHEME"]


def _value_cells(exercise: ValueExercise, code: list[str]) -> Iterator[str]:
    if isinstance(exercise, Number):
        _need_solution(exercise, code)
        solution = [line for line in code if not re.match(r"\s*### (BEGIN|END) SOLUTION", line)]
    elif code:
        raise ExpandError(
            f"# %% exercise {exercise.id}: the solution of a {exercise.kind} is made from the "
            "bank; leave out the code."
        )
    else:
        right = json.dumps(exercise.right_value(""))
        solution = [f"{exercise.name} = {right}"]
    yield from ["# %%", f'q = ask("{exercise.id}")', ""]
    answer = [f"{exercise.name} = {exercise.blank()}", *_solution(solution)]
    yield from _cell(tail(exercise), answer, solution=True)
    yield from _check_cells(exercise)


def _need_solution(exercise: Exercise, code: list[str]) -> None:
    for mark in ("BEGIN", "END"):
        if not any(f"### {mark} SOLUTION" in line for line in code):
            raise ExpandError(f"# %% exercise {exercise.id}: its cell has no ### {mark} SOLUTION.")


def _check_cells(exercise: Exercise) -> Iterator[str]:
    call = f'check("{exercise.id}", {exercise.name}'
    shown = sum(part.points for part in exercise.parts if not part.hidden)
    hidden = sum(part.points for part in exercise.parts if part.hidden)
    yield from _cell(f"{tail(exercise)}-check", [f"{call})"], points=shown)
    if hidden:
        lines = [
            f"# More cases of {exercise.id} are tried here when the notebook is graded.",
            "### BEGIN HIDDEN TESTS",
            f'{call}, parts="hidden")',
            "### END HIDDEN TESTS",
        ]
        yield from _cell(f"{tail(exercise)}-hidden", lines, points=hidden, collapsed=True)


def _reason_cells(exercise: ValueExercise, reason: Reason) -> Iterator[str]:
    title = "" if exercise.kind == "write" else "**Why?** "
    yield from _written(f"{tail(exercise)}-{exercise.written}", f"{title}{reason.ask}", reason)


def _written(id: str, question: str, reason: Reason) -> Iterator[str]:
    """A locked question with its rubric, and a cell for the answer."""
    points = "1 point" if reason.points == 1 else f"{reason.points:g} points"
    lines = [f"{question} ({points}, read by a person)", "", "<!-- BEGIN MARK SCHEME -->", ""]
    lines += [f"- {paid:g}: {what}" for paid, what in reason.rubric]
    lines += ["", "<!-- END MARK SCHEME -->"]
    yield from _markdown(lines, _marks(f"{id}-question", locked=True))
    answer = ["### BEGIN SOLUTION", *reason.solution.splitlines(), "### END SOLUTION"]
    yield from _markdown(answer, _marks(id, solution=True, points=reason.points))


def _markdown(lines: list[str], marks: dict[str, Any] | None = None) -> Iterator[str]:
    metadata = f" nbgrader={json.dumps(marks)}" if marks else ""
    yield f"# %% [markdown]{metadata}"
    for line in "\n".join(lines).splitlines():
        yield f"# {line}" if line else "#"
    yield ""


def _cell(id: str, code: list[str], *, collapsed: bool = False, **about: Any) -> Iterator[str]:
    folded = ' jupyter={"source_hidden": true}' if collapsed else ""
    yield f"# %%{folded} nbgrader={json.dumps(_marks(id, **about))}"
    yield from code
    yield ""


def _marks(
    id: str, *, solution: bool = False, locked: bool = False, points: float | None = None
) -> dict[str, Any]:
    """nbgrader's metadata of a cell; one with points is graded."""
    graded = {} if points is None else {"points": int(points) if points == int(points) else points}
    return {
        "grade": points is not None,
        "grade_id": id,
        "locked": locked or (points is not None and not solution),
        **graded,
        "schema_version": 3,
        "solution": solution,
        "task": False,
    }
