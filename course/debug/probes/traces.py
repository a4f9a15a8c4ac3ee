"""What a run looks like when it is saved, loaded and continued: its state, and its scores."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from course.debug.probes.saved import holds_weights_alone, refusal
from course.debug.probes.session import Session, as_list, as_metrics, clone
from course.state.nested import tensors_in

STEPS = 4
"""Steps between saving and looking: whole windows of 2 or 4 micro-batches, too."""


@dataclass
class Trace:
    """What one run looked like."""

    at_save: dict[str, Any] = field(default_factory=dict)
    after_save: dict[str, Any] = field(default_factory=dict)
    """Right after `save()` returned: it should have changed nothing."""
    loaded: dict[str, Any] = field(default_factory=dict)
    end: dict[str, Any] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)
    """What `evaluate()` gives at the end."""
    saved_moved: int = 0
    """Tensors in what `save()` returned that later steps changed."""
    refused: str = ""
    """What safe loading said of the file."""
    failed: str = ""
    """What `load` raised."""
    weights_alone: bool = False
    """What was saved is weights by themselves, with no place for an optimizer."""


def run(session: Session, load: Callable | None, folder: str) -> Trace:
    """Steps, save, steps; with `load`: other steps, load, the same steps."""
    trace, file = Trace(), Path(folder) / "checkpoint.pt"
    size = max(STEPS, int(session.declared.get("accumulate", 1)))
    batches = session.epoch.batches
    with session.observe():
        session.model.train()
        make_steps(session, batches, size)
        trace.at_save = _state(session)
        saved = called(session.setup.save, file, "save")
        trace.after_save = _state(session)
        kept = [t.detach().clone() for t in tensors_in(saved)]
        random = torch.get_rng_state()
        if load is not None:
            trace.refused = refusal(file)
            trace.weights_alone = holds_weights_alone(session.model, saved, file)
            make_steps(session, list(reversed(batches)), size)
            now = list(tensors_in(saved))
            trace.saved_moved = sum(
                a.shape != b.shape or not _same(a, b) for a, b in zip(kept, now, strict=True)
            )
            try:
                called(load, file if saved is None or wants(load) == "path" else saved, "load")
            except Exception as error:
                trace.failed = f"{type(error).__name__}: {str(error)[:160]}"
                return trace
            trace.loaded = _state(session)
        torch.set_rng_state(random)
        make_steps(session, batches, size, first=size)
        trace.end = _state(session)
        with contextlib.suppress(Exception):  # a probe of its own says so
            trace.scores = as_metrics(session.setup.evaluate()) if session.setup.evaluate else {}
    return trace


def make_steps(session: Session, batches: list[Any], number: int, first: int = 0) -> None:
    """The author's steps on copies of some batches, again and again, from the `first` one on."""
    step = session.setup.train_step or session.plain_step
    for batch in islice(cycle(batches), first, first + number):
        step(clone(batch))


def called(function: Callable, value: Any, name: str) -> Any:
    """`save()` or `save(path)`; `load(state)`, `load(path)` or `load()`."""
    try:
        takes = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        takes = [object()]
    needed = [p for p in takes if getattr(p, "default", None) is inspect.Parameter.empty
              and getattr(p, "kind", None) not in (inspect.Parameter.VAR_POSITIONAL,
                                                   inspect.Parameter.VAR_KEYWORD)]  # fmt: skip
    return function(value) if needed or (name == "load" and takes) else function()


def wants(function: Callable) -> str:
    """`path` where the parameter's name says so."""
    with contextlib.suppress(TypeError, ValueError):
        first = next(iter(inspect.signature(function).parameters), "")
        return "path" if any(w in first.lower() for w in ("path", "file", "folder")) else "state"
    return "state"


def _state(session: Session) -> dict[str, Any]:
    """Weights, buffers, modes, and what optimizers and the scheduler remember, by name."""
    found: dict[str, Any] = {}
    names = {}
    for name, parameter in session.model.named_parameters():
        found[f"weight {name}"], names[id(parameter)] = parameter.detach().clone(), name
    for name, buffer in session.model.named_buffers():
        found[f"buffer {name}"] = buffer.detach().clone()
    for name, module in session.model.named_modules():
        found[f"mode of {name or 'the model'}"] = module.training
    for number, optimizer in enumerate(session.optimizers):
        where = f"optimizer {number}" if number else "optimizer"
        for group, held in enumerate(optimizer.param_groups):
            found[f"{where}: lr of group {group}"] = float(held.get("lr", 0.0))
        for parameter, state in optimizer.state.items():
            for key, value in state.items():
                label = f"{where}: {key} of {names.get(id(parameter), 'a tensor')}"
                found[label] = value.detach().clone() if isinstance(value, Tensor) else value
    for scheduler in as_list(session.setup.scheduler):
        found["scheduler: epoch"] = getattr(scheduler, "last_epoch", None)
    return found


def differences(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """Names of what is not the same, the weights first."""
    names = [*a, *(name for name in b if name not in a)]
    return [n for n in names if n not in a or n not in b or not _same(a[n], b[n])]


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.shape == b.shape and torch.equal(a.nan_to_num(), b.nan_to_num())
    return type(a) is type(b) and repr(a) == repr(b)


def distance(a: dict[str, Any], b: dict[str, Any]) -> float:
    pairs = [(a[n], b[n]) for n in a if n.startswith("weight") and n in b]
    return max((float((x - y).abs().max()) for x, y in pairs if x.numel()), default=0.0)
