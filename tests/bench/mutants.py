"""Small changes of a right answer, one at a time: is each of them refused?

A mutant has one operator, constant, statement or keyword changed, two statements in the other
order, or a return moved into its loop. Two statements that cannot meet (`tests.bench.order`) stay
as they are: their order is nobody's mistake.
"""

from __future__ import annotations

import ast
import copy
import dis
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from autograde.kinds.fix import variant
from tests.bench.order import cannot_meet

Mutant = tuple[str, Callable[..., Any]]
"""(what was changed and in which line, the changed answer)."""


def has_source(right: Any) -> bool:
    """Whether its text can be changed: a script's is kept, others stand in a file."""
    if hasattr(right, "__source__"):
        return True
    code = getattr(inspect.unwrap(right), "__code__", None)
    return isinstance(right, type) or (code is not None and Path(code.co_filename).exists())


def mutants_of(right: Callable[..., Any]) -> Iterator[Mutant]:
    """Every mutant of a right answer: of a script's text, a class, or a function and those that it
    calls in its module.
    """
    if hasattr(right, "__source__"):
        yield from _mutants_of_script(right)
    elif isinstance(right, type):
        yield from _mutants_of_class(right)
    else:
        yield from _mutants_of_function(inspect.unwrap(right))


def _mutants_of_script(right: Any) -> Iterator[Mutant]:
    for what, mutated in mutated_trees(ast.parse(right.__source__)):
        with suppress(SyntaxError):
            yield what, variant(ast.unparse(mutated), right.__code__.co_filename)


def _mutants_of_class(right: type) -> Iterator[Mutant]:
    """None of a class that a function has made: it has no text of its own."""
    module = sys.modules[right.__module__]
    try:
        source = inspect.getsource(right)
    except OSError:
        return
    for what, mutated in mutated_trees(ast.parse(textwrap.dedent(source))):
        scope = dict(vars(module))
        with suppress(Exception):  # one that cannot be defined is nobody's answer
            exec(compile(mutated, module.__file__, "exec"), scope)
            yield what, scope[right.__name__]


def _mutants_of_function(function: FunctionType) -> Iterator[Mutant]:
    module = sys.modules[function.__module__]
    ours = called_by(function)
    for target in sorted(ours, key=lambda f: f.__code__.co_firstlineno):
        tree = ast.parse(textwrap.dedent(inspect.getsource(target)))
        for what, mutated in mutated_trees(tree):
            scope = dict(vars(module))
            for other in ours:  # so that they find the mutant, and not the original
                scope[other.__name__] = _rebound(other, scope)
            try:
                exec(compile(mutated, module.__file__, "exec"), scope)
            except SyntaxError:
                continue
            inside = "" if target is function else f"{target.__name__}: "
            yield inside + what, scope[function.__name__]


def called_by(function: FunctionType) -> list[FunctionType]:
    """A function and those of its module that it calls by name, directly or through others."""
    found: list[FunctionType] = []
    waiting = [function]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.append(one)
            values = [one.__globals__.get(name) for name in _globals_of(one.__code__)]
            waiting += [
                f
                for value in values
                for f in _functions(value)
                if f.__module__ == function.__module__ and "." not in f.__qualname__
            ]
    return found


def _globals_of(code: CodeType) -> set[str]:
    """Names that it looks up in its module; not those of attributes."""
    found = {one.argval for one in dis.get_instructions(code) if one.opname == "LOAD_GLOBAL"}
    inside = [const for const in code.co_consts if isinstance(const, CodeType)]
    return found.union(*map(_globals_of, inside))


def _functions(value: Any) -> list[FunctionType]:
    """A function below its decorators, or those that a dictionary, list or tuple holds."""
    held = value.values() if isinstance(value, dict) else value
    held = list(held) if isinstance(value, (dict, list, tuple)) else [value]
    return [f for f in map(inspect.unwrap, filter(callable, held)) if isinstance(f, FunctionType)]


def _rebound(function: FunctionType, scope: dict[str, Any]) -> FunctionType:
    made = FunctionType(
        function.__code__, scope, function.__name__, function.__defaults__, function.__closure__
    )
    made.__kwdefaults__ = function.__kwdefaults__
    return made


SWAPS: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div, ast.Mod: ast.FloorDiv, ast.Lt: ast.LtE, ast.LtE: ast.Lt,
    ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.And: ast.Or,
    ast.Or: ast.And, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip

Change = tuple[str, Callable[[Any], None]]
"""(what is changed, a function that changes a copy of the node in place)."""


def mutated_trees(tree: ast.Module) -> Iterator[tuple[str, ast.Module]]:
    """(what was changed and in which line, the changed tree), each with one change."""
    lines = ast.unparse(tree).splitlines()
    numbered = ast.parse(ast.unparse(tree))  # whose line numbers are those of `lines`
    for number, node in enumerate(ast.walk(numbered)):
        for what, change in _changes(node):
            copied = copy.deepcopy(numbered)
            change(next(n for i, n in enumerate(ast.walk(copied)) if i == number))
            line = lines[node.lineno - 1].strip() if hasattr(node, "lineno") else ""
            inside = "" if what.startswith("`") else f" in `{line}`"
            yield what + inside, ast.fix_missing_locations(copied)


def _changes(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, (ast.BinOp, ast.AugAssign, ast.BoolOp)) and type(node.op) in SWAPS:
        new = SWAPS[type(node.op)]
        yield f"{type(node.op).__name__} to {new.__name__}", lambda n: setattr(n, "op", new())
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        new = SWAPS[type(node.ops[0])]
        yield (
            f"{type(node.ops[0]).__name__} to {new.__name__}",
            lambda n: n.ops.__setitem__(0, new()),
        )
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.Invert)):
        yield "negation dropped", lambda n: setattr(n, "op", ast.UAdd())
    if isinstance(node, ast.Constant):
        yield from _changes_of_a_constant(node.value)
    if isinstance(node, ast.Call):
        for index, keyword in enumerate(node.keywords):
            yield f"{keyword.arg}= dropped", lambda n, i=index: n.keywords.pop(i)
    for name in ("body", "orelse"):
        block = getattr(node, name, None)
        if isinstance(block, list) and not isinstance(node, ast.Module):
            yield from _changes_of_a_block(name, block)


def _changes_of_a_constant(value: Any) -> Iterator[Change]:
    if isinstance(value, bool):
        yield f"{value} to {not value}", lambda n: setattr(n, "value", not value)
    elif isinstance(value, (int, float)):
        for new_value in (value + 1, value - 1):
            yield f"{value} to {new_value}", lambda n, v=new_value: setattr(n, "value", v)


def _changes_of_a_block(name: str, block: list[ast.stmt]) -> Iterator[Change]:
    for i, statement in enumerate(block):
        text = ast.unparse(statement).splitlines()[0][:50]
        if i == 0 and _is_docstring(statement):
            continue
        if not isinstance(statement, (ast.Return, ast.Pass)):
            yield f"`{text}` dropped", lambda n, i=i: getattr(n, name).__setitem__(i, ast.Pass())
        if i and not isinstance(statement, ast.Return) and not cannot_meet(block[i - 1], statement):

            def swap(n: Any, i: int = i) -> None:
                lines = getattr(n, name)
                lines[i - 1], lines[i] = lines[i], lines[i - 1]

            yield f"`{text}` one line earlier", swap
        if (
            i
            and isinstance(statement, ast.Return)
            and isinstance(block[i - 1], ast.For | ast.While)
        ):

            def indent(n: Any, i: int = i) -> None:
                getattr(n, name)[i - 1].body.append(getattr(n, name)[i])

            yield "return moved into the loop", indent


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
