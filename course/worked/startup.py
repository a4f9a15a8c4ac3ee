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
MARK = "__dynamo_disable"  # where torch/_compile.py keeps a function's uncompiled twin


@contextmanager
def without_compiler() -> Iterator[None]:
    """Let optimizers run without importing the compiler; everything as before afterwards."""
    stand_in = put_off_compiler()
    try:
        yield
    finally:
        if stand_in is not None and sys.modules.get(NAME) is stand_in:
            _remove(stand_in)


def put_off_compiler() -> ModuleType | None:
    """The same for as long as nobody needs the compiler: the first use of it brings it.

    Returns:
        The module that stands in; None where torch is not imported, or the compiler is already.
    """
    if "torch" not in sys.modules or NAME in sys.modules:
        return None
    sys.modules[NAME] = sys.modules["torch"]._dynamo = stand_in = _stand_in()
    return stand_in


def _stand_in() -> ModuleType:
    module = ModuleType(NAME)
    module.graph_break = lambda: None
    module.marked = []

    def disable(function: Callable, *_args: Any, **_kwargs: Any) -> Callable:
        module.marked.append(function)
        return function

    def bring_the_real_one(attribute: str) -> Any:
        if attribute.startswith("__") and attribute != "__path__":  # asked for by every import
            raise AttributeError(attribute)  # (the path only by that of a module inside)
        _remove(module)
        return getattr(importlib.import_module(NAME), attribute)

    module.disable = disable
    module.__getattr__ = bring_the_real_one
    return module


def _remove(stand_in: ModuleType) -> None:
    """Forget the stand-in, where it still stands, and the twins that it gave to functions."""
    torch = sys.modules["torch"]
    if sys.modules.get(NAME) is stand_in:
        del sys.modules[NAME]
    if torch.__dict__.get("_dynamo") is stand_in:
        del torch._dynamo
    while stand_in.marked:
        vars(stand_in.marked.pop()).pop(MARK, None)
