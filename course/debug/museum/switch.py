"""The lines of an exhibit that its switch changes, in their broken and in their fixed form.

`make(bug)` holds both programs at once. Written out with the switch on and off, and without the
branches that are then never taken, they differ only in the lines that are the bug.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import textwrap
from collections.abc import Callable
from typing import Any


def broken_and_fixed(make: Callable[[bool], dict[str, Any]]) -> list[tuple[str, str]]:
    """Lines that differ, in order, each as ("-", broken) or ("+", fixed)."""
    source = textwrap.dedent(inspect.getsource(make))
    broken, fixed = (_written_out(source, bug) for bug in (True, False))
    lines = difflib.ndiff(broken, fixed)
    return [(line[0], line[2:]) for line in lines if line[0] in "-+"]


def _written_out(source: str, bug: bool) -> list[str]:
    """The body of the function with the switch in one position."""
    tree = _Switch(bug).visit(ast.parse(source))
    return [line for node in tree.body[0].body for line in ast.unparse(node).splitlines()]


class _Switch(ast.NodeTransformer):
    """Replaces the name `bug` by its value and leaves out what then cannot happen."""

    def __init__(self, bug: bool) -> None:
        self.bug = bug

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(self.bug) if node.id == "bug" else node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        known = isinstance(node.op, ast.Not) and isinstance(node.operand, ast.Constant)
        return ast.Constant(not node.operand.value) if known else node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        decides = isinstance(node.op, ast.Or)  # True ends an "or", False an "and"
        left = []
        for value in node.values:
            if isinstance(value, ast.Constant) and bool(value.value) == decides:
                return ast.Constant(decides)
            left += [] if isinstance(value, ast.Constant) else [value]
        if not left:
            return ast.Constant(not decides)
        return left[0] if len(left) == 1 else ast.BoolOp(node.op, left)

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.test, ast.Constant):
            return node.body if node.test.value else node.orelse
        return node

    def visit_If(self, node: ast.If) -> Any:
        self.generic_visit(node)
        if isinstance(node.test, ast.Constant):
            return (node.body if node.test.value else node.orelse) or ast.Pass()
        return node
