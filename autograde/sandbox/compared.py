"""What an answer is looked at with, of Python, NumPy and torch, as it was in the warm parent.

`torch.equal = lambda a, b: True`, in a cell, would have each comparison say that nothing was
changed. Put back is what compares and counts and nothing else: what an honest notebook exchanges,
`print` or `torch.load`, stays.
"""

from __future__ import annotations

import builtins
import math
import random
from collections.abc import Callable
from types import ModuleType

import numpy as np
import torch
from torch import Tensor, nn

from autograde.sandbox.writes import counts_of

FUNCTIONS: dict[ModuleType, tuple[str, ...]] = {
    builtins: (
        *("abs", "all", "any", "bool", "dict", "enumerate", "float", "getattr", "hasattr", "id"),
        *("int", "isinstance", "iter", "len", "list", "map", "max", "min", "next", "range"),
        *("round", "set", "sorted", "str", "sum", "tuple", "type", "vars", "zip"),
    ),
    math: ("fabs", "fsum", "isclose", "isfinite", "isinf", "isnan"),
    np: ("all", "allclose", "any", "array_equal", "asarray", "isclose", "isfinite", "isnan"),
    np.random: ("get_state",),
    random: ("getstate",),
    torch: (
        *("all", "allclose", "any", "cat", "eq", "equal", "isclose", "isfinite", "isnan", "ne"),
        *("get_default_dtype", "get_rng_state", "is_grad_enabled", "is_tensor", "stack"),
    ),
    torch.serialization: ("_load", "_legacy_load", "_weights_only_unpickler"),
}
OF_TENSORS = (
    *("__abs__", "__bool__", "__eq__", "__float__", "__ge__", "__getitem__", "__gt__", "__iter__"),
    *("__le__", "__len__", "__lt__", "__ne__", "__sub__", "abs", "all", "allclose", "any", "cpu"),
    *("clone", "detach", "eq", "equal", "isclose", "item", "max", "min", "ne", "norm", "sum"),
    *("tolist",),
)
"""Most are inherited, and hidden where somebody sets one."""
OF_MODULES = (
    *("_named_members", "buffers", "children", "eval", "modules", "named_buffers"),
    *("named_children", "named_modules", "named_parameters", "parameters", "state_dict", "train"),
)
METHODS: dict[type, tuple[str, ...]] = {Tensor: OF_TENSORS, nn.Module: OF_MODULES}


def as_it_is() -> Callable[[], None]:
    """A function that puts it back."""
    missing, set_, take_away = object(), type.__setattr__, type.__delattr__
    functions = tuple(
        (vars(module), name, getattr(module, name))
        for module, names in FUNCTIONS.items()
        for name in names
    )
    methods = tuple(
        (kind, vars(kind), name, vars(kind).get(name, missing))
        for kind, names in METHODS.items()
        for name in names
    )

    counts = counts_of([*map(vars, FUNCTIONS), *map(vars, METHODS)])
    compared_at = [counts()]

    def put_back() -> None:
        if (counted := counts()) == compared_at[0]:
            return
        for scope, name, value in functions:
            if scope.get(name) is not value:
                scope[name] = value
        for kind, scope, name, value in methods:
            if scope.get(name, missing) is not value:
                if value is missing:
                    take_away(kind, name)
                else:
                    set_(kind, name, value)
        compared_at[0] = counted

    return put_back
