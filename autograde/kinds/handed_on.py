"""What a loop to fix hands its work on to: code whose lines are not counted as changed.

Read from the text of a notebook's cells and of the files beside it; and from what ran when the loop
was called, as the student's process tells it.
"""

from __future__ import annotations

import ast
import builtins
import difflib
import importlib.util
import sys
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from typing import Any

from autograde.exercise import Exercise
from autograde.kinds.fix import codes_of, is_loop, lines_in, module_of, plain_lines
from autograde.syntax import tree_of


def lines_elsewhere(
    exercise: Exercise, trees: list[ast.Module], others: Iterable[str] = ()
) -> dict[str, int]:
    """What a loop leads to though the given one does not, by name, with its number of lines: none
    if these are no more than may differ.

    They are not counted as changed, since what a loop calls may have been there before. But a loop
    that hands its work to another one is written again, however few of its own lines differ. What
    it is handed to may be a function, or whatever holds one, and stand in the loop's first line.

    Args:
        trees: Code of a notebook's cells, and of files beside it.
        others: Names that other exercises ask for, which a loop may use.
    """
    module = module_of(exercise)
    given = next(node for node in tree_of(module.GIVEN).body if isinstance(node, ast.FunctionDef))
    bound = _bound(trees)
    known = {exercise.name, *others, *_asked_for(given), *_arguments(given)}
    found: dict[str, int] = {}
    waiting: list[ast.AST] = []
    for node in bound.get(exercise.name, ()):
        if isinstance(node, ast.FunctionDef):
            waiting.append(node)
            found |= {
                name: _size(default)
                for name, default in _defaults(node).items()
                if name not in _defaults(given) and not isinstance(default, ast.Constant)
            }
    while waiting:
        node = waiting.pop()
        for name in bound.keys() & _asked_for(node) - known:
            known.add(name)
            found[name.lstrip(".")] = sum(map(_size, bound[name]))
            waiting += bound[name]
    return found if sum(found.values()) > module.MOST else {}


def codes_named(cells: Iterable[str], name: str) -> set[str]:
    """Hashes of a function or class that cells define, and of all code inside it."""
    return {one for cell in cells if name in cell for one in codes_of(cell).get(name, ())}


def ran_besides(exercise: Exercise, ran: Any, others: Container[str]) -> dict[str, int]:
    """What ran of a student's own when a loop was called, though the given one does not run it, by
    name, with its size: none if this is no more than may differ.

    Args:
        ran: As the student's process says: `Further.found`.
        others: Hashes of code that answers other exercises, which a loop may use.
    """
    found: dict[str, int] = {}
    for code, about in ran.items() if isinstance(ran, dict) else ():
        match about:
            case [str(name), int(size)] if code not in others:
                found[name] = found.get(name, 0) + max(size, 1)
    return found if sum(found.values()) > module_of(exercise).MOST else {}


def without_the_loop(
    exercise: Exercise, cells: Sequence[str], ran: dict[str, Any]
) -> dict[str, Any]:
    """What ran when a decorated loop was called, but for the loop itself: a function of its name in
    the cells, with no more lines changed than may differ. What the decorator runs is left.

    Args:
        cells, ran: As of `written_change` and `ran_besides`.
    """
    of_its_name = codes_named(cells, exercise.name)
    loops = {code for code in of_its_name & ran.keys() if is_loop(exercise, cells, code)}
    return {code: about for code, about in ran.items() if code not in loops}


def calls_packed(exercise: Exercise, cells: Sequence[str], code: str) -> int:
    """How many more calls stand inside comprehensions, lambdas, tuples and the like in the lines
    that a loop changes than in those it replaces: 0 if these are few, or no more than lines may
    differ.

    Args:
        cells, code: As of `written_change`.
    """
    module = module_of(exercise)
    before, after = plain_lines(module.GIVEN), lines_in(cells, code) or ()
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    packed = sum(
        sum(map(_calls_within, after[j1:j2])) - sum(map(_calls_within, before[i1:i2]))
        for tag, i1, i2, j1, j2 in matcher.get_opcodes()
        if tag != "equal"
    )
    return packed if packed > max(module.MOST, FEW) else 0


FEW = 10
"""Calls in comprehensions, tuples and the like that a repair may well add: what is saved to a file
takes up to 6 in the bank's own."""


@lru_cache(maxsize=1000)
def _calls_within(line: str) -> int:
    """Calls in one line of a function, which may begin a block, inside what holds several."""
    line = line.strip()
    for text in (line, f"{line} pass", f"if 0: pass\n{line} pass", f"try: pass\n{line} pass"):
        with suppress(SyntaxError):
            within = [one for one in ast.walk(tree_of(text)) if isinstance(one, HOLDS_SEVERAL)]
            return len(
                {id(call) for one in within for call in ast.walk(one) if isinstance(call, ast.Call)}
            )
    return 0


def _asked_for(tree: ast.AST) -> set[str]:
    """The names that some code reads and does not itself bind, attributes with their dot; of what
    it imports the names there."""
    nodes = list(ast.walk(tree))
    names = [node for node in nodes if isinstance(node, ast.Name)]
    own = {node.arg for node in nodes if isinstance(node, ast.arg)}
    own |= {name.id for name in names if not isinstance(name.ctx, ast.Load)}
    found = {name.id for name in names} - own
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            found |= {one.name for one in node.names}
        elif isinstance(node, ast.Attribute):
            found |= {f".{node.attr}"}
    return found


def _arguments(function: ast.FunctionDef) -> set[str]:
    return {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}


def _defaults(function: ast.FunctionDef) -> dict[str, ast.expr]:
    """What a function's arguments are where nothing is handed over."""
    args = function.args
    places = [*args.posonlyargs, *args.args]
    pairs = [*zip(places[len(places) - len(args.defaults) :], args.defaults, strict=True)]
    pairs += [*zip(args.kwonlyargs, args.kw_defaults, strict=True)]
    return {arg.arg: default for arg, default in pairs if default is not None}


def _bound(trees: list[ast.Module]) -> dict[str, list[ast.AST]]:
    """The statements that give names a value outside of functions, by name, an attribute's with its
    dot; and `global` ones. Imports count where they are of no library."""
    found: dict[str, list[ast.AST]] = {}
    nodes = [node for tree in trees for node in _outside(tree)]
    for node in nodes:
        for name in _names_bound(node):
            found.setdefault(name, []).append(node)
    if any(isinstance(node, ast.Import) and not _are_libraries(node) for node in nodes):
        found |= {f".{name}": found[name] for name in found if f".{name}" not in found}
    return found


def _are_libraries(node: ast.Import) -> bool:
    return all(_is_library(one.name) for one in node.names)


def _outside(tree: ast.AST) -> Iterator[ast.AST]:
    """What stands in some code, but not what is inside a function or class."""
    for node in ast.iter_child_nodes(tree):
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from _outside(node)


def _names_bound(node: ast.AST) -> set[str]:
    match node:
        case ast.ClassDef():
            return {node.name}
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            inside = [one for one in ast.walk(node) if isinstance(one, ast.Global)]
            return {node.name}.union(*(one.names for one in inside))
        case ast.ImportFrom(module=home, names=aliases) if not _is_library(home or ""):
            return {alias.asname for alias in aliases if alias.asname}
        case ast.Assign(targets=targets):
            return set().union(*map(_names_of_target, targets))
        case ast.AnnAssign(target=target) | ast.AugAssign(target=target) | ast.For(target=target):
            return _names_of_target(target)
        case ast.NamedExpr(target=target) | ast.withitem(optional_vars=ast.expr() as target):
            return _names_of_target(target)
        case ast.Call(ast.Name("setattr"), [_, ast.Constant(str() as name), *_]):
            return {name, f".{name}"}
    return set()


def _names_of_target(target: ast.expr) -> set[str]:
    """Its name, or that at its root unless this is a library or builtin; an attribute of it, of
    `builtins` also as a name; and a text in brackets, as of `globals()`."""
    found = set()
    for node in ast.walk(target):
        match node:
            case ast.Name(name, ast.Load()) if hasattr(builtins, name) or _is_library(name):
                continue
            case ast.Name(name):
                found |= {name}
            case ast.Attribute(owner, name):
                of_all = isinstance(owner, ast.Name) and owner.id == "builtins"
                found |= {f".{name}", name} if of_all else {f".{name}"}
            case ast.Subscript(ast.Call(), ast.Constant(str() as name)):
                found |= {name}
    return found


@cache
def _is_library(module: str) -> bool:
    """Whether a module is one that is installed here; what is beside a notebook is not."""
    top = module.partition(".")[0]
    with suppress(ImportError, ValueError, AttributeError):
        return top in sys.modules or importlib.util.find_spec(top) is not None
    return False


def _size(node: ast.AST) -> int:
    """Lines of some code, each call inside a lambda or a comprehension as one more."""
    within = [one for one in ast.walk(node) if isinstance(one, IN_ONE_LINE)]
    calls = {id(call) for one in within for call in ast.walk(one) if isinstance(call, ast.Call)}
    return len(ast.unparse(node).splitlines()) + len(calls)


IN_ONE_LINE = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
"""Code that has no lines of its own."""
HOLDS_SEVERAL = (*IN_ONE_LINE, ast.Tuple, ast.List, ast.Set, ast.Dict, ast.BoolOp, ast.IfExp)
"""Expressions with room for what could stand in several lines."""
