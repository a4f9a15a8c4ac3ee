"""A training program seen from outside: what reaches the model, and the loss of a batch.

Nothing here depends on what a batch looks like. One call of the author's own step shows which
tensors the model got and what it returned; the loss on which backward was called is the loss of the
batch, whoever computed it.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from course.debug.probes.session import NotChecked, Session, as_float
from course.debug.probes.tape import Event, Tape, changes_by_mode
from course.state.nested import cloned, mapped, tensors_in

SAME = 1e-4
"""Change of an output, in its own standard deviations, that float32 makes by another order of
summing (up to 2e-6 on the sound programs of the tests) stays well below."""
LEAST_LOSS = 1e-6
"""Losses below are compared as if they were so large: near 0 rounding is no small part of them."""


@dataclass
class Call:
    """One call of the model inside a training step."""

    args: tuple
    kwargs: dict[str, Any]

    @property
    def tensors(self) -> list[Tensor]:
        """All tensors that the model got."""
        return list(tensors_in([self.args, self.kwargs]))


@dataclass
class Step:
    """One call of the author's step on one batch."""

    calls: list[Call]
    tape: Tape
    loss: float
    """The loss on which backward was called; if there was none, what the step returned."""

    @property
    def losses(self) -> list[Event]:
        """Calls of torch's losses that a gradient flows through."""
        return [event for event in self.tape.of("loss") if event.graph]

    @property
    def is_one_of_torchs(self) -> bool:
        """backward is called directly on a single torch loss."""
        return len(self.losses) == 1 and close(self.losses[0].value, self.loss)


class Program:
    """The author's step as a function of a batch. Every call starts from the snapshot."""

    def __init__(self, session: Session) -> None:
        self.session = session
        setup = session.setup
        self.make_step = setup.train_step or session.plain_step
        self.model: nn.Module = session.model

    @property
    def batches(self) -> list[Any]:
        """Batches as the train_loader yields them.

        Raises:
            NotChecked: There are none.
        """
        if not self.session.epoch.batches:
            raise NotChecked(self.session.epoch.error or "the train_loader is empty")
        return self.session.epoch.batches

    def step(
        self,
        batch: Any,
        *,
        seed: int = 0,
        prepare: Any = None,
        within: Any = None,
        copied: bool = True,
    ) -> Step:
        """Make one step and record it; weights and random numbers are restored afterwards.

        Args:
            batch: Of any kind.
            seed: Seed of torch's global generator.
            prepare: Called first, to change the weights for this one step.
            within: Context entered around the step only: a mode that intercepts torch's functions
                would also see the snapshot, which calls thousands.
            copied: Pass in a copy of the batch, since the step may change it.

        Raises:
            NotChecked: The step raises.
        """
        calls: list[Call] = []

        def listen(module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
            if module is self.model:  # and no copy that the step makes of it
                calls.append(Call(*_detached((args, kwargs))))

        session = self.session
        tape = Tape(self.model, session.optimizers, session.setup.scheduler)
        with session.observe(), without_dropout(self.model):
            torch.manual_seed(seed)
            if prepare is not None:
                with torch.no_grad():
                    prepare()
            handle = self.model.register_forward_pre_hook(listen, with_kwargs=True)
            try:
                with tape.running(), within or contextlib.nullcontext():
                    returned = self.make_step(cloned(batch) if copied else batch)
            except NotChecked:
                raise
            except Exception as error:
                raise NotChecked(f"the step raises {type(error).__name__} here") from error
            finally:
                handle.remove()
        backwards = [event.loss for event in tape.of("backward")]
        return Step(calls, tape, math.fsum(backwards) if backwards else as_float(returned))

    def first(self) -> Step:
        """The step on the first batch, made once."""
        if "program first step" not in self.session.memory:
            self.session.memory["program first step"] = self.step(self.batches[0])
        return self.session.memory["program first step"]

    def steady_loss(self, batch: Any, prepare: Any = None) -> float:
        """The loss of a batch.

        Raises:
            NotChecked: The loss is not the same for two seeds, or not finite.
        """
        one, two = (self.step(batch, seed=seed, prepare=prepare).loss for seed in (0, 1))
        if not math.isfinite(one) or not close(one, two):
            raise NotChecked("the loss of one batch is random")
        return one

    def replay(self, call: Call, seed: int = 0) -> list[Tensor]:
        """The model's tensors for the same call in eval mode, from the snapshot.

        Raises:
            NotChecked: It raises.
        """
        with self.session.observe(), torch.no_grad():
            return self.run(call, seed)

    def run(self, call: Call, seed: int = 0) -> list[Tensor]:
        """The same, from the model's current state.

        Without torch's fast path for encoders, which training never takes: to it, any number in a
        mask forbids a place, and places of padding give 0.
        """
        self.model.eval()
        torch.manual_seed(seed)
        try:
            with without_fastpath():
                given = self.model(*cloned(call.args), **cloned(call.kwargs))
        except Exception as error:
            raise NotChecked(f"the model raises {type(error).__name__} in eval mode") from error
        return [t.detach().clone() for t in tensors_in(given) if t.is_floating_point()]

    def call(self) -> Call:
        """The one call of the model in a step, which gives the same outputs for two seeds.

        Raises:
            NotChecked: There is none, or several, or the model draws at random in eval mode.
        """
        calls = self.first().calls
        if len(calls) != 1:
            raise NotChecked(f"a step calls the model {len(calls)} times")
        once, twice = (self.replay(calls[0], seed) for seed in (0, 1))
        if not once or far(once, twice) > 0:
            raise NotChecked("the model returns no tensor, or a different one each time")
        return calls[0]


def program_of(session: Session) -> Program:
    """The session's program, made once."""
    if "program" not in session.memory:
        session.memory["program"] = Program(session)
    return session.memory["program"]


def _detached(value: Any) -> Any:
    return mapped(lambda leaf: leaf.detach().clone() if isinstance(leaf, Tensor) else leaf, value)


def changed(value: Any, change: Any) -> Any:
    """A nested value with every tensor replaced by what `change` makes of it."""
    return mapped(lambda leaf: change(leaf) if isinstance(leaf, Tensor) else leaf, value)


def exchanged(value: Any, part: Tensor, new: Any) -> Any:
    """A nested value with one of its tensors, that very object, replaced."""
    return mapped(lambda leaf: new if leaf is part else leaf, value)


def far(one: list[Tensor], other: list[Tensor]) -> float:
    """Largest distance between two lists of outputs, in standard deviations of the first."""
    if [t.shape for t in one] != [t.shape for t in other]:
        return math.inf
    found = 0.0
    for a, b in zip(one, other, strict=True):
        if a.numel():
            spread = float(a.float().std(correction=0)) or 1.0
            found = max(found, float((a.float() - b.float()).abs().max()) / spread)
    return found


def close(a: float, b: float, tolerance: float = SAME) -> bool:
    """Whether two losses are equal but for rounding."""
    return abs(a - b) <= tolerance * max(abs(a), abs(b), LEAST_LOSS)


@contextlib.contextmanager
def without_fastpath() -> Iterator[None]:
    """Inside, attention in eval mode is computed as it is in training."""
    kept = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(kept)


@contextlib.contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """Inside, every dropout rate is 0, including those inside attention and GRUs."""
    kept = [
        (part, name, getattr(part, name)) for part in model.modules() for name in ("p", "dropout")
        if changes_by_mode(part) and type(getattr(part, name, None)) is float
    ]  # fmt: skip
    for part, name, _ in kept:
        setattr(part, name, 0.0)
    try:
        yield
    finally:
        for part, name, rate in kept:
            setattr(part, name, rate)
