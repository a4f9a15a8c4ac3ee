"""Where torch.compile falls out of its graph, found by tracing alone: no C++ compiler is needed.

A compiled function is traced into graphs of tensor operations. Where Python has to look at a
tensor's values, or does something that is not a tensor operation, the graph ends, Python runs, and
another graph begins. Each break costs time, and hides operations from each other.

Source: Engineering module, §5; annotated-loop essay, "Compilation"; ledger C34, T30, F119.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, kw_only=True)
class Traced:
    """What tracing a function found."""

    graphs: int
    """Graphs of tensor operations that were made of it."""
    reasons: tuple[str, ...]
    """Why a graph ended, one line per break."""

    def __str__(self) -> str:
        graphs = f"{self.graphs} graph{'s' if self.graphs != 1 else ''}"
        return "; ".join([graphs, *self.reasons])


def graph_breaks(function: Callable[..., Any], *inputs: Any) -> Traced:
    """Trace a function on these inputs, and say where its graph breaks.

    The function runs, so what it does besides returning happens. What torch.compile knew of other
    functions is forgotten before and after.
    """
    with _fresh():
        found = torch._dynamo.explain(function)(*inputs)
    reasons = tuple(str(one.reason).strip().splitlines()[0] for one in found.break_reasons)
    return Traced(graphs=found.graph_count, reasons=reasons)


def fits_one_graph(function: Callable[..., Any], *inputs: Any) -> bool:
    """Whether `torch.compile(function, fullgraph=True)` accepts it on these inputs.

    It accepts more than goes into one graph by default: sizes and numbers that it can only know
    later, as of `x[x > 0]`.
    """
    with _fresh():
        try:
            torch.compile(function, backend="eager", fullgraph=True)(*inputs)
        except torch._dynamo.exc.TorchDynamoException:
            return False
    return True


def compile_here(
    function: Callable[..., Any], *inputs: Any
) -> tuple[Callable[..., Any], str, float]:
    """The function compiled as far as this machine can, by which backend, and its first call's s.

    Generating code needs a compiler, and on a CPU minutes of it: `inductor` is tried where there is
    an accelerator, and where it fails, as on the CPU, `eager` traces and runs torch's own
    operations. Where not even tracing works, as inside a sandbox, the function itself comes back,
    with the backend `none`.
    """
    backends = ["inductor", "eager"] if torch.accelerator.is_available() else ["eager"]
    for backend in backends:
        torch.compiler.reset()
        started = time.perf_counter()
        try:
            compiled = torch.compile(function, backend=backend)
            compiled(*inputs)
        except Exception:  # no compiler, an old driver, ...: any of several errors
            continue
        return compiled, backend, time.perf_counter() - started
    started = time.perf_counter()
    function(*inputs)
    return function, "none", time.perf_counter() - started


@contextmanager
def _fresh() -> Iterator[None]:
    """Nothing compiled before counts, nothing stays, and no break is logged as a warning."""
    logger = logging.getLogger("torch._dynamo")
    level = logger.level
    torch.compiler.reset()
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
        torch.compiler.reset()
