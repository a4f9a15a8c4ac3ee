"""Guesses: recorded before the answer is shown, and compared with it afterwards.

    guess("03a.first-loss", 2.3) # the student's number; `...` shows the question
    reveal("03a.first-loss", loss) # you guessed 2.3, it is 2.31: close.

The guess that counts is the last one before the answer was first shown, or requested:

    guess("03a.loss-factor", "look") # shows the worked table that waits for this guess

A notebook runs from top to bottom without any guess.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from autograde.kit import record
from autograde.kit.chapters import Question, question
from autograde.kit.saying import say


class GuessError(ValueError):
    """A guess of a kind that this question does not accept; the message shows one that it does."""

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: the message, without the lines of code that led to it."""
        return [f"GuessError: {self}"]


A_MILLION = 1_000_000
met: set[str] = set()
"""Chapters whose guesses this kernel has asked for: most likely the notebook that is open."""


def chapter_of(id: str) -> str:
    """`03a` of `03a.first-loss`."""
    return id.partition(".")[0]


def guess(id: str, value: Any = ...) -> None:
    """Record a guess before its answer is shown; without a value, show the question.

    Args:
        id: The guess, e.g. `03a.first-loss`.
        value: A number, a list of numbers, or an option's letter or key, as the question asks; or
            "look", to see a worked table without a guess.

    Raises:
        UnknownIdError: No notebook asks for it; the message names the nearest.
        GuessError: The value is not what the question asks for.
    """
    asked = question(id)
    met.add(chapter_of(id))
    if value is ... or value is None:
        say(*_posed(asked))
        return
    state = standing(id)
    notes = record.here()
    if asked.worked and value == "look":
        if not state.looked:
            notes.add("look", id=id)
        say("Run the table's cell again to see its numbers. A guess made now no longer counts.")
        return
    given, value = value, plain_value(asked, value)
    if state.latest != value:
        notes.add("guess", id=id, value=value)
    said = f"Guess recorded: {said_by(asked, value)}."
    if asked.fraction and given != value:
        said = f"Guess recorded: {said_by(asked, value)}, as a fraction."
    if state.answer is not None:
        first = "none" if state.value is None else said_by(asked, state.value)
        said += (
            f" The answer ({said_by(asked, state.answer)}) was already shown; the last guess "
            f"before that counts: {first}."
        )
    elif state.looked and state.value is None:
        said += " The table was already shown, so this guess does not count."
    say(" ".join(filter(None, (said, notes.trouble))))


def reveal(id: str, value: Any) -> None:
    """Show what was guessed and what the answer is; called in the cell that shows the answer.

    Args:
        id: The guess, e.g. `03a.first-loss`.
        value: The answer, computed here: of the kind that the guess has.

    Raises:
        UnknownIdError: No notebook asks for it; the message names the nearest.
        GuessError: The value is not of the question's kind.
    """
    asked = question(id)
    numbers = value if isinstance(value, (list, tuple)) else [value]
    if any(isinstance(number, Real) and not math.isfinite(number) for number in numbers):
        say(f"The result is {value}: a cell above did not work as it should.")
        return
    say(answered(asked, plain_value(asked, value)))


def answered(asked: Question, value: Any) -> str:
    """The sentence that compares guess and answer; from here on, the answer counts as shown."""
    state = standing(asked.id)
    if state.answer != value:
        record.here().add("reveal", id=asked.id, value=value)
    if state.value is not None:
        return f"You guessed {said_by(asked, state.value)}, {_it_is(asked, state.value, value)}"
    if state.latest is not None:
        after = f"You guessed {said_by(asked, state.latest)} after seeing the answer"
        return f"{after}, {_it_is(asked, state.latest, value)}"
    return f"It is {said_by(asked, value)}. (No guess was made.)"


@dataclass(frozen=True)
class Standing:
    """How one guess stands."""

    value: Any
    """The guess that counts; None if none was made in time."""
    latest: Any
    """The latest guess, in time or not."""
    answer: Any
    """The answer last shown; None if it was not shown yet."""
    looked: bool = False
    """Whether the table with the answer was asked for without a guess."""


def standing(id: str) -> Standing:
    """What was guessed before the answer and after it, and what the answer is."""
    asked = question(id)
    value = latest = answer = None
    looked = False
    for event in record.here().events():
        if event.get("id") != id or event["do"] not in ("guess", "reveal", "look"):
            continue
        if event["do"] == "look":
            looked = True
            continue
        try:  # written by hand, or asked otherwise in an older release
            said = plain_value(asked, event["value"])
        except GuessError:
            continue
        if event["do"] == "reveal":
            answer = said
        else:
            latest = said
            value = said if answer is None and not looked else value
    return Standing(value, latest, answer, looked)


def is_close(asked: Question, value: Any, answer: Any) -> bool:
    """Whether a guess is right: the same option, or every number close enough."""
    if asked.kind == "choice":
        return value == answer
    if asked.decades:
        both = min(value, answer) > 0
        return both and abs(math.log10(value / answer)) <= asked.decades + 1e-12
    pairs = [(value, answer)] if asked.kind == "number" else list(zip(value, answer, strict=False))
    same_length = asked.kind == "number" or len(value) == len(answer)
    return same_length and all(abs(g - a) <= asked.within * abs(a) + 1e-12 for g, a in pairs)


def how_close(asked: Question, value: Any, answer: Any) -> str:
    """`right`, where both read alike, `close` or `off`."""
    if not is_close(asked, value, answer):
        return "off"
    same = said_by(asked, value) == said_by(asked, answer)
    return "right" if same else "close"


def _it_is(asked: Question, value: Any, answer: Any) -> str:
    it_is = f"it is {said_by(asked, answer)}"
    if is_close(asked, value, answer):
        return f"{it_is}: {how_close(asked, value, answer)}."
    if asked.kind != "number" or value * answer <= 0:
        return f"{it_is}."
    factor = max(value / answer, answer / value)
    direction = "large" if abs(value) > abs(answer) else "small"
    if factor < 1.5:
        return f"{it_is}: {abs(value / answer - 1):.0%} too {direction}."
    if factor >= A_MILLION:
        return f"{it_is}: more than a million times too {direction}."
    return f"{it_is}: {short(float(f'{factor:.2g}'))} times too {direction}."


def plain_value(asked: Question, value: Any) -> Any:
    """A guess or an answer as plain data.

    Raises:
        GuessError: It is not of the question's kind.
    """
    if asked.kind == "number":
        return _number(asked, value)
    if asked.kind == "numbers":
        value = value.tolist() if hasattr(value, "tolist") else value
        if isinstance(value, (str, bytes)) or not isinstance(value, Sequence) or not value:
            raise GuessError(
                f"{value!r}: this guess should be a list of numbers, e.g. {_example(asked)}."
            )
        return [_number(asked, number) for number in value]
    key = value.strip().lower() if isinstance(value, str) else value
    for letter, option in asked.letters.items():
        if key in (letter, option.lower()):
            return option
    said = [o for o, text in asked.options.items() if key in _ways_to_say(text)]
    if len(said) == 1:
        return said[0]
    raise GuessError(f"{value!r} is not one of the options: {_options(asked)}.")


def _ways_to_say(text: str) -> tuple[str, str]:
    """An option's text, and its beginning up to a comma: `yes, up to rounding` and `yes`."""
    return text.lower(), text.lower().partition(",")[0]


def _number(asked: Question, value: Any) -> float:
    value = value.item() if _is_one_number(value) else value
    if isinstance(value, str) and (asked.fraction or asked.unit == "%"):
        value = _from_per_cent(value, asked)
    elif asked.fraction and isinstance(value, Real) and 1 < value <= 100:
        value = value / 100
    if isinstance(value, bool) or not isinstance(value, Real):
        unit = f" ({asked.unit})" if asked.unit else ""
        text = f"{value!r}"[:40]
        raise GuessError(f"{text}: this guess should be a number{unit}, e.g. {_example(asked)}.")
    if not math.isfinite(value):
        raise GuessError(f"{value}: this guess should be a finite number, e.g. {_example(asked)}.")
    return value if isinstance(value, int) else float(value)


def _from_per_cent(text: str, asked: Question) -> float | str:
    """0.1 or 10 for "10 %", whichever is asked for; a text that says something else as it is."""
    digits, sign, rest = text.partition("%")
    try:
        number = float(digits)
    except ValueError:
        return text
    if rest.strip() or not sign:
        return text
    return number / 100 if asked.fraction else number


def _is_one_number(value: Any) -> bool:
    """A tensor or an array with one number in it, without importing torch or NumPy."""
    shape = getattr(value, "shape", None)
    return hasattr(value, "item") and shape is not None and math.prod(shape) == 1


def _example(asked: Question) -> str:
    shown = {"number": "0.5", "numbers": "[1, 2]", "choice": "'a'"}[asked.kind]
    return f"guess('{asked.id}', {shown})"


def _options(asked: Question) -> str:
    return "; ".join(
        f"'{letter}' or '{key}' ({asked.options[key]})" for letter, key in asked.letters.items()
    )


def _posed(asked: Question) -> list[str]:
    unit = f" (in {asked.unit})" if asked.unit else ", from 0 to 1" if asked.fraction else ""
    what = {
        "number": f"your number{unit}",
        "numbers": f"a list of your numbers{unit}",
        "choice": "a letter, in quotes",
    }[asked.kind]
    options = [f"{letter}: {asked.options[key]}" for letter, key in asked.letters.items()]
    do = f"Replace the ... by {what} and run the cell again, or continue without a guess."
    return [asked.question, *options, do]


def said_by(asked: Question, value: Any) -> str:
    """A guess or an answer in words: with its unit, or the text of its option."""
    if asked.kind == "choice":
        return f'"{asked.options[value]}"'
    unit = f" {asked.unit}" if asked.unit else ""
    if asked.kind == "numbers":
        return f"[{', '.join(short(number) for number in value)}]{unit}"
    return f"{short(value)}{unit}"


def short(number: float) -> str:
    """A number with at most four digits; whole numbers in full, with thousands separators."""
    if isinstance(number, int) or (number == int(number) and abs(number) < 1e6):
        return f"{int(number):,}"
    return f"{number:.4g}"
