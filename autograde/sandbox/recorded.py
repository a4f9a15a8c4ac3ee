"""Compiled code where an exercise is to be written by hand: TorchScript, and autograd's nodes.

A function that was scripted or traced runs in an interpreter of torch's own, which calls neither
Python's functions nor, for derivatives, operators that could refuse. One that says it was recorded
from what must not be called refuses, and so does one that computes derivatives where these are to
be written by hand; of the others the grader is told. There the nodes of a graph refuse as well:
each computes derivatives where it is called.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from autograde.by_hand import functions_named, modules_named, why_not
from autograde.exercise import Exercise, NotAllowedError

RUN = (
    (torch._C.ScriptFunction, "__call__"), (torch._C.ScriptMethod, "__call__"),
    (torch._C.LiteScriptModule, "__call__"), (torch._C.LiteScriptModule, "forward"),
    (torch._C.LiteScriptModule, "run_method"), (torch._C.ThroughputBenchmark, "run_once"),
    (torch._C.ThroughputBenchmark, "benchmark"),
)  # fmt: skip
"""What runs a recording."""
DERIVES = re.compile(r"\baten::(backward|grad)\(")
MADE_AT = re.compile(r"# (\S+\.py):\d+:\d+$", re.MULTILINE)
FOR_ALL = ("torch.nn.functional", "torch._tensor")
"""Modules that hold much besides what must not be called."""


def install(calling: Mapping[str, Exercise], tell: Callable[[], None]) -> None:
    """From now on, in this process and its forks.

    Args:
        calling: Holds the exercise whose function is being called, if one is.
        tell: Tells the grader.
    """
    for kind, name in RUN:
        if hasattr(kind, name):
            setattr(kind, name, _watched(getattr(kind, name), calling, tell))


_made: list[dict[str, Exercise]] = []


def prepare() -> None:
    """In the warm parent: have the nodes of a graph ask which exercise's function is called."""
    _made.append(calling := {})
    for kind in object.__subclasses__():
        if "next_functions" in vars(kind) and "__call__" in vars(kind):
            _exchange(kind, "__call__", partial(_derives, calling=calling))


def taken() -> dict[str, Exercise]:
    """Where it is noted which exercise's function is called."""
    if not _made:
        prepare()
    return _made.pop()


def _derives(run: Callable[..., Any], calling: Mapping[str, Exercise]) -> Callable[..., Any]:
    def derives(self: Any, *args: Any, **kwargs: Any) -> Any:
        for exercise in calling.values():
            if "torch.autograd" in modules_named(exercise):
                raise NotAllowedError(why_not("a node of autograd's graph", exercise.name))
        return run(self, *args, **kwargs)

    return derives


FLAGS_AT = object.__basicsize__ + 19 * ctypes.sizeof(ctypes.c_void_p)
IMMUTABLE = 1 << 8


def _exchange(kind: type, name: str, other: Callable[[Any], Any]) -> None:
    """Have a class of C's call another function: it is open to that for a moment."""
    flags = ctypes.c_ulong.from_address(id(kind) + FLAGS_AT)
    if (before := flags.value) != kind.__flags__:
        return
    flags.value = before & ~IMMUTABLE
    try:
        setattr(kind, name, other(vars(kind)[name]))
    finally:
        flags.value |= before & IMMUTABLE


def _watched(
    run: Callable[..., Any], calling: Mapping[str, Exercise], tell: Callable[[], None]
) -> Callable[..., Any]:
    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        for exercise in calling.values():
            if exercise.by_hand:
                if what := _stands_for(self, exercise):
                    raise NotAllowedError(why_not(what, exercise.name))
                tell()
        return run(self, *args, **kwargs)

    return watched


def _stands_for(recording: Any, exercise: Exercise) -> str:
    """What a recording does that must not be called; empty if its graph shows nothing of it."""
    graph = str(getattr(recording, "inlined_graph", ""))
    if "torch.autograd" in modules_named(exercise) and (not graph or DERIVES.search(graph)):
        return "backward() of TorchScript"
    made_at = set(MADE_AT.findall(graph))
    modules = {*modules_named(exercise), *(f.__module__ for f in functions_named(exercise))}
    for name in sorted(modules - {*FOR_ALL}):
        if getattr(sys.modules.get(name), "__file__", "") in made_at:
            return f"a recording of {name}"
    return ""
