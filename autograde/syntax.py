"""The syntax tree of a text that a student wrote, bounded: whatever walks it comes to an end.

A text can nest an expression a thousand deep, which no person writes, and which would end a process
that reads a whole class.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from contextlib import suppress

MAX_DEPTH = 200
"""How deep nodes may be nested: to write them as text again, `ast` takes three calls for each."""


class TooDeepError(SyntaxError):
    """It is nested deeper than is read here, though it may be Python."""


def tree_of(source: str) -> ast.Module:
    """Parse a student's text.

    Raises:
        SyntaxError: It is not Python.
        TooDeepError: It is nested more than MAX_DEPTH deep.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a student's invalid escapes
            tree = ast.parse(source)
    except (RecursionError, MemoryError) as fault:
        raise TooDeepError(f"nested more than {MAX_DEPTH} deep") from fault
    except ValueError as fault:  # a null character, or half of one
        raise SyntaxError(str(fault)) from fault
    level: list[ast.AST] = [tree]
    for _ in range(MAX_DEPTH):
        level = [inner for node in level for inner in ast.iter_child_nodes(node)]
        if not level:
            return tree
    raise TooDeepError(f"nested more than {MAX_DEPTH} deep")


def tree_as_run(cell: str) -> ast.Module:
    """The tree of a cell as IPython reads it: commands, prompts and a common indentation are what a
    notebook may have beside Python. Some commands of one line need no `%`.

    Raises:
        SyntaxError: It is not Python.
        TooDeepError: It is nested more than MAX_DEPTH deep.
    """
    try:
        return tree_of(cell)
    except TooDeepError:
        raise
    except SyntaxError:
        from IPython.core.inputtransformer2 import TransformerManager

        is_command = len(lines := cell.splitlines()) == 1 and lines[0].split(" ")[0] in COMMANDS
        with suppress(RuntimeError):  # too many commands: IPython does not run it either
            return tree_of(TransformerManager().transform_cell(f"%{cell}" if is_command else cell))
        raise


COMMANDS = frozenset({"autocall", "config", "debug", "prun", "time", "timeit"})
"""What runs a text, or decides what is Python, also where its line begins without a `%`."""


def code_of_cell(cell: str, most_within: int) -> Iterator[ast.Module]:
    """A cell's code, and what `%time` and the like run in it; nothing where it is not Python.

    Args:
        most_within: How often commands may stand within one another.

    Raises:
        TooDeepError: It is nested too deep.
    """
    if most_within < 0:
        raise TooDeepError
    try:
        tree = tree_as_run(cell)
    except TooDeepError:
        raise
    except SyntaxError:
        return
    yield tree
    for node in ast.walk(tree):
        match node:
            case ast.Call(ast.Attribute(_, "run_line_magic" | "run_cell_magic"), [_, *texts]):
                for text in texts:
                    if isinstance(text, ast.Constant) and isinstance(text.value, str):
                        yield from code_of_cell(text.value, most_within - 1)
                        text.value = ""  # read as code; and `gc?` is a question
