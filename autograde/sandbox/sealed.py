"""What a student's function is handed leads to nothing that the check notes.

A hook of a model counts forward passes in a list, a callback belongs to the object that judges; by
attributes and closures a function would lead there. Each such function is replaced, for the time of
the call, by one whose closure holds only what C keeps to itself; the same with what it returns.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from functools import cmp_to_key, partial
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

import numpy as np
from torch import Tensor
from torch.nn import Parameter
from torch.nn.modules import module as hooks_of_modules
from torch.optim import optimizer as hooks_of_optimizers

import autograde
import course

OURS = str(Path(autograde.__file__).parent), str(Path(course.__file__).parent)
PLAIN = (Tensor, np.ndarray, type, str, bytes, int, float, complex, type(None))
MOST_ARE = frozenset({Tensor, Parameter, str, bytes, int, float, bool, type(None)})
CONTAINERS = frozenset({OrderedDict, dict, list, tuple})
"""Most of what a case holds is plain or an empty container of hooks: a look at its class tells."""
DEEP = 40
"""Objects within objects that are looked through: a model's layers, a loader's data."""


class _Call:
    """Arguments on their way in, and what came back."""

    __slots__ = ("args", "kwargs", "returned")


def sealed(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls another without leading to it."""

    def done(call: _Call, _nothing: None) -> int:
        call.returned = function(*call.args, **call.kwargs)
        return 0

    hold = cmp_to_key(done)  # its object shows what is compared, never what compares

    def called(*args: Any, **kwargs: Any) -> Any:
        call = _Call()
        call.args, call.kwargs = args, kwargs
        try:
            hold(call) < hold(None)  # noqa: B015
        except BaseException as fault:
            raise fault.with_traceback(None)  # noqa: B904 (which leads to frames of the check)
        return leading_nowhere(call.returned)

    called.__name__ = getattr(function, "__name__", "called")
    called.__doc__ = function.__doc__
    return called


CALLED = next(c for c in sealed.__code__.co_consts if getattr(c, "co_name", "") == "called")


GLOBAL_HOOKS = [
    (vars(module), name)
    for module in (hooks_of_modules, hooks_of_optimizers)
    for name, held in vars(module).items()
    if name.startswith("_global_") and isinstance(held, dict)
]


def leading_nowhere(value: Any) -> Any:
    """A value in which every function of ours that has a closure or an object is a sealed one.

    No object is asked for its class, nor for what it holds: an answer's own would run its code.
    """
    if type(value) in MOST_ARE or issubclass(type(value), PLAIN):
        return value
    return _sealed_within(value, {}, 1)


def global_hooks() -> None:
    """The same for hooks of all models and optimizers."""
    for scope, name in GLOBAL_HOOKS:
        held = scope.get(name)
        if isinstance(held, dict) and dict.__len__(held):
            leading_nowhere(held)


def _in_containers(values: Any, seen: dict[int, Any], depth: int) -> list[Any]:
    return [_sealed_within(value, seen, depth + 1) for value in values]


def _sealed_within(value: Any, seen: dict[int, Any], depth: int) -> Any:
    if id(value) in seen or depth > DEEP or issubclass(type(value), PLAIN):
        return value
    if _leads_on(value):
        return sealed(value)
    seen[id(value)] = value
    if type(value) is tuple:
        inside = _in_containers(value, seen, depth)
        return value if all(map(_is, inside, value)) else tuple(inside)
    holder, inside = _held_by(value)
    for key, held in inside:
        kind = type(held)
        if kind in MOST_ARE or (kind in CONTAINERS and not held):
            continue
        if (other := _sealed_within(held, seen, depth + 1)) is not held:
            holder[key] = other
    return value


def _is(one: Any, other: Any) -> bool:
    return one is other


def _held_by(value: Any) -> tuple[Any, list[tuple[Any, Any]]]:
    """Entries of a list or a dictionary, or attributes of an object, each with its key, and what
    they stand in."""
    kind = type(value)
    if issubclass(kind, list):
        return value, list(enumerate(value))
    if issubclass(kind, dict):
        return value, list(value.items())
    if kind not in (FunctionType, MethodType):
        with suppress(AttributeError):
            about = object.__getattribute__(value, "__dict__")
            if type(about) is dict:
                return about, list(about.items())
    return None, []


def _leads_on(value: Any) -> bool:
    """Whether it is a function of the check that holds something."""
    if type(value) is FunctionType:
        code = value.__code__
        held = value.__closure__ or value.__defaults__ or value.__kwdefaults__
        return bool(held) and code is not CALLED and code.co_filename.startswith(OURS)
    if type(value) is MethodType:
        return _is_ours(type(value.__self__))
    return type(value) is partial and (_is_ours(value.func) or _leads_on(value.func))


def _is_ours(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).startswith("autograde.")
