"""A verdict in words: a line per part, what differs, and what to do next."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from autograde.lines import WIDTH, wrapped
from autograde.reported import Reported, in_own_words, legible, quoted

if TYPE_CHECKING:
    from autograde.compare import Difference
    from autograde.exercise import Exercise, Part
    from autograde.verdict import PartResult, Verdict


def message(
    verdict: Verdict, exercise: Exercise, changes: Callable[[], Sequence[str]] = tuple
) -> str:
    """The verdict in words: a line per part, then what differs and what to do next.

    Args:
        verdict: The result of the check.
        exercise: From the bank.
        changes: Returns the changed lines of a loop to fix; called only if no mistake is named,
            because comparing the texts takes a while.
    """
    lines = getattr(exercise, "lines", None)  # a value's exercise has words of its own
    said = list(lines(verdict) if lines else _lines(verdict, exercise))
    unnamed = not (verdict.passed or verdict.misconceptions or verdict.status == "blank")
    listed = changes() if unnamed else ()
    return "\n".join(map(legible, said + (_changed(listed) if listed else [])))


MOST_OF_A_LINE = 300
"""Characters of a changed line that a message shows."""
MOST_CHANGES = 8
"""Changed lines that a message lists: twice as many as a fix of most loops needs."""


def _changed(changes: Sequence[str]) -> list[str]:
    more = len(changes) - MOST_CHANGES
    listed = [f"      {change}" for change in changes[:MOST_CHANGES]]
    listed += [f"      and {more} more"] if more > 0 else []
    told = "Your changes (- removed, + added): does each of these fix the bug, and nothing else?"
    return [*wrapped(told, first="  → "), *(part for line in listed for part in _whole(line))]


def _whole(line: str) -> list[str]:
    """A line of code in lines of at most WIDTH, the later ones further to the right."""
    indent = min(len(line) - len(line[8:].lstrip()) + 4, WIDTH // 2)
    short = line[:MOST_OF_A_LINE] + "..." * (len(line) > MOST_OF_A_LINE)
    return textwrap.wrap(short, WIDTH, subsequent_indent=" " * indent, break_on_hyphens=False)


def _lines(verdict: Verdict, exercise: Exercise) -> Iterator[str]:
    title = f"{exercise.id} · {exercise.title}: "
    yield from wrapped(
        f"{title}{verdict.points:g} of {verdict.max_points:g} points", first="", then=""
    )
    if verdict.status == "blank":
        todo = "fix" if exercise.kind == "fix" else "write"
        yield f"  Not answered yet: {todo} {exercise.name} in the cell above, then run both."
        return
    clues = not verdict.misconceptions
    reasons = [_reason(result, exercise, clues=clues) for result in verdict.parts]
    if len(set(reasons)) == 1 and not verdict.passed and reasons[0]:  # said once
        yield from wrapped(reasons[0], first="  ✘ ")
    else:
        said: dict[str, str] = {}  # each reason, and the first part that it was said of
        latest = ""
        for result, reason in zip(verdict.parts, reasons, strict=True):
            yield f"  {'✔' if result.passed else '✘'} {result.part.title}"
            place = "above" if reason == latest else f"for “{said.get(reason)}”"
            again = f"The same reason as {place}."
            yield from wrapped(again if reason and reason in said else reason)
            said.setdefault(reason, result.part.title)
            latest = reason or latest
    for wrong in verdict.misconceptions:
        yield from wrapped(wrong.message, first="  → ")
    if not verdict.misconceptions and not verdict.passed:
        yield from wrapped(_next_step(verdict, exercise), first="  → ")
    shown = all(not result.part.hidden for result in verdict.parts)
    hidden = sum(part.points for part in exercise.parts if part.hidden)
    if shown and hidden and verdict.passed:
        yield f"  {hidden:g} more when it is graded, for kinds of cases not shown here."


def _reason(result: PartResult, exercise: Exercise, *, clues: bool = True) -> str:
    if result.raised:
        kind, text = result.raised.kind, result.raised.text
        if kind in OUR_OWN and not (kind == "NameError" and isinstance(text, Reported)):
            return in_own_words(text)
        if kind == "NotImplementedError" and not text:
            return "Nothing has been changed or filled in here yet."
        who = "The model" if text.endswith(BY_A_MODEL) else "Your function"
        return f"{who} raised {raised_in_words(kind, text)}"
    return difference_in_words(result.difference, exercise, clues) if result.difference else ""


def raised_in_words(kind: str, text: str) -> str:
    """An exception's type and text; what a student's process says of it, and of the line, stands in
    quotation marks, so that nobody reads it as our own words."""
    if not isinstance(text, Reported):
        return f"{kind}: {text}"
    text, by_a_model, _ = text.partition(BY_A_MODEL)
    said, at_the_line, line = text.partition(AT_THE_LINE)
    place = f"{at_the_line}{quoted(line)}" if line else by_a_model
    return f"{kind if kind.isascii() else quoted(kind)}: {quoted(said)}{place}"


def difference_in_words(difference: Difference, exercise: Exercise, clues: bool = True) -> str:
    """What was expected and what came, in one sentence, and a clue if one is wanted."""
    if difference.reason:
        return in_own_words(difference.reason)
    from autograde.clues import clue  # torch: only where something differs

    what = exercise.says.get(difference.field, difference.field)
    seen = clue(*difference.values) if clues and difference.values else ""
    return f"{_expected_in_words(what, difference)} {seen}".strip()


PLACES = re.compile(r"^(?:in (.*),|(.*)) (?:at|entry)$")
"""What leads to a place, as in `in the inputs, entry [0, 1]` or `the targets at [3]`."""


EMPTY = ("[]", "an empty list")
"""What is expected of a list that should have no entry."""


def _expected_in_words(what: str, difference: Difference) -> str:
    """One sentence; a field that is wrong as a whole has no place that `at` could lead to."""
    expected, got = difference.expected, difference.got
    if difference.where:
        one = re.sub(r"\bthe weights$", "the weight", what)
        what = f"{one} {difference.where}"
    elif place := PLACES.match(what):
        what = place[1] or place[2]
    elif what.endswith(" of") and all(isinstance(v, dict) for v in difference.values or [None]):
        return f"{what[:-3]} should be given for {expected}, but yours is given for {got}."
    if expected.startswith("shape ") and got.startswith("shape "):
        return f"{what} should have {expected}, but yours has {got}."
    if what.endswith(":"):
        return f"{what} expected {expected}, but got {got}."
    if expected in EMPTY:
        return f"{what} should be empty, but yours is {got}."
    yours = "it is" if expected == "nothing" else "yours is"
    yours = "yours are" if expected.startswith("those ") else yours
    return f"{what} should be {expected}, but {yours} {got}."


def wrong_in_words(exercise: Exercise, part: Part, case: Any, got: Any) -> list[str]:
    """What is wrong with the answer to one case, as indented lines."""
    from autograde.questions import difference_in
    from autograde.verdict import PartResult

    if not isinstance(got, dict):
        return wrapped(_reason(PartResult(part, False, raised=got), exercise), first="  ✘ ")
    found = difference_in(exercise, part, case, got)
    return wrapped(difference_in_words(found, exercise), first="  ✘ ") if found else []


AT_THE_LINE = ", at the line: "
BY_A_MODEL = ", when the check called the model"
"""How the text of what is raised ends where no line of the student's was running."""
UNJUDGED = "NotJudged"
"""Kind of what stands for an answer on which the grader itself failed."""
OUR_OWN = (
    *("AnswerError", "NotAllowedError", "NameError", "Timeout", "ProcessEnded", "NotAsked"),
    UNJUDGED,
)
"""What is raised about an answer rather than by it; the text speaks for itself."""


def _next_step(verdict: Verdict, exercise: Exercise) -> str:
    kinds = {result.raised.kind for result in verdict.parts if result.raised}
    if "AnswerError" in kinds:
        return "Fix that first; only then are the numbers compared."
    if "NotAllowedError" in kinds:
        return f'Write the steps out yourself; hint("{exercise.id}") helps.'
    if "Timeout" in kinds:
        return (
            "Find the loop and what should end it: call your function yourself and print() its "
            "counter, because check() shows no prints."
        )
    differences = [result.difference for result in verdict.parts if result.difference]
    if not kinds and all(difference.reason for difference in differences):
        return f'failing("{exercise.id}") gives you a small case in which that happens.'
    if not kinds and {difference.field for difference in differences} == {"changed"}:
        return (
            "Start again from the given code, and change only what fixes a bug: a line that is "
            "moved, split or rewritten counts too."
        )
    name = exercise.name
    call = f"case.run({name})" if exercise.kind == "class" else f"{name}(**case.inputs)"
    return (
        f'case = failing("{exercise.id}") gives you a small case that fails: print case, and call '
        f'{call} to see your own prints and the whole traceback. hint("{exercise.id}") helps, too.'
    )


def as_html(message: str, passed: bool) -> str:
    """A message as a box whose border tells right from wrong; everything escaped."""
    colour = "#0072b2" if passed else "#d55e00"
    return (
        f'<pre style="border-left: 4px solid {colour}; padding: .5em 1em; margin: 0; '
        f'white-space: pre-wrap; word-break: normal">{escape(message)}</pre>'
    )
