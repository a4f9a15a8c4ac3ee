"""Fix: a given loop with bugs, graded by what it then does, and by how little else changed.

    EXERCISE = Exercise(
        id="03a.fix-the-loop", kind="fix", ...,
        run=run,              # ... | {"changed": change_size(GIVEN, function, most=6)}
    )

`GIVEN` is the source text of the loop that students are given, `MOST` how many lines may differ;
the bank's module has both under these names, and the statement says the number (`limit`). Comments,
blank lines, docstrings, names of arguments' types and layout do not count as changes.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import re
import sys
import textwrap
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch

from autograde.by_hand import refusal
from autograde.exercise import Exercise


def change_size(given: str, function: Callable[..., Any], *, most: int) -> str:
    """How many lines of the given loop a function changes: `at most 6`, or the exact number.

    A function whose source cannot be read (made by `exec`) is trusted; when a class is graded, the
    text of the notebook decides.

    Raises:
        NotImplementedError: Nothing was changed: the loop is as it was given, which is no answer.
    """
    try:
        changed = changed_lines(given, _text_of(function))
    except (OSError, TypeError, SyntaxError, StopIteration):
        return size_of(0, most)
    if not changed:
        raise NotImplementedError
    return size_of(changed, most)


def _text_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__source__", None) or inspect.getsource(function)


def changes(exercise: Exercise, function: Callable[..., Any]) -> list[str]:
    """The lines that are not as given, `- gone` and `+ new`, in order; none if they cannot be read.

    If no known mistake explains the answer, the fault is in one of these lines, or the bug is in a
    line that was not changed. A line with another indentation is in both, with its indentation.
    """
    try:
        before = _plain_lines(_module_of(exercise).GIVEN)
        after = _plain_lines(_text_of(function))
    except (OSError, TypeError, SyntaxError, StopIteration):
        return []
    found = [line for line in difflib.ndiff(before, after) if line[0] in "-+"]
    shared = min((len(line) - len(line[2:].lstrip()) - 2 for line in found), default=0)
    return [line[:2] + line[2 + shared :] for line in found]


def limit(exercise: Exercise) -> str:
    """What the statement says about the limit: the same words for every loop, the bank's number."""
    return (
        f"At most {_module_of(exercise).MOST} lines may differ. A line that is changed, indented "
        "differently, added or removed counts as one, a moved one as two. Comments, blank lines "
        "and how a statement is wrapped do not count."
    )


def written_change(exercise: Exercise, cells: list[str]) -> str:
    """The same from the text of a notebook's cells, whatever the student's process says."""
    module = _module_of(exercise)
    try:
        return size_of(changed_lines(module.GIVEN, source_of(exercise.name, cells)), module.MOST)
    except (SyntaxError, StopIteration):
        return "all"


def _module_of(exercise: Exercise) -> Any:
    """The bank's module of a loop to fix, which has `GIVEN` and `MOST`."""
    return sys.modules[exercise.run.__module__]


def size_of(changed: int, most: int) -> str:
    """As an answer says it: alike for all that are small enough."""
    return f"at most {most}" if changed <= most else str(changed)


answers_wanted = True
"""Whether variants are compiled; `autograde.sandbox.warm` wants only questions."""


def variant(source: str, file: str, *edits: tuple[str, str]) -> Callable[..., Any]:
    """The function that a source defines, with texts replaced: for a bank's right and wrong ones.

    Args:
        source: Defines one function; `torch` and `nn` are known.
        file: The bank module's `__file__`, by which a student's process knows what to take away.
        edits: (text, what replaces it), each found exactly once.
    """
    if not answers_wanted:
        name = NAME.search(source)[1]
        return FunctionType(
            refusal(name, name).replace(co_filename=file), {"__name__": __name__}, name
        )
    for text, new in edits:
        assert source.count(text) == 1, f"{text!r} stands {source.count(text)} times in the source"
        source = source.replace(text, new)
    scope: dict[str, Any] = {"__name__": __name__, "torch": torch, "nn": torch.nn}
    exec(compile(source, file, "exec"), scope)
    function = next(value for value in scope.values() if isinstance(value, FunctionType))
    function.__source__ = source
    return function


NAME = re.compile(r"^def (\w+)\(", re.MULTILINE)


def changed_lines(given: str, written: str) -> int:
    """How many statements' lines differ: of a changed line one, of a moved one two.

    Raises:
        SyntaxError: One of the two is not Python.
    """
    before, after = _plain_lines(given), _plain_lines(written)
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    return sum(
        max(i2 - i1, j2 - j1) for tag, i1, i2, j1, j2 in matcher.get_opcodes() if tag != "equal"
    )


def _plain_lines(source: str) -> list[str]:
    """The body's lines without docstring, comments and the author's layout."""
    tree = ast.parse(textwrap.dedent(source))
    body = next(node for node in tree.body if isinstance(node, ast.FunctionDef)).body
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    return [line for node in body for line in ast.unparse(node).splitlines()]


def source_of(name: str, cells: list[str]) -> str:
    """The last top-level definition of a function in a notebook's code cells; empty if none is."""
    for cell in reversed(cells):
        try:
            statements = ast.parse(cell).body
        except SyntaxError:  # a magic, or a cell that does not run
            continue
        for node in reversed(statements):
            if isinstance(node, ast.FunctionDef) and node.name == name:
                return ast.unparse(node)
    return ""
