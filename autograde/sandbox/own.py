"""What answers a case in a student's process is put back as it was before a student's code ran.

The student's code shares the process: it can give other functions the names of ours, exchange their
code, or change an exercise. None of that is refused, as an honest notebook may do it by mistake;
before a case is put to a function, and before its answer is packed, all of it is as it was. So are,
whenever the function returns, the modules by which its exercise then looks at what it did: those of
`course` too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import FunctionType, ModuleType
from typing import Any

from autograde.by_hand import Calls, reached_by
from autograde.exercise import Exercise
from autograde.kinds import ValueExercise
from autograde.sandbox import compared

OURS = (
    "autograde.answers", "autograde.apart", "autograde.by_hand", "autograde.devices",
    "autograde.exercise", "autograde.plain", "autograde.quiet", "autograde.kinds.fix",
    "autograde.sandbox.student", "autograde.sandbox.stubs", "autograde.bank", "course.state",
)  # fmt: skip
STANDARD = ("base64", "json", "json.decoder", "json.encoder", "multiprocessing.connection")
FIELDS = ("__code__", "__defaults__", "__kwdefaults__")


MADE_BY_PYTHON = {"__slotnames__", "__annotations__", "__annotations_cache__"}
"""Names that a class gets when somebody asks for them."""


PutBack = Callable[..., None]
"""Puts back what answers an exercise, whose id it is given; with `whole=False` only what looks at
what its function did."""
_made: list[PutBack] = []


def prepare() -> None:
    """In the warm parent: make what a fork will take."""
    _made.append(as_it_is())


def taken() -> PutBack:
    """As it was in the warm parent. Only who calls holds it."""
    return _made.pop() if _made else as_it_is()


def as_it_is() -> PutBack:
    """What it needs is bound here: a name that somebody gives another meaning does not change it.

    Of the bank and of `course`, it puts back the modules that the exercise looks with, and those
    that all share.
    """
    wanted = [module for name, module in sys.modules.items() if _is_wanted(name)]
    asks = [module for module in wanted if _asks(module)]
    calls: Calls = {}
    of_one = {module.EXERCISE.id: _contents(_looks_with(module, calls)) for module in asks}
    shared = _contents([module for module in wanted if module not in asks])
    nothing = _contents([])
    set_on_class, set_plain, read, missing = type.__setattr__, object.__setattr__, getattr, object()
    take_away = type.__delattr__
    put_back_what_compares = compared.as_it_is()

    def put_back(exercise: str, whole: bool = True) -> None:
        put_back_what_compares()
        of_it = of_one.get(exercise, nothing)
        for scopes, methods, codes in (shared, of_it) if whole else (of_it,):
            for now, values in scopes:
                for name, value in values:
                    if now.get(name, missing) is not value:
                        now[name] = value
            for kind, now, values, names in methods:
                for name, value in values:
                    if now.get(name, missing) is not value:
                        set_on_class(kind, name, value)
                for name in now.keys() - names:
                    take_away(kind, name)
            for function, values in codes:
                for name, value in values:
                    if read(function, name) is not value:
                        set_plain(function, name, value)

    return put_back


def _contents(modules: list[ModuleType]) -> tuple[list[Any], list[Any], list[Any]]:
    """Names, methods and codes, each with whom it belongs to."""
    classes = list(dict.fromkeys(kind for module in modules for kind in _classes_of(module)))
    methods = [
        (kind, vars(kind), tuple(_held_by(kind)), {*vars(kind), *MADE_BY_PYTHON})
        for kind in classes
    ]
    held = [value for module in modules for value in vars(module).values()]
    exercises = {id(value): value for value in held if isinstance(value, Exercise)}
    scopes = [(vars(one), tuple(vars(one).items())) for one in (*modules, *exercises.values())]
    found = [*held, *(method for _, _, values, _ in methods for _, method in values)]
    functions = dict.fromkeys(value for value in found if type(value) is FunctionType)
    codes = [(one, tuple((name, getattr(one, name)) for name in FIELDS)) for one in functions]
    return scopes, methods, codes


def _asks(module: ModuleType) -> bool:
    return isinstance(getattr(module, "EXERCISE", None), Exercise | ValueExercise)


def _looks_with(module: ModuleType, calls: Calls) -> list[ModuleType]:
    """An exercise's module, and those of the functions that it looks with."""
    run = getattr(module.EXERCISE, "run", None)
    reached = reached_by(run, calls=calls) if type(run) is FunctionType else ()
    names = {function.__module__ for function in reached}
    return [
        module,
        *(sys.modules[n] for n in sorted(names & sys.modules.keys() - {module.__name__})),
    ]


def looked_at_as_it_is(
    function: Callable[..., Any], exercise: str, put_back: PutBack
) -> Callable[..., Any]:
    """The function, and what looks at its doings put back whenever it returns; a class as it is."""
    if isinstance(function, type):
        return function

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        finally:
            put_back(exercise, whole=False)

    return called


def _is_wanted(name: str) -> bool:
    return name in STANDARD or any(name == own or name.startswith(f"{own}.") for own in OURS)


def _classes_of(module: ModuleType) -> Iterator[type]:
    for value in vars(module).values():
        if isinstance(value, type) and value.__module__ == module.__name__:
            yield value


def _held_by(kind: type) -> Iterator[tuple[str, Any]]:
    for name, value in vars(kind).items():
        if name not in ("__dict__", "__weakref__", *MADE_BY_PYTHON):
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
