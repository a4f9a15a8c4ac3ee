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
import __future__

import ast
import difflib
import hashlib
import inspect
import linecache
import os
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
from autograde.syntax import MAX_DEPTH, TooDeepError, code_of_cell, tree_as_run, tree_of


def change_size(given: str, function: Callable[..., Any], *, most: int) -> str | dict[str, str]:
    """How many lines of the given loop a function changes: `at most 6`, or the exact number.

    In a notebook the text of its cells decides, as when a class is graded: if none of them is the
    function's, it is said so. Elsewhere a function whose source cannot be read (made by `exec`) is
    trusted.

    Raises:
        NotImplementedError: Nothing was changed: the loop is as it was given, which is no answer.
    """
    try:
        lines = _lines_as_written(function)
        if lines is None:
            return {UNFIT: _not_found(NAME.search(given)[1], _cells_run(function))}
        changed = _difference(plain_lines(given), lines)
    except (OSError, TypeError, SyntaxError, StopIteration):
        return size_of(0, most)
    if not changed:
        raise NotImplementedError
    return size_of(changed, most)


def _lines_as_written(function: Callable[..., Any]) -> tuple[str, ...] | None:
    """A function's lines; None if it is of none of the cells that were run.

    Raises:
        OSError, TypeError, SyntaxError, StopIteration: There are no cells, and its source cannot be
            read.
    """
    if cells := _cells_run(function):
        return lines_in(cells, code_of(function))
    return plain_lines(_text_of(function))


def _cells_run(function: Callable[..., Any]) -> list[str]:
    """The cells that a notebook has run so far, and the one that a function is from, as far as
    IPython knows; none elsewhere, and of what the course itself made of a text."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", bool)()
    history = getattr(shell, "history_manager", None)
    cells = [cell for cell in getattr(history, "input_hist_raw", ()) if cell]
    if not cells or hasattr(function, "__source__"):
        return []
    file = getattr(getattr(function, "__code__", None), "co_filename", "")
    cell = "" if os.path.isfile(file) else "".join(linecache.getlines(file))
    return [*cells, cell]  # which a history that was cleared does not have


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
        before = plain_lines(module_of(exercise).GIVEN)
        after = _lines_as_written(function) or ()
    except (OSError, TypeError, SyntaxError, StopIteration):
        return []
    found = [line for line in difflib.ndiff(before, after) if line[0] in "-+"] if after else []
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
    lines = lines_in(cells, code)
    if lines is None:
        return {UNFIT: _not_found(exercise.name, cells)}
    return size_of(_difference(plain_lines(module.GIVEN), lines), module.MOST)


def is_loop(exercise: Exercise, cells: Sequence[str], code: str) -> bool:
    """Whether a hash is that of a function in the cells with no more lines changed than may differ:
    of a loop that was called through a decorator, the loop itself."""
    module = module_of(exercise)
    lines = lines_in(cells, code)
    return lines is not None and _difference(plain_lines(module.GIVEN), lines) <= module.MOST


def _not_found(name: str, cells: Sequence[str]) -> str:
    text = (
        f"The changed lines cannot be counted, since no def {name} in the cells above is the "
        f"function that was called. Leave def {name}(...) without a decorator, and give the "
        "name to nothing else."
    )
    return text + "".join(_unread(cells))


def _unread(cells: Sequence[str]) -> Iterator[str]:
    """Why cells were not looked at, a sentence each."""
    if any(len(cell) > MOST_CODE for cell in cells):
        yield f" A cell of more than {MOST_CODE:,} characters was not read."
    for cell in cells:
        try:
            tree_as_run(cell[:MOST_CODE])
        except TooDeepError:
            yield f" A cell was not read, as its code is nested more than {MAX_DEPTH} deep."
            break
        except SyntaxError:
            continue


CODE, RAN = "__code__", "__ran__"
"""Keys in an answer to a loop to fix: `code_of` the function that gave it, and what else of its
author's ran meanwhile: name and size of each code, by its hash."""


def code_of(function: Callable[..., Any]) -> str:
    """A hash of what a function does, which its text gives as well; empty if it is another kind of
    object, whose attributes say what they like, or is wrapped into another one."""
    wrapped = hasattr(function, "__wrapped__")
    return hash_of(function.__code__) if type(function) is FunctionType and not wrapped else ""


def hash_of(code: CodeType) -> str:
    consts = [
        hash_of(c) if isinstance(c, CodeType)
        else sorted(map(repr, c)) if isinstance(c, frozenset)
        else repr(c)
        for c in code.co_consts
    ]  # fmt: skip
    about = (
        *(code.co_code, consts, code.co_names, code.co_varnames, code.co_freevars),
        *(code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount),
    )
    return hashlib.sha256(repr(about).encode("utf-8", "backslashreplace")).hexdigest()


def lines_in(cells: Sequence[str], code: str) -> tuple[str, ...] | None:
    """The lines of the function with this `code_of` it, from the last cell that defines it."""
    found = (_lines_by_code(cell) for cell in reversed(cells) if "def" in cell)
    return next((lines[code] for lines in found if code in lines), None)


@lru_cache(maxsize=1000)
def _lines_by_code(cell: str) -> dict[str, tuple[str, ...]]:
    """The lines of each function that a cell defines outside of others, by `code_of` it."""
    found: dict[str, tuple[str, ...]] = {}
    if len(cell) > MOST_CODE:
        return found
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError), quiet():
        for tree in code_of_cell(cell, MOST_WITHIN):
            functions = {
                (min(d.lineno for d in [*node.decorator_list, node]), node.name): node
                for node in outside_of_functions(tree)
                if isinstance(node, ast.FunctionDef)
            }
            codes = [
                code
                for flags in FLAGS
                for code in codes_in(compiled(tree, flags))
                if (code.co_firstlineno, code.co_name) in functions
            ]
            lines = {place: tuple(_lines_of(node)) for place, node in functions.items()}
            found |= {hash_of(code): lines[code.co_firstlineno, code.co_name] for code in codes}
    return found


@lru_cache(maxsize=1000)
def codes_of(cell: str) -> dict[str, set[str]]:
    """Hashes of each function and class that a cell defines, and of all code inside, by name."""
    found: dict[str, set[str]] = {}
    if len(cell) > MOST_CODE:
        return found
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError), quiet():
        for tree in code_of_cell(cell, MOST_WITHIN):
            for flags in FLAGS:
                for code in codes_in(compiled(tree, flags)):
                    found.setdefault(code.co_name, set()).update(map(hash_of, codes_in(code)))
    return found


FLAGS = (0, __future__.annotations.compiler_flag)
"""Of how cells are compiled: a `from __future__ import annotations` holds for all later cells."""


def compiled(tree: ast.Module, flags: int) -> CodeType:
    return compile(tree, "cell", "exec", flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """A code and all that stand in it."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from codes_in(inner)


def outside_of_functions(tree: ast.AST) -> Iterator[ast.AST]:
    """What stands in some code, but not what is inside a function."""
    for node in ast.iter_child_nodes(tree):
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from outside_of_functions(node)


MOST_CODE = 50_000
"""Characters of a cell that are read."""
MOST_WITHIN = 20
"""How often `%time` and the like may stand within one another in a cell."""


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
    return _difference(plain_lines(given), plain_lines(written))


def _difference(before: Sequence[str], after: Sequence[str]) -> int:
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    return sum(
        max(i2 - i1, j2 - j1) for tag, i1, i2, j1, j2 in matcher.get_opcodes() if tag != "equal"
    )


@lru_cache(maxsize=8)
def plain_lines(source: str) -> tuple[str, ...]:
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
