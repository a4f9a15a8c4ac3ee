"""The syntax tree of a text that a student wrote, bounded: whatever walks it comes to an end.

A text can nest an expression a thousand deep, which no person writes, and which would end a process
that reads a whole class.
"""

from __future__ import annotations

import ast
import warnings

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
