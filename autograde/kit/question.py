"""What `ask` shows: a question with the student's inputs or options, as HTML and as plain text."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from autograde.kit.student import current

WIDTH = 78


def ask(id: str) -> Question:
    """Show an exercise's question; return its inputs or options as a mapping.

    Args:
        id: The exercise, e.g. `03a.windows`.

    Returns:
        The inputs by name (`q.batch_size` or `q["batch_size"]`), or the options by letter. Without
        a name there are no inputs yet: call `student("ada")` first.

    Raises:
        UnknownIdError: No exercise has this id; the message names the nearest.
        TypeError: The exercise asks for code; its text is in the notebook.
    """
    from autograde import bank
    from autograde.kinds.value import ValueExercise

    exercise = bank.load(id)
    if not isinstance(exercise, ValueExercise):
        raise TypeError(
            f"ask('{exercise.id}'): this exercise asks for code, {exercise.signature}, and its "
            f"text is in the notebook. Write it, then check('{exercise.id}', {exercise.name})."
        )
    question = exercise.shown_to(current())
    question.show()
    return question


@dataclass(frozen=True)
class Question(Mapping[str, Any]):
    """A question as one student sees it; a mapping of its inputs or options."""

    title: str
    text: str
    """In sentences, with the inputs filled in; `code` between backticks."""
    lines: tuple[tuple[str, str], ...]
    """Below it: options by letter, or the numbers asked for by name."""
    answer: str
    """What to write where, e.g. `windows = {"updates": ...}`."""
    values: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)

    def __len__(self) -> int:
        return len(self.values)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self.values[name]
        except KeyError:
            has = ", ".join(self.values) or 'nothing yet: type your name in student("...") first'
            raise AttributeError(f"This question has no '{name}'; it has {has}.") from None

    def show(self) -> None:
        """Show it now, in a notebook or on a terminal."""
        if "IPython" in sys.modules and (shell := sys.modules["IPython"].get_ipython()):
            from IPython.display import display

            object.__setattr__(self, "_cell", None)
            display(self)
            object.__setattr__(self, "_cell", shell.execution_count)
        else:
            print(self)

    def _ipython_display_(self) -> None:
        """Show it, once a cell: as the cell's last value it would come twice."""
        from IPython import get_ipython
        from IPython.display import display

        if self.__dict__.get("_cell") != get_ipython().execution_count:
            display({"text/plain": str(self), "text/html": self._repr_html_()}, raw=True)

    def __str__(self) -> str:
        text = [*textwrap.wrap(self.title, WIDTH), "", *textwrap.wrap(self.text, WIDTH)]
        for name, line in self.lines:
            text += textwrap.wrap(f"{name}  {line}", WIDTH, subsequent_indent="     ")
        return "\n".join([*text, "", *textwrap.wrap(self.answer, WIDTH)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<tr><td style="text-align:left;vertical-align:top"><b>{escape(name)}</b></td>'
            f'<td style="text-align:left;white-space:normal">{_rich(line)}</td></tr>'
            for name, line in self.lines
        )
        table = f'<table style="margin:.5em 0">{rows}</table>' if rows else ""
        return (
            '<div style="border-left:4px solid #7f7f7f;padding:.2em 1em;max-width:46em">'
            f"<b>{_rich(self.title)}</b><p>{_rich(self.text)}</p>{table}"
            f"<p>{_rich(self.answer)}</p></div>"
        )


def _rich(text: str) -> str:
    """Escaped, with `code` between backticks."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))
