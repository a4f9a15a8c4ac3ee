"""Relation on a layer that is called again and again on what it gave: its gradient goes back, too.

For example a recurrent cell in a loop over time. A detach() in each round of the loop leaves only
the last one to be trained.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.relations.program import Program, program_of
from course.debug.relations.steps import close
from course.state.nested import mapped, tensors_in

LEAST_CALLS = 3
"""Calls from which a layer is one of a loop, not of two views or of a target and a prediction."""
MOVED = 0.1
"""Least standard deviation of what is added to an output that is moved, if all of it is alike."""
MOST_LAYERS = 4
"""Layers that are looked at, the one called first in the model before others."""


def goes_back(session: Session) -> Iterator[Finding]:
    """If a loop's earlier rounds change the loss, their outputs get a gradient from it.

    Left alone: rounds without a graph, made so on purpose; windows of several rounds; rounds with
    a loss of their own; and rounds that refine one input, which may train the last alone.
    """
    program = program_of(session)
    counts, sizes = _calls(program)
    often = [m for m, number in counts.items() if number >= LEAST_CALLS]
    if not often:
        raise NotChecked(f"no layer is called {LEAST_CALLS} times in one forward of the model")
    for layer in often[:MOST_LAYERS]:
        plain = _Rounds(program, layer)
        last = len(plain.given) - 1
        if not plain.all_learn or plain.reached != {last}:
            continue
        first, late = (_Rounds(program, layer, moved=k) for k in (0, last - 1))
        if close(plain.loss, late.loss):
            continue
        if not (plain.hands_on(first, 0) and plain.hands_on(late, last - 1)):
            continue
        if not (last + 1 in sizes or plain.takes_more(late, last - 1)):
            continue
        name = next(n for n, m in program.model.named_modules() if m is layer)
        yield Finding(
            "loss-without-gradient", "warning",
            f"{name} is called {last + 1} times in one forward, each time on what it gave before. "
            f"If the output of call {last} is moved, the loss changes from {plain.loss:.4g} to "
            f"{late.loss:.4g}, but the gradient reaches the output of call {last + 1} alone: a "
            "detach() in the loop cuts it off, and nothing is learned about earlier steps.",
            {"layer": name, "calls": last + 1, "calls_with_gradient": 1, "loss": plain.loss,
             "loss_if_moved": late.loss},
            "h = self.cell(x[:, t], h)  # detach h between windows, not between their steps",
        )  # fmt: skip
        return


def _calls(program: Program) -> tuple[dict[nn.Module, int], set[int]]:
    """How often each layer with weights is called in the first forward, and the sizes of what the
    model gets other than its rows."""
    step = program.first()
    parts = {id(m): m for m in program.model.modules()}
    counts = {parts[key]: number for key, number in step.tape.calls_within.items()
              if any(p.requires_grad for p in parts[key].parameters())}  # fmt: skip
    sizes = {size for t in (step.calls[0].tensors if step.calls else []) for size in t.shape[1:]}
    return counts, sizes


class _Rounds:
    """One step, with what a layer is given in each call of the model's first forward.

    Args:
        moved: The call whose output is moved.
    """

    def __init__(self, program: Program, layer: nn.Module, moved: int = -1) -> None:
        self.given: list[list[Tensor]] = []
        self.reached: set[int] = set()
        """Calls whose output gets a gradient."""
        self.all_learn = True
        """Each output has a graph."""
        self.moved, self.forwards = moved, 0
        hook = lambda: self._hook(program, layer)  # noqa: E731
        self.loss = program.step(program.batches[0], prepare=hook).loss

    def hands_on(self, other: _Rounds, call: int) -> bool:
        """What is given in the next call differs where the output of this one was moved."""
        return any(bool(d.any()) for d in self._differ(other, call))

    def takes_more(self, other: _Rounds, call: int) -> bool:
        """The next call is also given what this one was not, and what it did not give."""
        before, after = self.given[call], self.given[call + 1]
        return any(
            a.shape == b.shape and bool(((a != b) & ~d).any())
            for a, b, d in zip(before, after, self._differ(other, call), strict=True)
        )

    def _differ(self, other: _Rounds, call: int) -> list[Tensor]:
        if len(other.given) != len(self.given):
            return []
        one, two = self.given[call + 1], other.given[call + 1]
        if [t.shape for t in one] != [t.shape for t in two] or len(one) != len(self.given[call]):
            return []
        return [a != b for a, b in zip(one, two, strict=True)]

    def _hook(self, program: Program, layer: nn.Module) -> None:
        program.model.register_forward_pre_hook(self._enter)
        program.model.register_forward_hook(self._enter)
        layer.register_forward_hook(self._see, with_kwargs=True)

    def _enter(self, *_: Any) -> None:
        self.forwards += 1  # at its beginning and end: within the first it is 1

    def _see(self, _: nn.Module, args: tuple, kwargs: dict, output: Any) -> Any:
        if self.forwards != 1:
            return output
        call = len(self.given)
        self.given.append([t.detach().clone() for t in tensors_in([args, kwargs])])
        learn = [t for t in tensors_in(output) if t.requires_grad]
        self.all_learn &= bool(learn)
        if call == self.moved:
            own = torch.Generator().manual_seed(0)
            new = {id(t): t + (MOVED + t.detach().std(correction=0))
                   * torch.randn(t.shape, generator=own).to(t) for t in learn}  # fmt: skip
            return mapped(lambda t: new.get(id(t), t), output)
        for t in learn:
            t.register_hook(lambda g: self.reached.add(call))
        return output
