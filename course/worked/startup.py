"""Optimizers without torch's compiler: half the start-up time of `course worked`.

The first step of a process's first optimizer imports `torch._dynamo`, and sympy with it: longer
than `import torch` itself, and only to tell the compiler where not to compile. No worked numeric
compiles anything. So while one computes, a module of the same name stands in that answers just
those two calls; any other use of it brings the real one back.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

NAME = "torch._dynamo"
MARK = "__dynamo_disable"  # where torch/_compile.py keeps a method's uncompiled twin
MARKED = ("zero_grad", "add_param_group", "state_dict", "load_state_dict")


@contextmanager
def without_compiler() -> Iterator[None]:
    """Let optimizers run without importing the compiler; everything as before afterwards."""
    if "torch" not in sys.modules or NAME in sys.modules:
        yield
        return
    torch = sys.modules["torch"]
    stand_in = _stand_in()
    sys.modules[NAME] = torch._dynamo = stand_in
    try:
        yield
    finally:
        if sys.modules.get(NAME) is stand_in:
            _remove(stand_in)


def _stand_in() -> ModuleType:
    module = ModuleType(NAME)
    module.graph_break = lambda: None

    def disable(function: Callable, *_args: Any, **_kwargs: Any) -> Callable:
        return function

    def bring_the_real_one(attribute: str) -> Any:
        if attribute.startswith("__"):  # the import system looks for __path__ and __spec__
            raise AttributeError(attribute)
        _remove(module)
        return getattr(importlib.import_module(NAME), attribute)

    module.disable = disable
    module.__getattr__ = bring_the_real_one
    return module


def _remove(stand_in: ModuleType) -> None:
    """Forget the stand-in, and the twins that it gave to the optimizer's methods."""
    torch = sys.modules["torch"]
    sys.modules.pop(NAME, None)
    if torch.__dict__.get("_dynamo") is stand_in:
        del torch._dynamo
    for name in MARKED:
        method = getattr(getattr(torch.optim.Optimizer, name, None), "__wrapped__", None)
        if method is not None and MARK in vars(method):
            delattr(method, MARK)
