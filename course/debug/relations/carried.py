"""Relation on a hidden state that a recurrent layer carries on: the next batch is what follows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler
from torch.utils.data.dataloader import _BaseDataLoaderIter

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, clone
from course.debug.probes.tape import patched
from course.debug.relations.program import program_of
from course.state.nested import tensors_in

STEPS = 6
"""Steps in a row that are looked at."""
LEAST_CARRIED = 2
"""Steps that begin with the last one's state, from which they do so as a rule."""
RECURRENT = (nn.RNNBase, nn.RNNCellBase)


def in_order(session: Session) -> Iterator[Finding]:
    """A state is carried from batch to batch only if the loader keeps their order.

    Told as a fault where batches are made to follow each other: a data set's items are whole
    batches, or evaluate() carries the state, too, over batches that keep their order.
    """
    layers = [m for m in session.model.modules() if isinstance(m, RECURRENT)]
    if not layers or session.setup.train_step is None:
        raise NotChecked("no recurrent layer, or no train_step")
    loader = session.setup.train_loader
    by_torch = type(getattr(loader, "batch_sampler", None)) in (BatchSampler, type(None))
    if not by_torch or not isinstance(getattr(loader, "sampler", None), RandomSampler):
        raise NotChecked("the loader does not shuffle, or in a way of the author's")
    program, carried = program_of(session), 0
    batches = program.batches[:STEPS]
    with session.observe(), _States(layers) as states:
        for batch in batches:
            before = states.begin()
            try:
                program.make_step(clone(batch))
            except Exception as error:
                raise NotChecked(f"the step raises {type(error).__name__}") from error
            carried += states.go_on_from(before)
    if carried >= LEAST_CARRIED:
        scored = _carried_in_order(session, layers)
        whole = loader.batch_sampler is None
        also = (
            f" In evaluate(), it is carried over {scored} batches, which keep their order."
            if scored >= LEAST_CARRIED else ""
        )  # fmt: skip
        yield Finding(
            "state-carried", "warning" if whole or also else "note",
            f"In {carried} of {len(batches)} steps a recurrent layer begins with the state that "
            "the step before ended with, but the loader shuffles: the state is that of another "
            f"place of the sequence.{also}",
            {"carried": carried, "steps": len(batches), "shuffled": True,
             "carried_in_evaluation": scored},
            "DataLoader(chunks, batch_size=None, shuffle=False)  # consecutive chunks\n"
            "# or begin every step with no state",
        )  # fmt: skip


def _carried_in_order(session: Session, layers: list[nn.Module]) -> int:
    """Batches of a val_loader that keeps their order at which a layer begins, in evaluate(), with
    the state that the batch before ended with: those continue each other."""
    loader = session.setup.val_loader
    if session.setup.evaluate is None or not isinstance(
        getattr(loader, "sampler", None), SequentialSampler
    ):
        return 0
    carried, before = 0, None
    with session.observe(), _States(layers) as states:

        def fetch(original: Any, iterator: Any) -> Any:
            nonlocal carried, before
            if getattr(iterator, "_dataset", None) is loader.dataset:
                carried += before is not None and states.go_on_from(before)
                before = states.begin()
            return original(iterator)

        with patched(_BaseDataLoaderIter, "__next__", fetch):
            try:
                session.setup.evaluate()
            except Exception:
                return 0
    return carried


class _States:
    """While it is entered: the first state that each layer got and the last that it gave."""

    def __init__(self, layers: list[nn.Module]) -> None:
        self.layers = layers
        self.first: dict[int, list[Tensor]] = {}
        self.last: dict[int, list[Tensor]] = {}

    def __enter__(self) -> _States:
        self._stack = contextlib.ExitStack()
        for layer in self.layers:
            handle = layer.register_forward_pre_hook(self._enter, with_kwargs=True)
            self._stack.callback(handle.remove)
            self._stack.callback(layer.register_forward_hook(self._leave).remove)
        return self

    def __exit__(self, *_: Any) -> None:
        self._stack.close()

    def begin(self) -> dict[int, list[Tensor]]:
        """Forget all; gives the last states."""
        last, self.first, self.last = self.last, {}, {}
        return last

    def go_on_from(self, before: dict[int, list[Tensor]]) -> bool:
        """Whether a layer began with the state that it had ended with before."""
        return any(_goes_on(self.first.get(key, []), old) for key, old in before.items())

    def _enter(self, layer: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        states = list(tensors_in([args[1:], kwargs.get("hx")]))
        self.first.setdefault(id(layer), [t.detach().clone() for t in states])

    def _leave(self, layer: nn.Module, args: tuple, output: Any) -> None:
        state = output[1] if isinstance(layer, nn.RNNBase) else output
        self.last[id(layer)] = [t.detach().clone() for t in tensors_in(state)]


def _goes_on(states: list[Tensor], before: list[Tensor]) -> bool:
    return bool(states) and len(states) == len(before) and all(
        a.shape == b.shape and bool(a.any()) and torch.equal(a, b)
        for a, b in zip(states, before, strict=True)
    )  # fmt: skip
