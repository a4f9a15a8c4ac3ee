"""Whether code draws random numbers: seen where a kernel moves a generator, whoever called it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from course.state.nested import tensors_in


class Drawn(TorchDispatchMode):
    """The shapes of what is drawn at random while it is on, in order.

    Below torch's functions, so that dropout of a model's own, `bernoulli` in a distribution and
    noise of a generator that was handed in are all seen. Dropout at rate 0 draws nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.shapes: list[tuple[int, ...]] = []

    def __torch_dispatch__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None):
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in function.tags:
            return function(*args, **kwargs)
        given = kwargs.get("generator")
        before = _state(given)
        result = function(*args, **kwargs)
        if not torch.equal(before, _state(given)):
            first = next(tensors_in(result), None)
            self.shapes.append(tuple(first.shape) if isinstance(first, Tensor) else ())
        return result


def _state(given: torch.Generator | None) -> Tensor:
    """Of the generator that is used: the one handed in, or the default ones."""
    if given is not None:
        return given.get_state()
    states = [torch.get_rng_state()]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states.append(torch.cuda.get_rng_state())
    return torch.cat(states)
