"""Texts of a student's process or file, before they stand among the grader's own sentences.

Such a text may hold characters that turn, colour or hide what stands around it, or be a sentence
in the grader's voice. So it is put on a line, cut, and shown as somebody else's words.
"""

from __future__ import annotations

from typing import Any

MAX_REPORTED = 600
"""Characters of a text about an answer: twice what an exception may say, with its line."""


class Reported(str):
    """A text that a student's process sent: what it says is not the grader's word."""

    __slots__ = ()


def reported(text: object) -> Reported:
    """What a student's process sent as a text about an answer, fit to be shown."""
    return Reported(on_a_line(str(text), MAX_REPORTED))


def on_a_line(text: str, most: int = MAX_REPORTED) -> str:
    """A text without what moves, turns or colours what stands around it; cut."""
    shown = legible(text[:most])
    return shown if len(text) <= most else f"{shown[:-1]}…"


def legible(text: str) -> str:
    """A text in which each character is seen: others are blanks or question marks."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c.isspace() else "?" for c in text)


def in_own_words(text: str) -> str:
    """A sentence about an answer, and whose it is where it is not ours."""
    return (
        f"Reported by your code's process: {quoted(text)}" if isinstance(text, Reported) else text
    )


def quoted(text: str) -> str:
    """Somebody else's words in quotation marks, which nothing in them ends early."""
    return f"“{unmarked(text)}”"


def unmarked(value: Any) -> Any:
    """Plain data in which no text has the marks by which a message of ours is read."""
    if isinstance(value, str):
        return value.translate(OURS)
    if isinstance(value, dict):
        return {unmarked(key): unmarked(item) for key, item in value.items()}
    return [unmarked(item) for item in value] if isinstance(value, list) else value


OURS = str.maketrans("“”✔✘→", '""???')
"""Marks by which a message of ours is read."""
