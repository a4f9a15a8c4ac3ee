"""Recorded code where an exercise is to be written by hand: TorchScript, torch.fx, autograd.

A function that was scripted or traced runs in an interpreter of torch's own, which calls neither
Python's functions nor, for derivatives, operators that could refuse. One that says it was recorded
from what must not be called refuses, and so does one that computes derivatives where these are to
be written by hand; of the others the grader is told. There the nodes of a graph refuse as well:
each computes derivatives where it is called. So does autograd's engine, by whatever name it was
reached, whenever the graph was made.

What torch.fx, torch.export or make_fx recorded is Python that torch writes and that calls operators
alone: none of them may be one that refuses. The grader is told where such code runs.
"""

from __future__ import annotations

import ast
import ctypes
import re
import sys
from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import Any

import torch
from torch.fx import graph_module, interpreter

from autograde.by_hand import functions_named, modules_named, why_not, without_autograd
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
    graph_module._exec_with_source = _saying_so(graph_module, calling, tell)


def _saying_so(
    writer: Any, calling: Mapping[str, Exercise], tell: Callable[[], None]
) -> Callable[..., None]:
    """What makes functions of the text that torch.fx has written, so that each says when it runs;
    lines keep their numbers, and the text stays as it is."""
    cache = writer._loader.cache

    def ran() -> None:
        if any(exercise.by_hand for exercise in calling.values()):
            tell()

    def run_source(src: str, globals: dict[str, Any], *fields: Any) -> None:
        key = cache(src, globals, *fields)
        tree = ast.parse(src)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                says = ast.Expr(ast.Call(ast.Name(RAN, ast.Load()), [], []))
                node.body.insert(0, ast.copy_location(says, node.body[0]))
        globals[RAN] = ran
        code = compile(ast.fix_missing_locations(tree), key, "exec", dont_inherit=True)
        exec(code, globals)

    for name in ("run", "boxed_run"):
        setattr(interpreter.Interpreter, name, _after(ran, getattr(interpreter.Interpreter, name)))
    return run_source


RAN = "_says_that_it_ran"


def _after(first: Callable[[], None], run: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(run)
    def after(*args: Any, **kwargs: Any) -> Any:
        first()
        return run(*args, **kwargs)

    return after


_made: list[dict[str, Exercise]] = []


def prepare() -> None:
    """In the warm parent: have the nodes of a graph, and the engine that goes through them, ask
    which exercise's function is called."""
    _made.append(calling := {})
    for kind in object.__subclasses__():
        if "next_functions" in vars(kind) and "__call__" in vars(kind):
            _exchange(kind, "__call__", partial(_derives, NODE, calling))
    engine = type(torch.autograd.Variable._execution_engine)
    _exchange(engine, "run_backward", partial(_derives, ENGINE, calling))


def taken() -> dict[str, Exercise]:
    """Where it is noted which exercise's function is called."""
    if not _made:
        prepare()
    return _made.pop()


NODE, ENGINE = "a node of autograd's graph", "autograd's engine"


def _derives(
    what: str, calling: Mapping[str, Exercise], run: Callable[..., Any]
) -> Callable[..., Any]:
    def derives(self: Any, *args: Any, **kwargs: Any) -> Any:
        for exercise in calling.values():
            if without_autograd(exercise):
                raise NotAllowedError(why_not(what, exercise.name))
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
    if without_autograd(exercise) and (not graph or DERIVES.search(graph)):
        return "backward() of TorchScript"
    made_at = set(MADE_AT.findall(graph))
    modules = {*modules_named(exercise), *(f.__module__ for f in functions_named(exercise))}
    for name in sorted(modules - {*FOR_ALL}):
        if getattr(sys.modules.get(name), "__file__", "") in made_at:
            return f"a recording of {name}"
    return ""
