"""One diagnosis: the set-up, a snapshot of it, and what has been observed so far.

Every observation starts from the snapshot and restores it, so that none sees another's traces. An
observation is made once, when the first probe asks for it.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from course.data.loading import length_of
from course.debug.probes.seen_loss import seen_loss
from course.debug.probes.setup import Setup
from course.debug.probes.tape import Tape
from course.state import Snapshot
from course.state.nested import cloned as clone
from course.state.nested import moved, tensors_in

STEPS = 24
"""Steps of the user's loop that are watched: whole windows of 2, 3, 4, 6 or 8 micro-batches."""
MAX_BATCHES, MAX_NUMBERS = 64, 32_000_000
"""Batches, and numbers in them, that are read of a loader: at most 128 MB are kept."""
FORWARDS = 900
"""Forwards of the model after which a diagnosis starts no further experiment: enough for a step
that calls the model three times, for each part of a triplet."""
WITHOUT_GRAPH = 1 / 3
"""What a forward counts that builds no graph: no backward follows, which costs twice as much."""


class NotChecked(Exception):
    """A probe cannot run here; its message says why."""


@dataclass
class Epoch:
    """Batches of one pass over a loader, as far as it was read."""

    batches: list[Any] = field(default_factory=list)
    whole: bool = False
    error: str = ""


@dataclass
class Loop:
    """What the tape recorded of the user's own loop."""

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
    only_unheard: bool = False
    """It raised while it was listened to, and does not by itself."""
    own: bool = False
    """True: our plain step on the user's parts; there was no callable."""
    unit: str = "step"
    """`step`: one call a batch; `train`: one call for all."""
    buffers_moved: list[str] = field(default_factory=list)
    moved_while_frozen: list[str] = field(default_factory=list)
    thawed: list[str] = field(default_factory=list)
    """Parameters that were frozen by flag at first and required a gradient in a later update."""
    rng: list[bytes] = field(default_factory=list)
    """State of torch's generator before the first call and after each."""


class Session:
    """What the probes look at. `observe` wraps whatever runs the user's code."""

    def __init__(self, setup: Setup, budget: int = FORWARDS, *, keep: bool = True) -> None:
        """Take a snapshot of a set-up.

        Args:
            setup: The user's own objects.
            budget: Forward passes of the model after which no further experiment is started.
            keep: False if nothing is going to be run: then no snapshot is taken.
        """
        self.setup = setup
        self.declared = dict(setup.declared or {})
        self.model: nn.Module = setup.model
        self.optimizers = as_list(setup.optimizer)
        self.budget, self.forwards = budget, 0.0
        self.kept = Snapshot(vars(setup)) if keep else Snapshot()
        self.memory: dict[str, Any] = {}
        """What relations observed once, for the others."""

    @classmethod
    def of_a_loop(cls, setup: Setup, loop: Loop) -> Session:
        """A session of a loop that has been recorded; nothing else can be observed in it."""
        session = cls(setup, keep=False)
        session.__dict__["_heard"], session.__dict__["epoch"] = loop, Epoch()
        return session

    @contextlib.contextmanager
    def observe(self) -> Iterator[None]:
        """Run something from the snapshot; afterwards everything is as it was."""
        self.kept.restore()
        # not a hook of the model's own, which a user's copy of it would take along
        counter = register_module_forward_pre_hook(self._count)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        finally:
            counter.remove()
            self.kept.restore()

    def _count(self, module: nn.Module, _: Any) -> None:
        if module is self.model:
            self.forwards += 1 if torch.is_grad_enabled() else WITHOUT_GRAPH

    def is_spent(self, share: float = 1.0) -> bool:
        """Whether this share of the budget of forward passes is used. With a time limit, a busy
        machine would find less."""
        return self.forwards > share * self.budget

    # The data

    @cached_property
    def epoch(self) -> Epoch:
        return self._read(self.setup.train_loader)

    @cached_property
    def val_epoch(self) -> Epoch:
        if self.setup.val_loader is None:
            raise NotChecked("no val_loader")
        return self._read(self.setup.val_loader)

    def _read(self, loader: Any, limit: int = MAX_BATCHES) -> Epoch:
        epoch, numbers = Epoch(), 0
        with self.observe():
            try:
                iterator = iter(loader)
                for batch in islice(iterator, limit):
                    epoch.batches.append(clone(batch))
                    numbers += sum(t.numel() for t in tensors_in(batch))
                    if numbers > MAX_NUMBERS:
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

    def predict(self, inputs: Tensor, *, training: bool = False, seed: int | None = None) -> Tensor:
        """Outputs without a graph, in eval mode unless stated otherwise; a seed sets torch's global
        generator, so that two seeds show what the model draws at random."""
        with self.observe(), torch.no_grad():
            if seed is not None:
                torch.manual_seed(seed)
            self.model.train(training)
            return self._first_tensor(self.call_model(inputs))

    def call_model(self, inputs: Any) -> Any:
        try:
            return self.model(self.place_all(inputs))
        except Exception as error:
            raise NotChecked(
                f"model(inputs) raises {type(error).__name__}: {str(error)[:80]}"
            ) from error

    def place(self, value: Any) -> Any:
        """Move a tensor to the model's device."""
        device = next((p.device for p in self.model.parameters()), None)
        return value.to(device) if isinstance(value, Tensor) and device is not None else value

    @cached_property
    def loss_fn(self) -> Callable[..., Any] | None:
        """The author's loss_fn, else the torch loss that train_step is seen to call on a batch's
        unchanged outputs and targets, and on which backward is called unchanged.

        Looked up once before any experiment, because finding it runs the loop.
        """
        if self.setup.loss_fn is not None or self.setup.train_step is None:
            return self.setup.loss_fn
        with contextlib.suppress(NotChecked):
            return seen_loss(self.loop.tape, *self.batch)
        return None

    def loss(self, outputs: Any, targets: Any) -> Tensor:
        """The user's loss_fn on these.

        Raises:
            NotChecked: It raises or gives no tensor.
        """
        if self.loss_fn is None:
            raise NotChecked("no loss_fn, and no torch loss is seen on outputs and targets alone")
        try:
            value = self.loss_fn(outputs, self.place(targets))
        except Exception as error:
            raise NotChecked(
                f"loss_fn(outputs, targets) raises {type(error).__name__}: {str(error)[:80]}"
            ) from error
        if not isinstance(value, Tensor):
            raise NotChecked(f"loss_fn returns a {type(value).__name__}, not a tensor")
        return value.mean() if value.dim() else value

    def _first_tensor(self, value: Any) -> Tensor:
        """The outputs; of a dictionary the one tensor in it."""
        if isinstance(value, dict) and len(found := list(tensors_in(value))) == 1:
            value = found[0]
        if not isinstance(value, Tensor):
            raise NotChecked(f"the model returns a {type(value).__name__}, not a tensor")
        return value

    # The loop

    @property
    def has_a_loop(self) -> bool:
        """Whether the author gave one; else our plain step is taken on their parts."""
        return self.setup.train_step is not None or self.setup.train is not None

    @property
    def loop(self) -> Loop:
        """The user's own loop, recorded on the tape.

        Raises:
            NotChecked: It runs, but not while it is being recorded, which is not the loop's fault.
        """
        if self._heard.only_unheard:
            raise NotChecked("the loop cannot be run while it is recorded")
        return self._heard

    @cached_property
    def _heard(self) -> Loop:
        batches = self._loop_batches()
        with self.observe():
            tape = Tape(self.model, self.optimizers, self.setup.scheduler)
            loop = Loop(tape, [], batches, tape.weights(), [], [])
            frozen = {n: p.detach().clone() for n, p in frozen_parameters(self)}
            buffers = {n: b.detach().clone() for n, b in self.model.named_buffers()}
            try:
                with tape.running():
                    self._run_loop(loop)
            except NotChecked:  # ours: the plain step cannot be taken, which is no fault of theirs
                raise
            except Exception as error:
                loop.error = error
            loop.end = tape.weights()
            now = dict(self.model.named_parameters())
            loop.moved_while_frozen = [
                n for n, old in frozen.items() if n in now and not same(now[n], old)
            ]
            declared = {n for n, p in declared_frozen(self)}
            learning = set().union(*(e.live for e in tape.of("step")))
            loop.thawed = [
                n for n in frozen if n not in declared and n in now and id(now[n]) in learning
            ]
            present = dict(self.model.named_buffers())
            loop.buffers_moved = [
                n for n, old in buffers.items() if n in present and not same(present[n], old)
            ]
            loop.only_unheard = loop.error is not None and self._runs_unheard(batches)
        return loop

    def _runs_unheard(self, batches: list[Any]) -> bool:
        """The loop runs to its end where nothing listens."""
        self.kept.restore()
        alone = Loop(Tape(self.model, self.optimizers), [], batches, [], [], [])
        try:
            self._run_loop(alone)
        except Exception:
            return False
        return True

    def _loop_batches(self) -> list[Any]:
        batches = self.epoch.batches
        if not batches:
            raise NotChecked("the train_loader yielded no batch")
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
        loop.rng.append(torch.get_rng_state().numpy().tobytes())
        for batch in loop.batches:
            loss = step(clone(batch))
            loop.losses.append(_went_backward(loop.tape) if loss is None else as_float(loss))
            del loss
            loop.alive.append(alive_graphs(loop.tape, "backward"))
            loop.rng.append(torch.get_rng_state().numpy().tobytes())
            loop.tape.call += 1

    def plain_step(self, batch: Any) -> float:
        """Six operations on the user's parts, for set-ups without their own loop."""
        self.model.train()
        if self.setup.loss_of is not None:
            return self._step_of_any_kind(batch)
        inputs, targets = inputs_and_targets(batch)
        for optimizer in self.optimizers:
            optimizer.zero_grad()

        def closure() -> Tensor:
            self.optimizers[0].zero_grad()
            loss = self._plain_loss(inputs, targets)
            loss.backward()
            return loss

        if type(self.optimizers[0]).__name__ == "LBFGS":
            return float(self.optimizers[0].step(closure))
        loss = self._plain_loss(inputs, targets)
        loss.backward()
        for optimizer in self.optimizers:
            optimizer.step()
        return loss.item()

    def _plain_loss(self, inputs: Any, targets: Tensor) -> Tensor:
        """The loss of what the model returns; where the author has a loop that may unpack it, of
        the tensor in it."""
        outputs = self.call_model(inputs)
        return self.loss(self._first_tensor(outputs) if self.has_a_loop else outputs, targets)

    def _step_of_any_kind(self, batch: Any) -> float:
        """The same where the author says what a batch costs."""
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        given = self.setup.loss_of(self.model, self.place_all(batch))
        loss = given if isinstance(given, Tensor) else given.value
        loss.backward()
        for optimizer in self.optimizers:
            optimizer.step()
        return float(loss.detach())

    def place_all(self, batch: Any) -> Any:
        """Move a nested batch to the model's device."""
        device = next((p.device for p in self.model.parameters()), None)
        return batch if device is None else moved(batch, device)

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


def _went_backward(tape: Tape) -> float:
    """The loss of a step that returns none."""
    losses = [e.loss for e in tape.in_call(tape.call) if e.kind == "backward"]
    return math.fsum(losses) if losses else math.nan


@dataclass
class Evaluation:
    """What the tape recorded of the user's `evaluate`, called twice on a model in train mode."""

    tape: Tape
    first: dict[str, float] = field(default_factory=dict)
    second: dict[str, float] = field(default_factory=dict)
    later: list[dict[str, float]] = field(default_factory=list)
    """Of further calls, where there were any."""
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
    """Parameters that the author froze, by flag or by declaration."""
    declared = {name for name, _ in declared_frozen(session)}
    return [
        (name, parameter)
        for name, parameter in session.model.named_parameters()
        if not parameter.requires_grad or name in declared
    ]


def declared_frozen(session: Session) -> list[tuple[str, Tensor]]:
    """Parameters that the author declared as frozen."""
    named = [str(name) for name in as_list(session.declared.get("frozen", []))]
    return [
        (name, parameter)
        for name, parameter in session.model.named_parameters()
        if any(_under(name, prefix) for prefix in named)
    ]


def _under(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix.rstrip(".*") + ".")


def alive_graphs(tape: Tape, kind: str) -> int:
    """Graphs that are still referenced."""
    return sum(event.tag() is not None for event in tape.of(kind))


PLACES: ContextVar[tuple[int, int] | None] = ContextVar("places", default=None)
"""Where inputs and targets stand among the tensors of a batch that has others, e.g. ids."""


def pair(batch: Any) -> tuple[Tensor, Tensor]:
    """Inputs and targets of a batch.

    Raises:
        NotChecked: It is not a pair of tensors.
    """
    places = PLACES.get()
    if places is not None and len(leaves := list(tensors_in(batch))) > max(places):
        return leaves[places[0]], leaves[places[1]]
    if is_a_pair(batch):
        inputs, targets = batch.values() if isinstance(batch, dict) else batch
        return inputs, targets
    raise NotChecked("batches are not (inputs, targets) pairs of tensors")


def is_a_pair(batch: Any) -> bool:
    """Whether a batch is just inputs and targets."""
    values = list(batch.values()) if isinstance(batch, dict) else batch
    is_list = isinstance(values, (list, tuple)) and len(values) == 2
    return is_list and all(isinstance(v, Tensor) for v in values)


def inputs_and_targets(batch: Any) -> tuple[Any, Tensor]:
    """Two parts of a batch, of which the second is a tensor: inputs of any form, and targets.

    Raises:
        NotChecked: It has other parts.
    """
    if isinstance(batch, (list, tuple)) and len(batch) == 2 and isinstance(batch[1], Tensor):
        return batch[0], batch[1]
    return pair(batch)


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
