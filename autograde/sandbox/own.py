"""What answers a case in a student's process is put back as it was before a student's code ran.

The student's code shares the process: it can give other functions the names of ours, exchange their
code, or change an exercise. None of that is refused, as an honest notebook may do it by mistake;
before a case is put to a function, and before its answer is packed, all of it is as it was. So are,
whenever the function returns, the modules by which its exercise then looks at what it did: those of
`course` too.
"""

from __future__ import annotations

import itertools
import operator
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial, wraps
from operator import is_
from threading import get_ident
from types import FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch._C import DisableTorchFunctionSubclass, _EnableTorchFunction, _exit_dual_level
from torch.autograd import forward_ad
from torch.nn import Parameter

from autograde.by_hand import Calls, reached_by
from autograde.exercise import Exercise
from autograde.kinds import ValueExercise
from autograde.plain import MAX_DEPTH
from autograde.sandbox import compared, reaching, stacks
from autograde.sandbox.sealed import global_hooks, leading_nowhere
from autograde.sandbox.signals import OthersLeft
from autograde.sandbox.stacks import Alone, nothing
from autograde.sandbox.writes import Counts, counts_of

OURS = (
    "autograde.answers", "autograde.apart", "autograde.by_hand", "autograde.devices",
    "autograde.exercise", "autograde.plain", "autograde.quiet", "autograde.kinds.fix",
    "autograde.sandbox.beside", "autograde.sandbox.further", "autograde.sandbox.left_behind",
    "autograde.sandbox.own", "autograde.sandbox.reaching", "autograde.sandbox.recorded",
    "autograde.sandbox.sealed", "autograde.sandbox.signals", "autograde.sandbox.student",
    "autograde.sandbox.stacks", "autograde.sandbox.stubs", "autograde.sandbox.kernel",
    "autograde.bank", "course.state",
)  # fmt: skip
STANDARD = ("base64", "json", "json.decoder", "json.encoder", "multiprocessing.connection")
OF_FILES = ("os", "pathlib", "posixpath", "stat", *STANDARD[:4])
"""With what the files of a process that has ended are put back, and its answer is read."""
CODE = (FunctionType, type)
FIELDS = ("__code__", "__defaults__", "__kwdefaults__")


as_subclass = Tensor.as_subclass
MADE_BY_PYTHON = {"__slotnames__", "__annotations__", "__annotations_cache__"}
"""Names that a class gets when somebody asks for them."""


FILES = "files"
PutBack = Callable[..., bool]
"""Puts back what answers an exercise, whose id it is given; with `whole=False` only what looks at
what its function did, or for FILES what `apart` works with. Says whether a function or a class was
another."""


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
    """Folders that can be written to, and are put back after another process."""
    others: tuple[str, ...] = ()
    """Folders that can be written to, and are not ours to put back: where nothing is locked away
    there is one /tmp for all."""


_made: list[tuple[PutBack, Any]] = []


def prepare() -> None:
    """In the warm parent: make what a fork will take."""
    _made.append((as_it_is(), stacks.greenlets()))


def taken() -> tuple[PutBack, Alone]:
    """As it was in the warm parent. Only who calls holds it."""
    put_back, stack = _made.pop() if _made else (as_it_is(), stacks.greenlets())
    return put_back, stacks.stack_of_its_own(stack)


def as_it_is() -> PutBack:
    """What it needs is bound here: a name that somebody gives another meaning does not change it.

    Of the bank and of `course`, it puts back the modules that the exercise looks with, and those
    that all share.
    """
    wanted = [module for name, module in sys.modules.items() if _is_wanted(name)]
    asks = [module for module in wanted if _asks(module)]
    calls: Calls = {}
    of_one = {module.EXERCISE.id: _contents(_looks_with(module, calls)) for module in asks}
    of_one[FILES] = _contents([sys.modules[name] for name in OF_FILES])
    shared = _contents([module for module in wanted if module not in asks])
    nothing = _contents([])
    set_on_class, set_plain, read, missing = type.__setattr__, object.__setattr__, getattr, object()
    take_away, kind_of, fields, hides = type.__delattr__, type, FIELDS, _hides
    every, over, zipped, iterating, following = all, map, zip, iter, next
    same, fields_of = operator.is_, operator.attrgetter(*FIELDS)
    always, flat = itertools.repeat(missing), itertools.chain.from_iterable
    codes_are = {"watched": False, "touched": True, "unseen": True}
    put_back_what_compares = compared.as_it_is()

    def put_back(exercise: str, whole: bool = True) -> bool:
        put_back_what_compares()
        of_it, replaced = of_one.get(exercise, nothing), False
        looks_at_codes = codes_are["touched"] or not codes_are["watched"]
        if exercise == FILES:
            looks_at_codes = True
        elif whole:
            looks_at_codes = looks_at_codes or codes_are["unseen"]
            codes_are["touched"] = codes_are["unseen"] = False
        else:  # the others are looked at later
            codes_are["touched"], codes_are["unseen"] = False, codes_are["unseen"] or looks_at_codes
        for contents in (shared, of_it) if whole else (of_it,):
            scopes, methods, functions, codes, counts, compared_at = contents
            if (counted := counts()) == compared_at[0]:
                scopes = methods = ()
            for now, names, values in scopes:
                if every(over(same, over(now.get, names, always), values)):
                    continue
                for name, value in zipped(names, values):
                    if now.get(name, missing) is not value:
                        now[name] = value
                        replaced = replaced or kind_of(value) in CODE
            for kind, now, names, values, allowed, is_ours in methods:
                if not every(over(same, over(now.get, names, always), values)):
                    for name, value in zipped(names, values):
                        if now.get(name, missing) is not value:
                            set_on_class(kind, name, value)
                            replaced = True
                if not now.keys() <= allowed:
                    for name in now.keys() - allowed:
                        if is_ours or hides(kind, name):
                            take_away(kind, name)
            compared_at[0] = counted  # as it was before: who interrupts or writes meanwhile is seen
            if not looks_at_codes or every(over(same, flat(over(fields_of, functions)), codes)):
                continue
            held = iterating(codes)
            for function in functions:
                for name in fields:
                    if read(function, name) is not (value := following(held)):
                        set_plain(function, name, value)
                        replaced = True
        return replaced

    put_back.codes_are = codes_are
    return put_back


class _Contents(NamedTuple):
    """Both sides of what is compared lie in rows, so that a comparison takes no loop of Python's;
    and as long as nobody has written to a scope or a class, there is none."""

    scopes: list[Any]
    methods: list[Any]
    """Names and values, as of scopes, of a class."""
    functions: list[FunctionType]
    codes: list[Any]
    """The FIELDS of all functions."""
    counts: Counts
    """Of writes to the scopes and the classes."""
    compared_at: list[Any]
    """What the counts were when they were last compared."""


def _contents(modules: list[ModuleType]) -> _Contents:
    classes = list(dict.fromkeys(kind for module in modules for kind in _classes_of(module)))
    methods = [
        (
            kind,
            vars(kind),
            *_in_rows(_held_by(kind)),
            {*vars(kind), *MADE_BY_PYTHON},
            _is_ours(kind),
        )
        for kind in classes
    ]
    held = [value for module in modules for value in vars(module).values()]
    exercises = {id(value): value for value in held if isinstance(value, Exercise)}
    scopes = [(vars(one), *_in_rows(vars(one).items())) for one in (*modules, *exercises.values())]
    found = [*held, *(method for _, _, _, values, *_ in methods for method in values)]
    functions = list(dict.fromkeys(value for value in found if type(value) is FunctionType))
    codes = [getattr(function, name) for function in functions for name in FIELDS]
    counts = counts_of([*(now for now, *_ in scopes), *map(vars, classes)])
    return _Contents(scopes, methods, functions, codes, counts, [counts()])


def _in_rows(pairs: Iterable[tuple[str, Any]]) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    """Names, and their values."""
    pairs = list(pairs)
    return tuple(name for name, _ in pairs), tuple(value for _, value in pairs)


def _is_ours(kind: type) -> bool:
    return kind.__module__ not in (*STANDARD, *OF_FILES)


def _hides(kind: type, name: str) -> bool:
    """Whether a name of a class stands for another in a class that it is made of."""
    return any(name in vars(base) for base in kind.__mro__[1:])


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

    def by_itself(inner: Callable[..., Any], args: Any, kwargs: Any = nothing) -> Any:
        running.add(me := get_ident())
        try:
            return alone(inner, args, kwargs)
        finally:
            running.discard(me)

    def watched(inner: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(inner)
        def called(*args: Any, **kwargs: Any) -> Any:
            if get_ident() in running:  # by the student's own code
                return inner(*args, **kwargs)
            global_hooks()
            args, kwargs = leading_nowhere(args), leading_nowhere(kwargs)
            try:
                with _EnableTorchFunction():
                    returned = as_plain_tensors(by_itself(inner, args, kwargs))
            finally:
                as_it_was()
            if exercise.kind == "class":
                cover(type(returned))
                if not _is_students(type(returned)):
                    cover_held(returned)
            return returned

        made.add(called)
        return called

    def looked_up(inner: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
        """Attributes of an object, of which those that can be called are watched as well."""

        def __getattribute__(self: Any, name: str) -> Any:
            if get_ident() in running:
                return inner(self, name)
            value = by_itself(inner, (self, name))
            return watched(value) if _runs_code(value, made) else value

        return __getattribute__

    before: list[tuple[type, str, Any]] = []
    covered, asked_for = set[type](), set[type]()
    made: set[FunctionType] = set()
    absent = object()

    def cover(kind: type) -> None:
        if kind in asked_for or not _is_students(kind):
            return
        asked_for.add(kind)
        found = kind.__getattribute__
        for one in filter(_is_students, (*kind.__mro__, *type(kind).__mro__)):
            for name, value in list(vars(one).items()) if one not in covered else ():
                if (other := _each(watched, value)) is not value:
                    before.append((one, name, value))
                    type.__setattr__(one, name, other)
            covered.add(one)
        before.append((kind, "__getattribute__", vars(kind).get("__getattribute__", absent)))
        type.__setattr__(kind, "__getattribute__", looked_up(found))

    def cover_held(returned: Any) -> None:
        """What an object of a library's holds: a SimpleNamespace, a module."""
        held = getattr(returned, "__dict__", None)
        for name, value in list(held.items()) if type(held) is dict else ():
            if _runs_code(value, made):
                held[name] = watched(value)

    try:
        if exercise.kind == "class" and isinstance(function, type):
            cover(function)
            yield function
        else:
            asked = watched(function)
            asked.as_it_was = as_it_was
            yield asked
    finally:
        for one, name, value in reversed(before):
            if value is absent:
                type.__delattr__(one, name)
            else:
                type.__setattr__(one, name, value)


def as_plain_tensors(value: Any, deep: int = MAX_DEPTH) -> Any:
    """What was returned, with tensors of a student's class as plain ones: as those, they say of
    themselves what torch says."""
    if issubclass(type(value), Tensor) and type(value) not in (Tensor, Parameter):
        with DisableTorchFunctionSubclass():
            return as_subclass(value, Tensor)
    if type(value) not in (tuple, list, dict) or not deep:
        return value
    held = list(value.values() if type(value) is dict else value)
    plain = [as_plain_tensors(one, deep - 1) for one in held]
    if all(map(is_, held, plain)):
        return value
    return type(value)(zip(value, plain, strict=True) if type(value) is dict else plain)


def _each(watched: Callable[..., Any], value: Any) -> Any:
    """A method, or what stands for one in a class, with each of its functions watched."""
    if type(value) is FunctionType:
        return watched(value)
    if type(value) in (staticmethod, classmethod) and type(value.__func__) is FunctionType:
        return type(value)(watched(value.__func__))
    if type(value) is property:
        return property(*(one and watched(one) for one in (value.fget, value.fset, value.fdel)))
    return value


def _runs_code(value: Any, watched: set[FunctionType]) -> bool:
    """Whether a call of it runs code of a student's that is not watched yet."""
    if type(value) is MethodType:
        return value.__func__ not in watched and _runs_code(value.__func__, watched)
    if type(value) is FunctionType:
        return value not in watched and _is_students_function(value)
    return type(value) is partial or (
        not issubclass(type(value), (type, nn.Module))
        and callable(value)
        and _is_students(type(value))
    )


def _is_students(kind: type) -> bool:
    """Whether a class holds code from elsewhere than a library."""
    for value in vars(kind).values():
        if type(value) is property:
            value = value.fget
        if type(value) in (staticmethod, classmethod):
            value = value.__func__
        if type(value) is partial or _is_students_function(value):
            return True
    return False


def _is_students_function(value: Any) -> bool:
    return type(value) is FunctionType and reaching.is_students(value.__code__)


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
    """Inside, no mode that an earlier cell entered and never left takes part in torch's calls, nor
    does a tensor's own class, but where a student's function is called. Forward derivatives that a
    cell began have ended."""
    from torch.overrides import _get_current_function_mode_stack, _pop_mode, _push_mode
    from torch.utils import _python_dispatch as dispatch

    functions = [_pop_mode() for _ in _get_current_function_mode_stack()]
    calls = [dispatch._pop_mode() for _ in dispatch._get_current_dispatch_mode_stack()]
    with suppress(RuntimeError):  # as a rule there are none
        _exit_dual_level(level=0)
        forward_ad._current_level = -1
    try:
        with DisableTorchFunctionSubclass():
            yield
    finally:
        for mode in reversed(functions):
            _push_mode(mode)
        for mode in reversed(calls):
            dispatch._push_mode(mode)
