"""In a student's process the bank contains questions without answers.

    bank        reference, right and wrong functions refuse for good; their code is gone
    course      what an exercise asks to write by hand works in ordinary cells, and refuses from a
                graded call until the next cell; so do copies of its code made in an earlier cell,
                and processes started there; the grader says which is the case (`board`)
    values      the answer to a number or a choice stays, as its question depends on it, and who
                reads the bank knows it at home; `bank.load` alone finds it, and tells the grader
                of all but `ask`, `check` and the like
    files       the bank and the files that hold references or write solutions are covered

What this can't stop is a student who pastes the text of the course's own function as the answer, or
rewrites its bytecode: the course is public, and what is handed in is then a right answer in
somebody else's words. That is for a comparison of texts and for people. The points never rest on
any of this: the referee, in another process, compares answers to cases it has just drawn.
"""

from __future__ import annotations
import __future__

import ast
import ctypes
import gc
import importlib
import importlib.util
import inspect
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from mmap import PAGESIZE, mmap
from pathlib import Path
from threading import get_ident
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import autograde
from autograde import bank
from autograde.by_hand import (
    functions_named,
    functions_of,
    functions_of_modules_named,
    guarded_modules,
    names_in,
    reached_by,
    refusal,
)
from autograde.exercise import Exercise, NotAllowedError
from autograde.sandbox import copies, kernel, reaching
from autograde.sandbox.board import numbers
from autograde.sandbox.sealed import sealed

STAND_INS = {"course.engine.step": ("course.debug.museum.exhibit",)}
"""Modules that hold the same answers under other names, by the module that an exercise guards."""
HANDED_TO = (
    *("check", "kit.question", "kit.hint", "kinds.value", "kinds.shuffled", "kinds.choice"),
    *("kinds.number", "kinds.order", "kinds.tune", "kinds.write"),
)
"""Modules that an exercise which is answered by a value is handed to, with the right answer."""
GUARD, BOARD = "autograde's guard stands here", "autograde's board stands here"
FUTURE = __future__.annotations.compiler_flag


@cache
def leave_only_questions() -> None:
    """Take the answers out of the bank and put guards into `course`; a second call does nothing."""
    exercises = [entry.load() for entry in bank.asks_for_code().values()]
    if not any(exercise.wrong for exercise in exercises):
        return
    by_exercise = {exercise.id: guarded_with_stand_ins(exercise) for exercise in exercises}
    modules = set().union(*by_exercise.values())
    for name in modules:
        importlib.import_module(name)
    guarded = [("", frozenset[str]())]
    guarded += [(e.name, frozenset(_guarded(e, by_exercise[e.id]))) for e in exercises]
    assert list(numbers()) == [exercise.id for exercise in exercises]
    for name in sorted(modules):
        _put_guards(functions_of(sys.modules[name]), _guard(name, guarded))
    others = set().union(*(refused for _, refused in guarded)) - modules
    named = {f for exercise in exercises for f in functions_named(exercise)}
    of_modules = {f for exercise in exercises for f in functions_of_modules_named(exercise)}
    theirs = {name_of(f): f for f in named | of_modules if name_of(f) in others}
    for what, function in theirs.items():
        _put_guards([function], _guard(what, guarded))
    ours = (f for name in sorted(modules) for f in functions_of(sys.modules[name]))
    codes = [f.__code__ for f in (*ours, *theirs.values())]
    _hooks.append(
        copies.hook_for([c for c in codes if _seen in c.co_consts], _seen, _foreign(named))
    )
    covered()  # while each reference still says what it is made of
    _take_answers(exercises)
    _hide_values()


def _hide_values() -> None:
    """Of the exercises that are answered by a value, what holds them is no module any more, but a
    function that leads to none of them."""
    entries, tell, usual = bank.asks_for_value(), sys.audit, bank.load
    held = {id: entry.load() for id, entry in entries.items()}
    handed_to = [importlib.import_module(f"autograde.{name}") for name in HANDED_TO]
    classes = {kind for exercise in held.values() for kind in type(exercise).__mro__}
    scopes = [(scope, dict(scope)) for scope in map(vars, (*handed_to, *classes))]
    for entry in entries.values():
        sys.modules.pop(entry.module, None)
        vars(bank).pop(entry.module.rpartition(".")[2], None)

    def found(id: str) -> Exercise:
        changed = any(now.get(name) is not v for now, was in scopes for name, v in was.items())
        tell(reaching.ASKED_FOR, id, changed)
        return held[id]

    found, known = sealed(found), frozenset(held)

    def load(id: str) -> Exercise:
        return found(id) if id in known else usual(id)

    load.__doc__ = usual.__doc__
    bank.load = load


@cache
def covered() -> tuple[Path, ...]:
    """Files and folders that a student's process must not be able to read; asked for before the
    answers are taken."""
    paths = [Path(folder) for folder in bank.__path__]
    package = Path(autograde.__file__).parent
    paths += [package / "classroom" / "example", package / "expand.py", package / "authoring.py"]
    paths.append(Path(importlib.util.find_spec("greenlet").origin).parent)
    for entry in bank.asks_for_code().values():
        for name in sorted(guarded_with_stand_ins(entry.load())):
            source = Path(sys.modules[name].__file__)
            paths += [source, *source.parent.glob(f"__pycache__/{source.stem}.*.pyc")]
    return tuple(dict.fromkeys(paths))


def _take_answers(exercises: list[Exercise]) -> None:
    """Refusing code for every function of an exercise's module that no `run` needs.

    Whoever holds it: a closure, a table, a cache; what has no name is found by the collector.
    """
    asked = {sys.modules[exercise.run.__module__].__file__: exercise.name for exercise in exercises}
    needed = reached_by(*(exercise.run for exercise in exercises))
    functions = [one for one in gc.get_objects() if type(one) is FunctionType]
    for function in functions:
        code = function.__code__
        if code.co_filename in asked and function not in needed:
            asks = asked[code.co_filename]
            function.__code__ = refusal(function.__name__, asks, code.co_freevars)
            vars(function).pop("__source__", None)
    _take_texts({exercise.run.__module__ for exercise in exercises}, needed)
    for exercise in exercises:
        for field in ("wrong", "right"):
            object.__setattr__(exercise, field, ())


def _take_texts(modules: set[str], needed: set[FunctionType]) -> None:
    """Empty the exercises' modules of what no `run` names: a right answer is also kept as text."""
    kept = {name: {"GIVEN", "MOST"} for name in modules}
    for function in needed:
        names, scope = names_in(function.__code__), function.__globals__
        of_modules = {v.__name__ for n in names if isinstance(v := scope.get(n), ModuleType)}
        for name in {function.__module__, *of_modules} & modules:
            kept[name] |= names
    for name in modules:
        module = vars(sys.modules[name])
        for key, value in list(module.items()):
            if not (key in kept[name] or key.startswith("__") or isinstance(value, Exercise)):
                del module[key]


_hooks: list[copies.Hook] = []


def refuse_copies() -> None:
    """Of guarded functions, in this process: see `copies`."""
    if _hooks:
        copies.install(_hooks.pop())


_page = mmap(-1, PAGESIZE)
_place = ctypes.addressof(ctypes.c_char.from_buffer(_page))
_seen = memoryview(_page).toreadonly().cast("H").__getitem__
"""The number on the board: `_seen(0)`."""


def look_at(board: int) -> None:
    """Have the guards of this process, and of all that it starts, read the grader's board.

    Args:
        board: Its descriptor, open for reading.
    """
    kernel.map_over(_place, PAGESIZE, board)


def stands_inside() -> str:
    """A function of the course that refuses at present, and that another thread was in before that,
    past its guard; empty if there is none."""
    here = get_ident()
    for thread, frame in sys._current_frames().items():
        while thread != here and frame is not None:
            if _refuses(frame.f_code):
                return frame.f_code.co_name
            frame = frame.f_back
    return ""


def _refuses(code: CodeType) -> bool:
    """Whether a guard in it would refuse now."""
    if _seen not in code.co_consts:
        return False
    guards = [one for one in code.co_consts if type(one) is tuple and len(one) > _seen(0)]
    return any(type(guard[_seen(0)]) is MethodType for guard in guards)


def _guard(what: str, guarded: list[tuple[str, frozenset[str]]]) -> tuple[Callable[[], Any], ...]:
    """What a guard calls, by the number on the board. It is made of C's functions and values that
    can't be changed, which leave nothing to be exchanged from Python."""
    ended = (nothing for nothing in ())
    next(ended, None)
    return tuple(
        MethodType(
            ended.throw,
            NotAllowedError(
                f"The course's own code is what this exercise asks you to write: {name} may not "
                "call it, nor a copy of it."
            ),
        )
        if what in refused
        else int
        for name, refused in guarded
    )


def guarded_with_stand_ins(exercise: Exercise) -> set[str]:
    """Modules of `course` by which an exercise could be answered."""
    found = guarded_modules(exercise)
    return found.union(*(STAND_INS.get(module, ()) for module in found))


def _guarded(exercise: Exercise, modules: set[str]) -> Iterator[str]:
    """Names of guards: modules of `course`, and functions of torch."""
    yield from modules
    theirs = [*functions_named(exercise), *functions_of_modules_named(exercise)]
    yield from map(name_of, _foreign(theirs))


def _foreign(functions: Iterable[FunctionType]) -> list[FunctionType]:
    return [f for f in functions if not f.__module__.startswith("course.")]


def name_of(function: FunctionType) -> str:
    """Name of the guard of another package's function."""
    return f"{function.__module__}.{function.__qualname__}"


def _put_guards(functions: list[FunctionType], guard: tuple[Callable[[], Any], ...]) -> None:
    """Compile functions again with a guard at their head, and exchange their codes.

    Guard and board are constants of the code itself: a function made of a copy of it asks them too.
    """
    codes: dict[tuple[str, int], CodeType] = {}
    for function in functions:
        code = function.__code__
        key = code.co_qualname, code.co_firstlineno
        if key not in codes:
            codes |= _with_placeholders(code, alone=len(functions) == 1)
        function.__code__ = _with_guard(codes[key], guard)


def _with_placeholders(of: CodeType, *, alone: bool) -> dict[tuple[str, int], CodeType]:
    """The codes of a file's functions, each with a place for a guard at its head.

    Args:
        of: The code of one of them.
        alone: Whether only that one is needed: torch's files are long.
    """
    text = Path(of.co_filename).read_text("utf-8")
    tree = ast.parse(_by_itself(of, text) if alone else text)
    for node in list(_functions_in(tree)):
        after_docstring = 1 if ast.get_docstring(node) is not None else 0
        asked = ast.copy_location(ast.Expr(_asked()), node.body[0])
        node.body.insert(after_docstring, asked)
    tree = ast.fix_missing_locations(_AskedAfterYield().visit(tree))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # texts that are called: they will be what they stand for
        whole = compile(tree, of.co_filename, "exec", of.co_flags & FUTURE)
    return {(code.co_qualname, code.co_firstlineno): code for code in _codes(whole)}


def _asked() -> ast.expr:
    return ast.parse(f"{GUARD!r}[{BOARD!r}(0)]()", mode="eval").body


class _AskedAfterYield(ast.NodeTransformer):
    """A generator that an ordinary cell began is asked again where it goes on."""

    def visit_Yield(self, node: ast.Yield | ast.YieldFrom) -> ast.expr:
        """`(yield value, guard)[0]`: the guard is asked after the generator was."""
        self.generic_visit(node)
        both = ast.Tuple([node, _asked()], ast.Load())
        return ast.copy_location(ast.Subscript(both, ast.Constant(0), ast.Load()), node)

    visit_YieldFrom = visit_Yield


def _by_itself(of: CodeType, text: str) -> str:
    """A function's lines where they stand, the others empty; a method has its class above."""
    first, (*owner, _name) = of.co_firstlineno, of.co_qualname.split(".")
    if len(owner) > 1:  # inside another function
        return text
    lines = inspect.getblock(text.splitlines(keepends=True)[first - 1 :])
    head = f"class {owner[0]}:\n" if owner else ""
    return "\n" * (first - 1 - len(owner)) + head + "".join(lines)


def _functions_in(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """All that are defined in it, at any depth; only statements hold any."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for one in getattr(node, field, ()):
            if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield one
            yield from _functions_in(one)


def _codes(code: CodeType) -> Iterator[CodeType]:
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield const
            yield from _codes(const)


def _with_guard(code: CodeType, guard: tuple[Callable[[], Any], ...]) -> CodeType:
    known = {GUARD: guard, BOARD: _seen}
    consts = [
        _with_guard(c, guard) if isinstance(c, CodeType)
        else known.get(c, c) if isinstance(c, str)
        else c
        for c in code.co_consts
    ]  # fmt: skip
    return code.replace(co_consts=tuple(consts))
