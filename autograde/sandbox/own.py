"""What answers a case in a student's process is put back as it was before a student's code ran.

The student's code shares the process: it can give other functions the names of ours, exchange their
code, or change an exercise. None of that is refused, as an honest notebook may do it by mistake;
before a case is put to a function, and before its answer is packed, all of it is as it was.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any

from autograde.exercise import Exercise
from autograde.kinds import ValueExercise

OURS = (
    "autograde.answers", "autograde.apart", "autograde.by_hand", "autograde.devices",
    "autograde.exercise", "autograde.plain", "autograde.quiet", "autograde.kinds.fix",
    "autograde.sandbox.student", "autograde.sandbox.stubs", "autograde.bank", "course.state",
)  # fmt: skip
STANDARD = ("base64", "json", "json.decoder", "json.encoder", "multiprocessing.connection")
FIELDS = ("__code__", "__defaults__", "__kwdefaults__")


PutBack = Callable[[str], None]
"""Puts back what answers an exercise, whose id it is given."""
_made: list[PutBack] = []


def prepare() -> None:
    """In the warm parent: make what a fork will take."""
    _made.append(as_it_is())


def taken() -> PutBack:
    """As it was in the warm parent. Only who calls holds it."""
    return _made.pop() if _made else as_it_is()


def as_it_is() -> PutBack:
    """What it needs is bound here: a name that somebody gives another meaning does not change it.

    Of the bank, it puts back the module of the exercise and those that all share.
    """
    wanted = [module for name, module in sys.modules.items() if _is_wanted(name)]
    asks = [module for module in wanted if _asks(module)]
    of_one = {module.EXERCISE.id: _contents([module]) for module in asks}
    shared = _contents([module for module in wanted if module not in asks])
    nothing = _contents([])
    set_on_class, set_plain, read, missing = type.__setattr__, object.__setattr__, getattr, object()

    def put_back(exercise: str) -> None:
        for scopes, methods, codes in (shared, of_one.get(exercise, nothing)):
            for now, values in scopes:
                for name, value in values:
                    if now.get(name, missing) is not value:
                        now[name] = value
            for kind, now, values in methods:
                for name, value in values:
                    if now.get(name, missing) is not value:
                        set_on_class(kind, name, value)
            for function, values in codes:
                for name, value in values:
                    if read(function, name) is not value:
                        set_plain(function, name, value)

    return put_back


def _contents(modules: list[ModuleType]) -> tuple[list[Any], list[Any], list[Any]]:
    """Names, methods and codes, each with whom it belongs to."""
    classes = list(dict.fromkeys(kind for module in modules for kind in _classes_of(module)))
    methods = [(kind, vars(kind), tuple(_methods_of(kind))) for kind in classes]
    held = [value for module in modules for value in vars(module).values()]
    exercises = {id(value): value for value in held if isinstance(value, Exercise)}
    scopes = [(vars(one), tuple(vars(one).items())) for one in (*modules, *exercises.values())]
    found = [*held, *(method for _, _, values in methods for _, method in values)]
    functions = dict.fromkeys(value for value in found if type(value) is FunctionType)
    codes = [(one, tuple((name, getattr(one, name)) for name in FIELDS)) for one in functions]
    return scopes, methods, codes


def _asks(module: ModuleType) -> bool:
    return isinstance(getattr(module, "EXERCISE", None), Exercise | ValueExercise)


def _is_wanted(name: str) -> bool:
    return name in STANDARD or any(name == own or name.startswith(f"{own}.") for own in OURS)


def _classes_of(module: ModuleType) -> Iterator[type]:
    for value in vars(module).values():
        if isinstance(value, type) and value.__module__ == module.__name__:
            yield value


def _methods_of(kind: type) -> Iterator[tuple[str, Any]]:
    for name, value in vars(kind).items():
        if isinstance(value, (FunctionType, property, staticmethod, classmethod)):
            yield name, value


@contextmanager
def without_modes() -> Iterator[None]:
    """Inside, no mode that an earlier cell entered and never left takes part in torch's calls."""
    from torch.overrides import _get_current_function_mode_stack, _pop_mode, _push_mode
    from torch.utils import _python_dispatch as dispatch

    functions = [_pop_mode() for _ in _get_current_function_mode_stack()]
    calls = [dispatch._pop_mode() for _ in dispatch._get_current_dispatch_mode_stack()]
    try:
        yield
    finally:
        for mode in reversed(functions):
            _push_mode(mode)
        for mode in reversed(calls):
            dispatch._push_mode(mode)
