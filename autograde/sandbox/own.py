"""What answers a case in a student's process is put back as it was before a student's code ran.

The student's code shares the process: it can give other functions the names of ours, exchange their
code, or change an exercise. None of that is refused, as an honest notebook may do it by mistake;
before a case is put to a function, and before its answer is packed, all of it is as it was. So are,
whenever the function returns, the modules by which its exercise then looks at what it did: those of
`course` too.
"""

from __future__ import annotations

import contextvars
import ctypes
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from threading import get_ident
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from autograde.by_hand import Calls, reached_by
from autograde.exercise import Exercise
from autograde.kinds import ValueExercise
from autograde.sandbox import compared, reaching
from autograde.sandbox.sealed import global_hooks, leading_nowhere
from autograde.sandbox.signals import OthersLeft

OURS = (
    "autograde.answers", "autograde.apart", "autograde.by_hand", "autograde.devices",
    "autograde.exercise", "autograde.plain", "autograde.quiet", "autograde.kinds.fix",
    "autograde.sandbox.left_behind", "autograde.sandbox.own", "autograde.sandbox.reaching",
    "autograde.sandbox.sealed", "autograde.sandbox.signals", "autograde.sandbox.student",
    "autograde.sandbox.stubs", "autograde.sandbox.kernel",
    "autograde.bank", "course.state",
)  # fmt: skip
STANDARD = ("base64", "json", "json.decoder", "json.encoder", "multiprocessing.connection")
CODE = (FunctionType, type)
FIELDS = ("__code__", "__defaults__", "__kwdefaults__")


MADE_BY_PYTHON = {"__slotnames__", "__annotations__", "__annotations_cache__"}
"""Names that a class gets when somebody asks for them."""


PutBack = Callable[..., bool]
"""Puts back what answers an exercise, whose id it is given; with `whole=False` only what looks at
what its function did. Says whether a function or a class was another."""
Alone = Callable[..., Any]
"""Calls a function, as `alone(function, args, kwargs)`, at the bottom of a stack of its own: it has
no callers, through whose frames it could read what judges it. The thread stays the same. Whether
one is on such a stack says `alone.is_on()`."""
nothing: dict[str, Any] = {}


class Means(NamedTuple):
    """What the loop that serves the grader holds, and nobody else."""

    put_back: PutBack
    alone: Alone
    tell: reaching.Tell
    not_kept: OthersLeft
    """Of signals: see `signals`."""
    pipe: int
    """The descriptor on which the grader listens."""
    places: tuple[str, ...]
    """Folders that can be written to."""


_made: list[tuple[PutBack, Alone]] = []


def prepare() -> None:
    """In the warm parent: make what a fork will take."""
    _made.append((as_it_is(), stack_of_its_own()))


def taken() -> tuple[PutBack, Alone]:
    """As it was in the warm parent. Only who calls holds it."""
    return _made.pop() if _made else (as_it_is(), stack_of_its_own())


def as_usual(function: Callable[..., Any], args: Any = (), kwargs: Any = nothing) -> Any:
    """Calls a function where it is asked to."""
    return function(*args, **kwargs)


def stack_of_its_own() -> Alone:
    """A greenlet's stack begins with it. A student's process cannot import it: see `stubs`."""
    from greenlet import getcurrent, greenlet

    here, switch, take_context = (
        contextvars.copy_context,
        greenlet.switch,
        greenlet.gr_context.__set__,
    )
    root = getcurrent()

    def alone(function: Callable[..., Any], args: Any = (), kwargs: Any = nothing) -> Any:
        stack = greenlet(function)
        take_context(stack, here())
        return switch(stack, *args, **kwargs)

    alone.is_on = lambda: getcurrent() is not root
    return alone


def show_no_stacks() -> None:
    """From now on no stack shows its frames, nor who called it: greenlet's type, which is among
    `object.__subclasses__()`, loses every attribute but the one that it needs itself."""
    from greenlet import greenlet

    (shown,) = gc.get_referents(vars(greenlet))
    for name in [name for name in shown if name[:2] != "__" and name != "run"]:
        del shown[name]
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(greenlet))


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
    take_away, kind_of = type.__delattr__, type
    codes_are = {"watched": False, "touched": True}
    put_back_what_compares = compared.as_it_is()

    def put_back(exercise: str, whole: bool = True) -> bool:
        put_back_what_compares()
        of_it, replaced = of_one.get(exercise, nothing), False
        looks_at_codes = whole or codes_are["touched"] or not codes_are["watched"]
        codes_are["touched"] = False
        for scopes, methods, codes in (shared, of_it) if whole else (of_it,):
            for now, values in scopes:
                for name, value in values:
                    if now.get(name, missing) is not value:
                        now[name] = value
                        replaced = replaced or kind_of(value) in CODE
            for kind, now, values, names in methods:
                for name, value in values:
                    if now.get(name, missing) is not value:
                        set_on_class(kind, name, value)
                        replaced = True
                for name in now.keys() - names:
                    take_away(kind, name)
            for function, values in codes if looks_at_codes else ():
                for name, value in values:
                    if read(function, name) is not value:
                        set_plain(function, name, value)
                        replaced = True
        return replaced

    put_back.codes_are = codes_are
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


@contextmanager
def looked_at_as_it_is(
    function: Callable[..., Any], exercise: Exercise, means: Means
) -> Iterator[Callable[..., Any]]:
    """What to ask in place of a function: it is called alone, what it is handed leads nowhere, and
    what looks at its doings is put back whenever it returns. Of a class each method is."""
    put_back, alone, tell, not_kept, *_ = means
    running: set[int] = set()

    def as_it_was() -> None:
        if put_back(exercise.id, whole=False) | not_kept():
            tell(reaching.CHANGED)
        if threads_running():
            tell(reaching.THREADS)
        if reaching.is_traced():
            tell(reaching.TRACED)

    def watched(inner: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(inner)
        def called(*args: Any, **kwargs: Any) -> Any:
            if (me := get_ident()) in running:  # by the student's own code
                return inner(*args, **kwargs)
            global_hooks()
            args, kwargs = leading_nowhere(args), leading_nowhere(kwargs)
            running.add(me)
            try:
                returned = alone(inner, args, kwargs)
            finally:
                running.discard(me)
                as_it_was()
            if exercise.kind == "class" and not isinstance(function, type):
                cover(type(returned))
            return returned

        return called

    before: list[tuple[type, str, Any]] = []

    def cover(kind: type) -> None:
        for one in kind.__mro__:
            for name, value in list(vars(one).items()) if _is_students(one) else ():
                is_covered = any(known[:2] == (one, name) for known in before)
                if not is_covered and (other := _each(watched, value)) is not value:
                    before.append((one, name, value))
                    type.__setattr__(one, name, other)

    try:
        if exercise.kind == "class" and isinstance(function, type):
            cover(function)
            yield function
        else:
            asked = watched(function)
            asked.as_it_was = as_it_was
            yield asked
    finally:
        for one, name, value in before:
            type.__setattr__(one, name, value)


def _each(watched: Callable[..., Any], value: Any) -> Any:
    """A method, or what stands for one in a class, with each of its functions watched."""
    if type(value) is FunctionType:
        return watched(value)
    if type(value) in (staticmethod, classmethod) and type(value.__func__) is FunctionType:
        return type(value)(watched(value.__func__))
    if type(value) is property:
        return property(*(one and watched(one) for one in (value.fget, value.fset, value.fdel)))
    return value


def _is_students(kind: type) -> bool:
    codes = (one.__code__ for one in vars(kind).values() if type(one) is FunctionType)
    return any(not code.co_filename.startswith(reaching.LIBRARIES) for code in codes)


def threads_running() -> bool:
    """Whether another thread is a student's."""
    me = get_ident()
    return any(
        reaching.is_students_thread(frame)
        for thread, frame in sys._current_frames().items()
        if thread != me
    )


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
