"""Where torch.compile breaks its graph, found by tracing alone: no C++ compiler is needed.

A compiled function is traced into graphs of tensor operations. If Python has to look at a tensor's
values, or does something that is not a tensor operation, the graph ends, Python runs, and another
graph begins. Each break costs time, and operations on its two sides cannot be optimised together.

Source: Engineering module, §5; annotated-loop essay, "Compilation"; ledger C34, T30, F119.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, kw_only=True)
class Traced:
    """The result of tracing a function."""

    graphs: int
    """Number of graphs of tensor operations it was traced into."""
    reasons: tuple[str, ...]
    """The reason for each break, one line each."""

    def __str__(self) -> str:
        graphs = f"{self.graphs} graph{'s' if self.graphs != 1 else ''}"
        return "; ".join([graphs, *self.reasons])


def graph_breaks(function: Callable[..., Any], *inputs: Any) -> Traced:
    """Trace a function on these inputs, and report where its graph breaks.

    The function runs, so its side effects happen. What torch.compile knew about other functions is
    forgotten before and after.
    """
    with _fresh():
        found = torch._dynamo.explain(function)(*inputs)
    reasons = tuple(str(one.reason).strip().splitlines()[0] for one in found.break_reasons)
    return Traced(graphs=found.graph_count, reasons=reasons)


def fits_one_graph(function: Callable[..., Any], *inputs: Any) -> bool:
    """Whether `torch.compile(function, fullgraph=True)` accepts it on these inputs.

    It accepts more than goes into one graph by default: sizes and numbers that are only known
    later, such as that of `x[x > 0]`.
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
    """The function, compiled as far as this machine can; the backend; seconds of the first call.

    Generating code needs a compiler, and takes minutes on a CPU. So `inductor` is tried only if
    there is an accelerator; otherwise, or if it fails, `eager` traces and runs torch's own
    operations. If not even tracing works, for example inside a sandbox, the function itself is
    returned, with the backend `none`.
    """
    backends = ["inductor", "eager"] if torch.accelerator.is_available() else ["eager"]
    for backend in backends:
        torch.compiler.reset()
        started = time.perf_counter()
        try:
            compiled = torch.compile(function, backend=backend)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "TensorFloat32")  # asked of no reader here
                compiled(*inputs)
        except Exception:  # no compiler, an old driver, ...: any of several errors
            continue
        return compiled, backend, time.perf_counter() - started
    started = time.perf_counter()
    function(*inputs)
    return function, "none", time.perf_counter() - started


@contextmanager
def _fresh() -> Iterator[None]:
    """Ignore what was compiled before, keep nothing, and log no warnings about breaks."""
    logger = logging.getLogger("torch._dynamo")
    level = logger.level
    torch.compiler.reset()
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
        torch.compiler.reset()
