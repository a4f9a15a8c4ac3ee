"""One training step seen from outside, as `program.Program` records it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from course.debug.probes.tape import Event, Tape
from course.state.nested import tensors_in

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
    batch: Any
    """What the step was given, as it left it."""
    outputs: list[Tensor]
    """All tensors that the model returned, in a plain step."""
    slopes: list[Tensor]
    """The loss's slopes in those of them that have one, in the order of the backward pass."""
    drew: bool
    """Whether it took numbers from torch's global generator: else no seed makes a difference."""

    def calls_any(self, functions: Iterable[Any]) -> bool:
        """Whether one of these functions of torch's was called, by the model or around it."""
        return not self.tape.functions.called.isdisjoint(functions)

    @property
    def losses(self) -> list[Event]:
        """Calls of torch's losses that a gradient flows through."""
        return [event for event in self.tape.of("loss") if event.graph]

    @property
    def is_one_of_torchs(self) -> bool:
        """backward is called directly on a single torch loss."""
        return len(self.losses) == 1 and close(self.losses[0].value, self.loss)


def close(a: float, b: float, tolerance: float = SAME) -> bool:
    """Whether two losses are equal but for rounding."""
    return abs(a - b) <= tolerance * max(abs(a), abs(b), LEAST_LOSS)
