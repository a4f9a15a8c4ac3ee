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
import hashlib
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

import torch

from autograde.by_hand import refusal
from autograde.exercise import UNFIT, Exercise
from autograde.quiet import quiet
from autograde.syntax import MAX_DEPTH, TooDeepError, tree_of


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


def must_differ(exercise: Exercise, function: Callable[..., Any]) -> None:
    """Asked before a case, which the loop as it was given may not get through.

    Raises:
        NotImplementedError: Nothing was changed.
    """
    module = module_of(exercise)
    change_size(module.GIVEN, function, most=module.MOST)


def _text_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__source__", None) or inspect.getsource(function)


def changes(exercise: Exercise, function: Callable[..., Any]) -> list[str]:
    """The lines that are not as given, `- gone` and `+ new`, in order; none if they cannot be read.

    If no known mistake explains the answer, the fault is in one of these lines, or the bug is in a
    line that was not changed. A line with another indentation is in both, with its indentation.
    """
    try:
        before = _plain_lines(module_of(exercise).GIVEN)
        after = _plain_lines(_text_of(function))
    except (OSError, TypeError, SyntaxError, StopIteration):
        return []
    found = [line for line in difflib.ndiff(before, after) if line[0] in "-+"]
    shared = min((len(line) - len(line[2:].lstrip()) - 2 for line in found), default=0)
    return [line[:2] + line[2 + shared :] for line in found]


def limit(exercise: Exercise) -> str:
    """What the statement says about the limit: the same words for every loop, the bank's number."""
    return (
        f"At most {module_of(exercise).MOST} lines may differ. A line that is changed, indented "
        "differently, added or removed counts as one, a moved one as two. Comments, blank lines "
        "and how a statement is wrapped do not count."
    )


def written_change(exercise: Exercise, cells: list[str], code: str) -> str | dict[str, str]:
    """The same from the text of a notebook's cells, whatever the student's process says.

    Args:
        exercise: A loop to fix.
        cells: Sources of the notebook's code cells up to the check.
        code: `code_of` the function that was called: the text counted is the one it is made of.
    """
    module = module_of(exercise)
    lines = _lines_by_code(tuple(cells)).get(code)
    if lines is None:
        name = exercise.name
        text = (
            f"The changed lines cannot be counted, since no def {name} in the cells above is the "
            f"function that was called. Leave def {name}(...) without a decorator, and give the "
            "name to nothing else."
        )
        return {UNFIT: text + "".join(_unread(cells))}
    return size_of(_difference(_plain_lines(module.GIVEN), lines), module.MOST)


def _unread(cells: list[str]) -> Iterator[str]:
    """Why cells were not looked at, a sentence each."""
    if any(len(cell) > MOST_CODE for cell in cells):
        yield f" A cell of more than {MOST_CODE:,} characters was not read."
    for cell in cells:
        try:
            tree_of(cell[:MOST_CODE])
        except TooDeepError:
            yield f" A cell was not read, as its code is nested more than {MAX_DEPTH} deep."
            break
        except SyntaxError:
            continue


CODE = "__code__"
"""Key in an answer to a loop to fix: `code_of` the function that gave it."""


def code_of(function: Callable[..., Any]) -> str:
    """A hash of what a function does, which its text gives as well; empty if it is another kind of
    object, whose attributes say what they like, or is wrapped into another one."""
    wrapped = hasattr(function, "__wrapped__")
    return _hash_of(function.__code__) if type(function) is FunctionType and not wrapped else ""


def _hash_of(code: CodeType) -> str:
    consts = [
        _hash_of(c) if isinstance(c, CodeType)
        else sorted(map(repr, c)) if isinstance(c, frozenset)
        else repr(c)
        for c in code.co_consts
    ]  # fmt: skip
    about = (
        *(code.co_code, consts, code.co_names, code.co_varnames, code.co_freevars),
        *(code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount),
    )
    return hashlib.sha256(repr(about).encode("utf-8", "backslashreplace")).hexdigest()


@lru_cache(maxsize=4)
def _lines_by_code(cells: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """The lines of each function that cells define at their top level, by `code_of` it."""
    found = {}
    for cell in cells:
        if len(cell) > MOST_CODE:
            continue
        for node in _statements(cell):
            if isinstance(node, ast.FunctionDef):
                whole = compile(ast.Module([node], []), "cell", "exec", dont_inherit=True)
                codes = [c for c in whole.co_consts if isinstance(c, CodeType)]
                found |= {
                    _hash_of(c): tuple(_lines_of(node)) for c in codes if c.co_name == node.name
                }
    return found


def _statements(cell: str) -> list[ast.stmt]:
    """A cell's statements, where they can be compiled; commands such as `%time` are left out."""
    for source in (cell, MAGIC.sub(r"\1pass", cell)):
        with suppress(SyntaxError, ValueError, RecursionError, MemoryError), quiet():
            tree = tree_of(source)
            compile(tree, "cell", "exec", dont_inherit=True)
            return tree.body
    return []


MOST_CODE = 50_000
"""Characters of a cell that are read."""
MAGIC = re.compile(r"^([ \t]*)(?:[%!?].*|[\w., ]+=[ \t]*[%!].*|[\w.]+\?\??[ \t]*)$", re.MULTILINE)


def module_of(exercise: Exercise) -> Any:
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
    return _difference(_plain_lines(given), _plain_lines(written))


def _difference(before: Sequence[str], after: Sequence[str]) -> int:
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    return sum(
        max(i2 - i1, j2 - j1) for tag, i1, i2, j1, j2 in matcher.get_opcodes() if tag != "equal"
    )


@lru_cache(maxsize=8)
def _plain_lines(source: str) -> tuple[str, ...]:
    """The lines of the function that a source defines: once, as each case asks for them."""
    tree = tree_of(textwrap.dedent(source))
    return tuple(_lines_of(next(node for node in tree.body if isinstance(node, ast.FunctionDef))))


def _lines_of(function: ast.FunctionDef) -> list[str]:
    """The body's lines without docstring, comments and the author's layout, as far as they can run:
    what is left standing below a `return` has been removed."""
    body = function.body
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    return [line for node in _reached(body) for line in ast.unparse(node).splitlines()]


def _reached(block: list[ast.stmt]) -> list[ast.stmt]:
    """A block's statements up to the one that leaves it, and so in the blocks inside."""
    for number, statement in enumerate(block):
        for inner in ("body", "orelse", "finalbody"):
            if isinstance(found := getattr(statement, inner, None), list):
                setattr(statement, inner, _reached(found))
        if isinstance(statement, ast.Return | ast.Raise | ast.Break | ast.Continue):
            return block[: number + 1]
    return block
