"""Optimizers without torch's compiler: it would take half the start-up time of `course worked`.

The first step of the first optimizer in a process imports `torch._dynamo`, and sympy with it. That
takes longer than `import torch` itself, and only tells the compiler where not to compile. No worked
number compiles anything. So while one is computed, a stand-in module of the same name answers just
those two calls; any other use of it brings the real module back.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

NAME = "torch._dynamo"
MARK = "__dynamo_disable"  # where torch/_compile.py keeps the uncompiled version of a function


@contextmanager
def without_compiler() -> Iterator[None]:
    """Let optimizers run without importing the compiler; everything is restored afterwards."""
    stand_in = put_off_compiler()
    try:
        yield
    finally:
        if stand_in is not None and sys.modules.get(NAME) is stand_in:
            _remove(stand_in)


def put_off_compiler() -> ModuleType | None:
    """The same until something needs the compiler: its first use imports it.

    Returns:
        The stand-in module; None if torch is not imported, or if the compiler already is.
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
    """Remove the stand-in, if it is still there, and the uncompiled versions that it handed out."""
    torch = sys.modules["torch"]
    if sys.modules.get(NAME) is stand_in:
        del sys.modules[NAME]
    if torch.__dict__.get("_dynamo") is stand_in:
        del torch._dynamo
    while stand_in.marked:
        vars(stand_in.marked.pop()).pop(MARK, None)
