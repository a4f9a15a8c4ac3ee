"""A training program seen from outside: what reaches the model, and the loss of a batch.

Nothing here depends on what a batch looks like. One call of the author's own step shows which
tensors the model got and what it returned; the loss on which backward was called is the loss of the
batch, whoever computed it.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from course.debug.probes.draws import draws_for_itself
from course.debug.probes.functions import is_transformed
from course.debug.probes.session import NotChecked, Session, as_float
from course.debug.probes.tape import Tape, changes_by_mode
from course.debug.relations.steps import Call, Step, close
from course.state.nested import cloned, mapped, tensors_in

MOST_KEPT = 4
"""Batches, the first ones, of which a plain step is kept for all relations that look at it."""


class Program:
    """The author's step as a function of a batch. Every call starts from the snapshot."""

    def __init__(self, session: Session) -> None:
        self.session = session
        setup = session.setup
        self.make_step = setup.train_step or session.plain_step
        self.model: nn.Module = session.model
        self.kept: dict[tuple[int, int], Step] = {}
        """Plain steps, by the place of the batch and the seed."""
        self._call: Call | None = None
        self._replayed: list[Tensor] = []
        self._reason = ""
        """Why there is no single call of the model, if that is known."""

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
        again: bool = False,
    ) -> Step:
        """Make one step and record it; weights and random numbers are restored afterwards.

        Args:
            batch: Of any kind.
            seed: Seed of torch's global generator.
            prepare: Called first, to change the weights for this one step.
            within: Context entered around the step only: a mode that intercepts torch's functions
                would also see the snapshot, which calls thousands.
            copied: Pass in a copy of the batch, since the step may change it.
            again: Make it even if a plain step on this batch is kept: to see whether it is the
                same again, or while something else listens.

        Raises:
            NotChecked: The step raises.
        """
        plain = prepare is within is None and copied
        key = self._key(batch, seed) if plain else None
        if key in self.kept and not again:
            return self.kept[key]
        calls: list[Call] = []
        outputs: list[Tensor] = []
        slopes: list[Tensor] = []

        def listen(module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
            if module is self.model:  # and no copy that the step makes of it
                calls.append(Call(*_detached((args, kwargs))))

        def hear(module: nn.Module, args: tuple, output: Any) -> None:
            if module is self.model and not is_transformed():
                for t in tensors_in(output):
                    outputs.append(t.detach())
                    if t.requires_grad:
                        t.register_hook(lambda slope: slopes.append(slope.detach().clone()))

        session = self.session
        given = cloned(batch) if copied else batch
        tape = Tape(self.model, session.optimizers, session.setup.scheduler)
        with session.observe(), without_dropout(self.model):
            torch.manual_seed(seed)
            fresh = self._generator()
            if prepare is not None:
                with torch.no_grad():
                    prepare()
            handles = [self.model.register_forward_pre_hook(listen, with_kwargs=True)]
            if plain:
                handles.append(self.model.register_forward_hook(hear))
            try:
                with tape.running(), within or contextlib.nullcontext():
                    returned = self.make_step(given)
            except NotChecked:
                raise
            except Exception as error:
                raise NotChecked(f"the step raises {type(error).__name__} here") from error
            finally:
                for handle in handles:
                    handle.remove()
            drew = _has_drawn(fresh, self._generator())
        backwards = [event.loss for event in tape.of("backward")]
        loss = math.fsum(backwards) if backwards else as_float(returned)
        step = Step(calls, tape, loss, given, outputs, slopes, drew)
        if key is not None:
            self.kept.setdefault(key, step)
        return step

    def _key(self, batch: Any, seed: int) -> tuple[int, int] | None:
        """The place of one of the first batches, as the loader yields it, and the seed."""
        known = self.session.epoch.batches[:MOST_KEPT]
        return next(((n, seed) for n, b in enumerate(known) if b is batch), None)

    def _generator(self) -> Tensor | None:
        """State of torch's global generator; None where a device has its own, or no fixed order."""
        devices = {p.device.type for p in self.model.parameters()}
        return torch.get_rng_state() if devices <= {"cpu"} else None

    def first(self) -> Step:
        """The step on the first batch, made once."""
        return self.step(self.batches[0])

    def steady_loss(self, batch: Any, prepare: Any = None) -> float:
        """The loss of a batch.

        Raises:
            NotChecked: The loss is not the same for two seeds, or not finite.
        """
        one = self.step(batch, prepare=prepare)
        alone = one.drew or not self._repeats
        two = self.step(batch, seed=1, prepare=prepare) if alone else one
        if not math.isfinite(one.loss) or not close(one.loss, two.loss):
            raise NotChecked("the loss of one batch is random")
        return one.loss

    @cached_property
    def _repeats(self) -> bool:
        """The first step costs the same again: what it reads is put back as it was, which a live
        iterator cannot be."""
        return self.step(self.batches[0], seed=1).loss == self.first().loss

    def replay(self, call: Call, seed: int = 0, *, again: bool = False) -> list[Tensor]:
        """The model's tensors for the same call in eval mode, from the snapshot.

        Args:
            call: As the model was called.
            seed: Seed of torch's global generator.
            again: Call the model even if what it gives is kept, because something else listens.

        Raises:
            NotChecked: It raises.
        """
        if call is self._call and seed == 0 and not again:
            return list(self._replayed)
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
        if self._reason:
            raise NotChecked(self._reason)
        if self._call is None:
            try:
                self._replayed, self._call = self._look_at_call()
            except NotChecked as reason:
                self._reason = str(reason)
                raise
        return self._call

    def _look_at_call(self) -> tuple[list[Tensor], Call]:
        calls = self.first().calls
        if len(calls) != 1:
            raise NotChecked(f"a step calls the model {len(calls)} times")
        with self.session.observe(), torch.no_grad():
            torch.manual_seed(0)
            fresh = self._generator()
            once = self.run(calls[0])
            drew = _has_drawn(fresh, self._generator())
        twice = self.replay(calls[0], 1) if drew else once
        if not once or far(once, twice) > 0:
            raise NotChecked("the model returns no tensor, or a different one each time")
        if draws_for_itself(self.session, lambda: self.run(calls[0])):
            raise NotChecked("the model draws from a generator of its own in eval mode")
        return once, calls[0]


def _has_drawn(before: Tensor | None, after: Tensor | None) -> bool:
    return before is None or after is None or not torch.equal(before, after)


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
