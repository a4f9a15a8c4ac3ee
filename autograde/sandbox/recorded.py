"""TorchScript where an exercise is to be written by hand: a recording of an earlier cell.

A function that was scripted or traced runs in an interpreter of torch's own, which calls neither
Python's functions nor, for derivatives, operators that could refuse. One that says it was recorded
from what must not be called refuses, and so does one that computes derivatives where these are to
be written by hand; of the others the grader is told.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
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
