"""Three hints for each exercise, from where to look to almost the answer. They are free."""

from __future__ import annotations

from autograde import bank
from autograde.kit import record
from autograde.kit.failing import has_cases
from autograde.kit.saying import say


def hint(id: str, number: int | None = None) -> None:
    """Print the next of an exercise's three hints, or a given one again.

    Only your own progress file remembers that you asked; grading never sees it.

    Args:
        id: The exercise, e.g. `03a.clip`.
        number: 1, 2 or 3; None shows the next one.

    Raises:
        UnknownIdError: No exercise has this id; the message names the nearest.
        ValueError: There is no hint of this number.
    """
    exercise = bank.load(id)
    hints = exercise.hints
    notes = record.here()
    seen = asked(exercise.id)
    if number is not None and (type(number) is not int or not 1 <= number <= len(hints)):
        raise ValueError(
            f"hint({id!r}, {number!r}): the hints of {exercise.id} are numbered 1 to {len(hints)}. "
            f"For the next one: hint({id!r})."
        )
    wanted = number or seen + 1
    if wanted > len(hints):
        smallest = f" To see the smallest case that fails: failing('{exercise.id}')."
        say(
            f"{exercise.id} has {len(hints)} hints, and you have seen them all. To read one again: "
            f"hint('{exercise.id}', {len(hints)}).{smallest if has_cases(exercise) else ''}"
        )
        return
    if wanted > seen:
        notes.add("hint", id=exercise.id, number=wanted)
    last = " (This is the last hint.)" if wanted == len(hints) else ""
    hinted = f"Hint {wanted} of {len(hints)}: {hints[wanted - 1]}{last}"
    say(*filter(None, (hinted, notes.trouble)))


def asked(id: str) -> int:
    """How many hints of an exercise have been shown."""
    seen = [event["number"] for event in record.here().events("hint") if event["id"] == id]
    return max(seen, default=0)
