"""Relation on a hidden state that a recurrent layer carries on: the next batch is what follows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, RandomSampler

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, clone
from course.debug.relations.program import program_of
from course.state.nested import tensors_in

STEPS = 6
"""Steps in a row that are looked at."""
LEAST_CARRIED = 2
"""Steps that begin with the last one's state, from which they do so as a rule."""
RECURRENT = (nn.RNNBase, nn.RNNCellBase)


def in_order(session: Session) -> Iterator[Finding]:
    """A state is carried from batch to batch only if the loader keeps their order.

    Told as a fault where a data set's items are whole batches, which are made to follow each other.
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
    with session.observe(), contextlib.ExitStack() as stack:
        first: dict[int, list[Tensor]] = {}
        last: dict[int, list[Tensor]] = {}

        def enter(layer: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
            states = list(tensors_in([args[1:], kwargs.get("hx")]))
            first.setdefault(id(layer), [t.detach().clone() for t in states])

        def leave(layer: nn.Module, args: tuple, output: Any) -> None:
            state = output[1] if isinstance(layer, nn.RNNBase) else output
            last[id(layer)] = [t.detach().clone() for t in tensors_in(state)]

        for layer in layers:
            stack.callback(layer.register_forward_pre_hook(enter, with_kwargs=True).remove)
            stack.callback(layer.register_forward_hook(leave).remove)
        for batch in batches:
            before, last = last, {}
            first.clear()
            try:
                program.make_step(clone(batch))
            except Exception as error:
                raise NotChecked(f"the step raises {type(error).__name__}") from error
            carried += any(_goes_on(first.get(key, []), old) for key, old in before.items())
    if carried >= LEAST_CARRIED:
        whole = loader.batch_sampler is None
        yield Finding(
            "state-carried", "warning" if whole else "note",
            f"In {carried} of {len(batches)} steps a recurrent layer begins with the state that "
            "the step before ended with, but the loader shuffles: the state is that of another "
            "place of the sequence.",
            {"carried": carried, "steps": len(batches), "shuffled": True},
            "DataLoader(chunks, batch_size=None, shuffle=False)  # consecutive chunks\n"
            "# or begin every step with no state",
        )  # fmt: skip


def _goes_on(states: list[Tensor], before: list[Tensor]) -> bool:
    return bool(states) and len(states) == len(before) and all(
        a.shape == b.shape and bool(a.any()) and torch.equal(a, b)
        for a, b in zip(states, before, strict=True)
    )  # fmt: skip
