"""Preflight: what can be seen to be wrong before the first update is said before it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sized

from torch import nn
from torch.optim import Optimizer

from course.engine.errors import EngineError
from course.engine.window import Batch


def check_accum_steps(accum_steps: int) -> None:
    """At least one micro-batch a step."""
    if accum_steps < 1:
        raise EngineError(
            f"accum_steps = {accum_steps}: a step needs at least 1 micro-batch. "
            "For no accumulation, use 1."
        )


def check_plan(epochs: int | None, max_updates: int | None) -> None:
    """The run must have an end."""
    if epochs is None and max_updates is None:
        raise EngineError("epochs and max_updates are both None: say when to stop, as epochs=10.")
    for name, value in (("epochs", epochs), ("max_updates", max_updates)):
        if value is not None and value < 1:
            raise EngineError(f"{name} = {value}: expected at least 1.")


def check_optimizer(model: nn.Module, optimizer: Optimizer) -> None:
    """The optimizer must move this model."""
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    if not held:
        raise EngineError(
            "the optimizer holds no parameters. "
            "Build it from the model: SGD(model.parameters(), lr=0.1)."
        )
    trainable = [name for name, p in model.named_parameters() if p.requires_grad]
    missing = [
        name for name, p in model.named_parameters() if p.requires_grad and id(p) not in held
    ]
    if trainable and len(missing) == len(trainable):
        raise EngineError(
            f"the optimizer holds none of the model's {len(trainable)} trainable parameters, so "
            "nothing would move. Build it after the model is complete, from model.parameters()."
        )


def num_windows(loader: Iterable[Batch], accum_steps: int) -> int | None:
    """Updates that one epoch will make; None where the loader has no length."""
    return math.ceil(len(loader) / accum_steps) if isinstance(loader, Sized) else None
