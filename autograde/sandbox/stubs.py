"""In a student's process the bank holds questions without answers.

    bank        reference, right and wrong functions refuse for good; their code is gone
    course      what an exercise asks to write by hand works in ordinary cells, and refuses while a
                graded call runs; so do copies of its code made in an earlier cell
    values      the answer to a number or a choice stays: whoever reads the bank knows it at home
    files       the bank and the files that hold references are covered (`covered`)

What this can't stop is a student who pastes the text of the course's own function as the answer, or
rewrites its bytecode: the course is public, and what is handed in is then a right answer in
somebody else's words. That is for a comparison of texts and for people. The points never rest on
any of this: the referee, in another process, compares answers to cases it has just drawn.
"""

from __future__ import annotations

import ast
import importlib
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import autograde
from autograde import bank
from autograde.by_hand import functions_of, guarded_modules, python_function, reached_by, refusal
from autograde.exercise import Exercise, NotAllowedError

STAND_INS = {"course.engine.step": ("course.debug.museum.exhibit",)}
"""Modules that hold the same answers under other names, by the module that an exercise guards."""
PLACEHOLDER = "autograde's guard stands here"


def leave_only_questions() -> None:
    """Take the answers out of the bank and put guards into `course`; a second call does nothing."""
    exercises = [entry.load() for entry in bank.asks_for_code().values()]
    if not any(exercise.wrong for exercise in exercises):
        return
    modules = {module for exercise in exercises for module in guarded_with_stand_ins(exercise)}
    for name in modules:
        importlib.import_module(name)
    for name in sorted(modules):
        _put_guards(functions_of(sys.modules[name]), name)
    others = {what for exercise in exercises for what in _guarded(exercise)} - modules
    for function in {python_function(f) for exercise in exercises for f in exercise.by_hand}:
        what = f"{function.__module__}.{function.__qualname__}"
        if what in others:
            _put_guards([function], what)
    _with_placeholders.cache_clear()  # torch's functions take room
    for exercise in exercises:
        _take_answers(exercise)


@cache
def covered() -> tuple[Path, ...]:
    """Files and folders that a student's process must not be able to read."""
    paths = [Path(folder) for folder in bank.__path__]
    paths.append(Path(autograde.__file__).parent / "classroom" / "example")
    for entry in bank.asks_for_code().values():
        for name in sorted(guarded_with_stand_ins(entry.load())):
            source = Path(sys.modules[name].__file__)
            paths += [source, *source.parent.glob(f"__pycache__/{source.stem}.*.pyc")]
    return tuple(dict.fromkeys(paths))


def _take_answers(exercise: Exercise) -> None:
    """Refusing code for every function of the exercise's module that `run` does not need."""
    module = sys.modules[exercise.run.__module__]
    needed = reached_by(exercise.run)
    for function in functions_of(module):
        if function not in needed and not function.__code__.co_freevars:
            function.__code__ = refusal(function.__name__, exercise.name)
    for field in ("wrong", "right"):
        object.__setattr__(exercise, field, ())


def _make_guards() -> tuple[Callable[[str], Callable[[], None]], Callable[..., Any]]:
    """A maker of guards, and a context in which some refuse; what they share has no name."""
    graded: list[tuple[str, frozenset[str]]] = []
    made: dict[str, Callable[[], None]] = {}

    def guard_of(what: str) -> Callable[[], None]:
        def guard() -> None:
            if graded and what in graded[-1][1]:
                raise NotAllowedError(
                    f"The course's own code is what this exercise asks you to write: "
                    f"{graded[-1][0]} may not call it, nor a copy of it."
                )

        return made.setdefault(what, guard)

    @contextmanager
    def while_graded(exercise: Exercise) -> Iterator[None]:
        graded.append((exercise.name, frozenset(_guarded(exercise))))
        try:
            yield
        finally:
            graded.pop()

    return guard_of, while_graded


_guard_of, while_graded = _make_guards()


def guarded_with_stand_ins(exercise: Exercise) -> set[str]:
    """Modules of `course` by which an exercise could be answered."""
    found = guarded_modules(exercise)
    return found.union(*(STAND_INS.get(module, ()) for module in found))


def _guarded(exercise: Exercise) -> Iterator[str]:
    """Names of guards: modules of `course`, and functions of torch."""
    yield from guarded_with_stand_ins(exercise)
    for function in map(python_function, exercise.by_hand):
        if not function.__module__.startswith("course."):
            yield f"{function.__module__}.{function.__qualname__}"


def _put_guards(functions: list[FunctionType], what: str) -> None:
    """Compile functions again with a guard at their head, and exchange their codes.

    The guard is a constant of the code itself: a function made of a copy of the code asks it too.
    """
    codes = _with_placeholders(functions[0].__code__.co_filename)
    for function in functions:
        key = function.__code__.co_qualname, function.__code__.co_firstlineno
        function.__code__ = _with_guard(codes[key], _guard_of(what))


@cache
def _with_placeholders(file: str) -> dict[tuple[str, int], CodeType]:
    """The codes of a file's functions, each with a place for a guard at its head."""
    tree = ast.parse(Path(file).read_text("utf-8"))
    call = ast.Expr(ast.Call(ast.Constant(PLACEHOLDER), args=[], keywords=[]))
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            after_docstring = 1 if ast.get_docstring(node) is not None else 0
            node.body.insert(after_docstring, ast.copy_location(call, node.body[0]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a constant that is called: it will be our guard
        whole = compile(ast.fix_missing_locations(tree), file, "exec")
    return {(code.co_qualname, code.co_firstlineno): code for code in _codes(whole)}


def _codes(code: CodeType) -> Iterator[CodeType]:
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield const
            yield from _codes(const)


def _with_guard(code: CodeType, guard: Callable[[], None]) -> CodeType:
    consts = [_with_guard(c, guard) if isinstance(c, CodeType) else c for c in code.co_consts]
    return code.replace(co_consts=tuple(guard if c == PLACEHOLDER else c for c in consts))
