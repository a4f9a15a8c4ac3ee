"""What an answer is looked at with, of Python, NumPy and torch, as it was in the warm parent.

`torch.equal = lambda a, b: True`, in a cell, would have each comparison say that nothing was
changed. Put back is what compares and counts and nothing else: what an honest notebook exchanges,
`print` or `torch.load`, stays.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from types import ModuleType

import numpy as np
import torch
from torch import Tensor

FUNCTIONS: dict[ModuleType, tuple[str, ...]] = {
    builtins: (
        *("abs", "all", "any", "bool", "dict", "enumerate", "float", "getattr", "hasattr", "id"),
        *("int", "isinstance", "iter", "len", "list", "map", "max", "min", "next", "range"),
        *("round", "set", "sorted", "str", "sum", "tuple", "type", "vars", "zip"),
    ),
    math: ("fabs", "fsum", "isclose", "isfinite", "isinf", "isnan"),
    np: ("all", "allclose", "any", "array_equal", "asarray", "isclose", "isfinite", "isnan"),
    torch: ("all", "allclose", "any", "eq", "equal", "isclose", "isfinite", "isnan", "ne"),
}
METHODS = (
    *("__abs__", "__bool__", "__eq__", "__float__", "__ge__", "__getitem__", "__gt__", "__iter__"),
    *("__le__", "__len__", "__lt__", "__ne__", "__sub__", "abs", "all", "allclose", "any", "cpu"),
    *("clone", "detach", "eq", "equal", "isclose", "item", "max", "min", "ne", "norm", "sum"),
    *("tolist",),
)
"""Of a tensor; most are inherited, and hidden where somebody sets one."""


def as_it_is() -> Callable[[], None]:
    """A function that puts it back."""
    missing, set_, take_away = object(), type.__setattr__, type.__delattr__
    functions = tuple(
        (vars(module), name, getattr(module, name))
        for module, names in FUNCTIONS.items()
        for name in names
    )
    tensor, of_tensor = Tensor, vars(Tensor)
    methods = tuple((name, of_tensor.get(name, missing)) for name in METHODS)

    def put_back() -> None:
        for scope, name, value in functions:
            if scope.get(name) is not value:
                scope[name] = value
        for name, value in methods:
            if of_tensor.get(name, missing) is not value:
                if value is missing:
                    take_away(tensor, name)
                else:
                    set_(tensor, name, value)

    return put_back
