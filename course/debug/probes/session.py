"""One diagnosis: the set-up, its photograph, and what was observed of it so far.

Every observation starts from the photograph and ends with it, so that none sees another's
traces. An observation is made once, when the first probe asks for it.
"""

from __future__ import annotations

import contextlib
import math
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from course.data.loading import length_of
from course.debug.probes.setup import Setup
from course.debug.probes.tape import Tape
from course.engine.keeping import Keeper

STEPS = 24
MAX_BATCHES = 64


class NotChecked(Exception):
    """A probe cannot run here; its message says why."""


@dataclass
class Epoch:
    """Batches of one pass over a loader, as far as time allowed."""

    batches: list[Any] = field(default_factory=list)
    whole: bool = False
    error: str = ""


@dataclass
class Loop:
    """What the tape saw of the user's own loop."""

    tape: Tape
    losses: list[float]
    """What the callable returned for each call."""
    batches: list[Any]
    start: list[Tensor]
    """Weights before the first call."""
    end: list[Tensor]
    alive: list[int]
    """Graphs still alive after each call."""
    error: BaseException | None = None
    own: bool = False
    """True: our plain step on the user's parts; there was no callable."""
    unit: str = "step"
    """`step`: one call a batch; `train`: one call for all."""
    buffers_moved: list[str] = field(default_factory=list)
    moved_while_frozen: list[str] = field(default_factory=list)
    rng: list[bytes] = field(default_factory=list)
    """State of torch's generator before the first call and after each."""


class Session:
    """What the probes look at. `observe` wraps whatever runs the user's things."""

    def __init__(self, setup: Setup, budget_s: float = 8.0) -> None:
        self.setup = setup
        self.declared = dict(setup.declared or {})
        self.model: nn.Module = setup.model
        self.optimizers = as_list(setup.optimizer)
        self.deadline = time.perf_counter() + budget_s
        self.keeper = Keeper(vars(setup))

    @contextlib.contextmanager
    def observe(self) -> Iterator[None]:
        """Run something from the photograph; afterwards everything is as it was."""
        self.keeper.restore()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        finally:
            self.keeper.restore()

    def out_of_time(self, share: float = 1.0) -> bool:
        return time.perf_counter() > self.deadline - (1 - share) * 8.0

    # The data

    @cached_property
    def epoch(self) -> Epoch:
        return self._read(self.setup.train_loader)

    @cached_property
    def val_epoch(self) -> Epoch:
        if self.setup.val_loader is None:
            raise NotChecked("no val_loader")
        return self._read(self.setup.val_loader)

    def _read(self, loader: Any, limit: int = MAX_BATCHES, seconds: float = 1.0) -> Epoch:
        epoch, stop = Epoch(), time.perf_counter() + seconds
        with self.observe():
            try:
                iterator = iter(loader)
                for batch in islice(iterator, limit):
                    epoch.batches.append(clone(batch))
                    if time.perf_counter() > stop:
                        return epoch
                epoch.whole = len(epoch.batches) < limit or length_of(loader) == limit
            except Exception as error:
                epoch.error = f"{type(error).__name__}: {error}"
        return epoch

    @cached_property
    def two_passes(self) -> tuple[list[Any], list[Any]]:
        """Batches of two passes over the train_loader, one after the other.

        Raises:
            NotChecked: It cannot be read twice.
        """
        batches = self.epoch.batches
        if not batches:
            raise NotChecked(self.epoch.error or "the train_loader is empty")
        if not self.epoch.whole or len(batches) > MAX_BATCHES:
            raise NotChecked("the loader is too long to read twice")
        if type(self.setup.train_loader).__name__ == "generator":
            raise NotChecked("train_loader is a generator, which can be read only once")
        with self.observe():
            return tuple([clone(b) for b in self.setup.train_loader] for _ in range(2))

    @cached_property
    def batch(self) -> tuple[Tensor, Tensor]:
        """Inputs and targets of the first batch that is a pair of tensors."""
        if self.epoch.error and not self.epoch.batches:
            raise NotChecked(f"the train_loader raises {self.epoch.error[:80]}")
        if not self.epoch.batches:
            raise NotChecked("the train_loader is empty")
        return pair(self.epoch.batches[0])

    @cached_property
    def task(self) -> str:
        """`classification`, `binary`, `multilabel`, `regression` or `unknown`."""
        said = (self.setup.task or "").lower().replace("-", "").replace("_", "")
        for word, task in TASKS.items():
            if word in said:
                return task
        if self.setup.num_classes and self.setup.num_classes > 2:
            return "classification"
        with contextlib.suppress(NotChecked):
            _, targets = self.batch
            if targets.dtype == torch.long and targets.dim() == 1 and self.outputs.dim() == 2:
                return "classification" if self.outputs.shape[1] > 1 else "binary"
        return "unknown"

    # The model on one batch

    @cached_property
    def outputs(self) -> Tensor:
        """Outputs [B, ...] for the first batch in eval mode, as loss_fn gets them."""
        return self.predict(self.batch[0])

    def predict(self, inputs: Tensor, *, training: bool = False) -> Tensor:
        """Outputs without a graph, in eval mode unless said otherwise."""
        with self.observe(), torch.no_grad():
            self.model.train(training)
            return self._first_tensor(self.call_model(inputs))

    def call_model(self, inputs: Any) -> Any:
        try:
            return self.model(self.place(inputs))
        except Exception as error:
            raise NotChecked(
                f"model(inputs) raises {type(error).__name__}: {str(error)[:80]}"
            ) from error

    def place(self, value: Any) -> Any:
        """On the model's device."""
        device = next((p.device for p in self.model.parameters()), None)
        return value.to(device) if isinstance(value, Tensor) and device is not None else value

    def loss(self, outputs: Tensor, targets: Any) -> Tensor:
        """The user's loss_fn on these.

        Raises:
            NotChecked: It raises or gives no tensor.
        """
        try:
            value = self.setup.loss_fn(outputs, self.place(targets))
        except Exception as error:
            raise NotChecked(
                f"loss_fn(outputs, targets) raises {type(error).__name__}: {str(error)[:80]}"
            ) from error
        if not isinstance(value, Tensor):
            raise NotChecked(f"loss_fn gives a {type(value).__name__}, no tensor")
        return value.mean() if value.dim() else value

    def _first_tensor(self, value: Any) -> Tensor:
        if not isinstance(value, Tensor):
            raise NotChecked(f"the model gives a {type(value).__name__}, no tensor")
        return value

    # The loop

    @cached_property
    def loop(self) -> Loop:
        """The user's own loop, listened to."""
        batches = self._loop_batches()
        with self.observe():
            tape = Tape(self.model, self.optimizers, self.setup.scheduler)
            loop = Loop(tape, [], batches, tape.weights(), [], [])
            frozen = {n: p.detach().clone() for n, p in frozen_parameters(self)}
            buffers = {n: b.detach().clone() for n, b in self.model.named_buffers()}
            try:
                with tape.running():
                    self._run_loop(loop)
            except Exception as error:
                loop.error = error
            loop.end = tape.weights()
            now = dict(self.model.named_parameters())
            loop.moved_while_frozen = [
                n for n, old in frozen.items() if n in now and not same(now[n], old)
            ]
            present = dict(self.model.named_buffers())
            loop.buffers_moved = [
                n for n, old in buffers.items() if n in present and not same(present[n], old)
            ]
        return loop

    def _loop_batches(self) -> list[Any]:
        batches = self.epoch.batches
        if not batches:
            raise NotChecked("the train_loader gave no batch")
        return [batches[i % len(batches)] for i in range(STEPS)]

    def _run_loop(self, loop: Loop) -> None:
        setup = self.setup
        if setup.train_step is None and setup.train is not None:
            loop.unit = "train"
            loop.losses = losses_of(setup.train(STEPS))
            loop.alive.append(alive_graphs(loop.tape, "backward"))
            return
        step = setup.train_step or self.plain_step
        loop.own = setup.train_step is None
        started = time.perf_counter()
        loop.rng.append(torch.get_rng_state().numpy().tobytes())
        for batch in loop.batches:
            loss = step(clone(batch))
            loop.losses.append(as_float(loss))
            del loss
            loop.alive.append(alive_graphs(loop.tape, "backward"))
            loop.rng.append(torch.get_rng_state().numpy().tobytes())
            loop.tape.call += 1
            if time.perf_counter() - started > 2.5:
                break

    def plain_step(self, batch: Any) -> float:
        """Six operations on the user's parts, for set-ups without a loop of their own."""
        inputs, targets = pair(batch)
        self.model.train()
        for optimizer in self.optimizers:
            optimizer.zero_grad()

        def closure() -> Tensor:
            self.optimizers[0].zero_grad()
            loss = self.loss(self._first_tensor(self.call_model(inputs)), targets)
            loss.backward()
            return loss

        if type(self.optimizers[0]).__name__ == "LBFGS":
            return float(self.optimizers[0].step(closure))
        loss = self.loss(self._first_tensor(self.call_model(inputs)), targets)
        loss.backward()
        for optimizer in self.optimizers:
            optimizer.step()
        return loss.item()

    # The evaluation

    @cached_property
    def evaluation(self) -> Evaluation:
        if self.setup.evaluate is None:
            raise NotChecked("no evaluate()")
        with self.observe():
            tape = Tape(self.model, self.optimizers, self.setup.scheduler)
            seen = Evaluation(tape)
            parameters = [p.detach().clone() for p in self.model.parameters()]
            buffers = {n: b.detach().clone() for n, b in self.model.named_buffers()}
            self.model.train()
            try:
                with tape.running():
                    seen.first = as_metrics(self.setup.evaluate())
                    seen.alive = alive_graphs(tape, "output")
                    tape.call += 1
                    seen.training_after = self.model.training
                    seen.moved = not all(
                        same(p, old)
                        for p, old in zip(self.model.parameters(), parameters, strict=False)
                    )
                    now = dict(self.model.named_buffers())
                    seen.buffers_moved = [
                        n for n, old in buffers.items() if n in now and not same(now[n], old)
                    ]
                    seen.second = as_metrics(self.setup.evaluate())
            except Exception as error:
                seen.error = error
        return seen


@dataclass
class Evaluation:
    """What the tape saw of the user's `evaluate`, called twice from a model in train mode."""

    tape: Tape
    first: dict[str, float] = field(default_factory=dict)
    second: dict[str, float] = field(default_factory=dict)
    alive: int = 0
    training_after: bool = False
    moved: bool = False
    buffers_moved: list[str] = field(default_factory=list)
    error: BaseException | None = None


TASKS = {
    "multilabel": "multilabel",
    "regress": "regression",
    "binary": "binary",
    "classif": "classification",
    "multiclass": "classification",
}


def frozen_parameters(session: Session) -> list[tuple[str, Tensor]]:
    """Parameters that the author froze, by flag or by word."""
    named = [str(name) for name in as_list(session.declared.get("frozen", []))]
    return [
        (name, parameter)
        for name, parameter in session.model.named_parameters()
        if not parameter.requires_grad or any(_under(name, prefix) for prefix in named)
    ]


def _under(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix.rstrip(".*") + ".")


def alive_graphs(tape: Tape, kind: str) -> int:
    """Graphs that somebody still keeps."""
    return sum(event.tag() is not None for event in tape.of(kind))


def clone(value: Any) -> Any:
    """A batch of its own: what a step does to it reaches nobody else."""
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {key: clone(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(clone(item) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(clone(item) for item in value)
    return value


def pair(batch: Any) -> tuple[Tensor, Tensor]:
    """Inputs and targets of a batch.

    Raises:
        NotChecked: It is no pair of tensors.
    """
    values = list(batch.values()) if isinstance(batch, dict) else batch
    if isinstance(values, (list, tuple)) and len(values) == 2:
        inputs, targets = values
        if isinstance(inputs, Tensor) and isinstance(targets, Tensor):
            return inputs, targets
    raise NotChecked("batches are no (inputs, targets) pair of tensors")


def same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool(torch.equal(a.detach(), b))


def as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, (list, tuple, set)) else [value]


def as_float(value: Any) -> float:
    if isinstance(value, Tensor):
        return float(value.detach().double().mean())
    if isinstance(value, dict):
        value = value.get("loss", next(iter(value.values()), math.nan))
        return as_float(value)
    if isinstance(value, (tuple, list)):
        return as_float(value[0]) if value else math.nan
    return float(value) if isinstance(value, (int, float)) else math.nan


def losses_of(value: Any) -> list[float]:
    if isinstance(value, (list, tuple)):
        return [as_float(item) for item in value]
    return [] if value is None else [as_float(value)]


def as_metrics(value: Any) -> dict[str, float]:
    if not isinstance(value, dict):
        value = {"value": value}
    return {str(key): as_float(item) for key, item in value.items()}
