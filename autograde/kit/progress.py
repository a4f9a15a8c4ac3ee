"""`progress()` over all notebooks, and `scorecard(name)` at the end of one.

Both read the record and the bank; neither changes anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from autograde.kit import record
from autograde.kit.chapters import Question, chapter_named
from autograde.kit.guess import Standing, how_close, said_by
from autograde.kit.outline import outlines
from autograde.kit.standing import NotebookStanding, all_standings, notebook_standing
from course.tables import Markup, html_table

TO_REVISIT = 6
"""So many lines of what to revisit are shown; the rest is counted."""


@dataclass(frozen=True)
class NotShown:
    """Shown in a graded copy instead: the record is the student's own, and no grader reads it."""

    def __repr__(self) -> str:
        return "Guesses, hints and progress are shown where you work; no grader reads them."


def progress() -> Progress | NotShown:
    """Show how far you are: a line per notebook, then what to revisit and what is next."""
    if record.is_graded():
        return NotShown()
    return Progress(tuple(all_standings()), record.here().trouble)


def scorecard(name: str) -> Scorecard | NotShown:
    """Show your results in one notebook: points, guesses, what to revisit, what is next.

    Args:
        name: The notebook, e.g. `03a-training-recipe`.

    Raises:
        UnknownIdError: No such notebook; the message names the nearest.
    """
    name = chapter_named(name).name
    if record.is_graded():
        return NotShown()
    return Scorecard(notebook_standing(outlines()[name]), record.here().trouble)


@dataclass(frozen=True)
class Progress:
    """Shown as a table and, if positive numbers were guessed, a calibration plot."""

    notebooks: tuple[NotebookStanding, ...]
    trouble: str = ""

    HEADS = ("notebook", "parts passed", "points shown", "misconceptions", "guesses", "hints")

    def rows(self) -> list[list[str]]:
        """A line per notebook, as text."""
        return [_row(standing) for standing in self.notebooks]

    def plot(self) -> Any:
        """Guesses against answers as a figure; None without any to draw."""
        return _calibration([pair for standing in self.notebooks for pair in standing.answered])

    def notes(self) -> Iterator[str]:
        """What to revisit, what is next, and what was wrong with the file."""
        revisit = [line for standing in self.notebooks for line in standing.revisit]
        yield from _notes(revisit, self.notebooks, self.trouble)

    def __repr__(self) -> str:
        return "\n".join([*_text_table(self.HEADS, self.rows()), *self.notes()])

    def _repr_html_(self) -> str:
        return html_table(self.HEADS, self.rows()) + _paragraphs(self.notes())

    def _ipython_display_(self) -> None:
        _display(self, self.plot())


@dataclass(frozen=True)
class Scorecard:
    """One notebook's exercises and guesses as tables."""

    notebook: NotebookStanding
    trouble: str = ""

    HEADS = ("exercise", "", "parts passed", "points shown", "misconceptions", "hints")
    GUESSES = ("guess", "yours", "it is", "")

    def rows(self) -> list[list[str]]:
        """A line per exercise, then the sum, as text."""
        rows = [
            [
                e.id,
                e.title,
                f"{e.passed} of {e.parts}",
                f"{e.points:g} of {e.max_points:g}",
                _misconceptions(len(e.met), len(e.overcome)),
                str(e.hints or "–"),
            ]
            for e in self.notebook.exercises
        ]
        _name, parts, points, met, _guesses, hints = _row(self.notebook)
        return [*rows, ["all", "", parts, points, met, hints]]

    def guesses(self) -> list[list[str]]:
        """A line per guess that this notebook asks for, as text."""
        return [_guess_row(asked, state) for asked, state in self.notebook.guesses]

    def notes(self) -> Iterator[str]:
        """What to revisit, what is next, and what was wrong with the file."""
        if by_hand := self.notebook.outline.points_by_hand:
            more = "point is" if by_hand == 1 else "points are"
            yield f"{by_hand:g} more {more} for answers that are graded by hand."
        yield from _notes(self.notebook.revisit, (self.notebook,), self.trouble)

    def __repr__(self) -> str:
        lines = _text_table(self.HEADS, self.rows())
        if guesses := self.guesses():
            lines += ["", *_text_table(self.GUESSES, guesses)]
        return "\n".join([*lines, *self.notes()])

    def _repr_html_(self) -> str:
        tables = html_table(self.HEADS, self.rows())
        if guesses := self.guesses():
            tables = Markup(tables + html_table(self.GUESSES, guesses))
        return tables + _paragraphs(self.notes())


def _row(standing: NotebookStanding) -> list[str]:
    passed, parts = standing.parts
    points, max_points = standing.points
    met = sum(len(e.met) for e in standing.exercises)
    overcome = sum(len(e.overcome) for e in standing.exercises)
    made, close = len(standing.answered), standing.close
    return [
        standing.outline.title,
        f"{passed} of {parts}",
        f"{points:g} of {max_points:g}",
        _misconceptions(met, overcome),
        f"{close} of {made} close" if made else "–",
        str(sum(e.hints for e in standing.exercises) or "–"),
    ]


def _misconceptions(met: int, overcome: int) -> str:
    return f"{met} met, {overcome} overcome" if met else "–"


def _guess_row(asked: Question, state: Standing) -> list[str]:
    if state.value is not None:
        yours = said_by(asked, state.value)
    elif state.latest is not None:
        yours = f"{said_by(asked, state.latest)} (after the answer)"
    else:
        yours = "–"
    answer = "–" if state.answer is None else said_by(asked, state.answer)
    both = state.value is not None and state.answer is not None
    how = how_close(asked, state.value, state.answer) if both else ""
    return [asked.question, yours, answer, how]


def _notes(
    revisit: Sequence[str], notebooks: Sequence[NotebookStanding], trouble: str
) -> Iterator[str]:
    if revisit:
        more = len(revisit) - TO_REVISIT
        shown = "; ".join(revisit[:TO_REVISIT])
        yield f"To revisit: {shown}{f'; and {more} more' if more > 0 else ''}."
    coming = next((e for standing in notebooks if (e := standing.next)), None)
    if coming:
        yield f"Next: {coming.id}, {coming.title}."
    elif notebooks:
        yield "Every part shown here is passed. For your progress in all notebooks: progress()"
    if trouble:
        yield trouble


def _calibration(pairs: Sequence[tuple[Question, Standing]]) -> Any:
    drawn = [
        (float(state.value), float(state.answer), asked.id)
        for asked, state in pairs
        if asked.kind == "number" and state.value > 0 and state.answer > 0
    ]
    if not drawn:
        return None
    from course.plots.guesses import plot_guesses

    return plot_guesses(*zip(*drawn, strict=True))


def _display(shown: Any, figure: Any) -> None:
    from IPython.display import display

    data = {"text/html": shown._repr_html_(), "text/plain": repr(shown)}
    display(data, raw=True)
    if figure is not None:
        display(figure)


def _text_table(heads: Sequence[str], rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in [heads, *rows]
    ]


def _paragraphs(lines: Iterator[str]) -> str:
    return "".join(f"<p>{escape(line)}</p>" for line in lines)
