"""How far weights bring a model's outputs, seen on weights that are led there.

Weights drawn at random come near no special place such as equal rows, where a distance is 0 and a
cosine 1. What is seen here is no proof either: it says how far outputs were brought.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from course.debug.probes.functions import LOSSES
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.thresholds import TINY
from course.debug.relations.program import Program

SMALLER, LAST = (1.0, 0.1, 0.0), 4
"""Sizes of the model's own weights, and how many of its last parameters are set to 0, from which it
is seen how far the outputs go."""
WAY, STRIDE, LEAST_SIZE = 24, 0.1, 0.05
"""Steps of a way that leads outputs to where the targets are, each step's length in units of a
parameter's size, and what is added to that, as a bias may be 0."""
STILL = 0.05
"""Of the first output on the way: by more has it moved in the second half of a way that goes on."""
Look = Callable[[list[Tensor], int], tuple[Tensor, list[Tensor | None]]]
"""Outputs with these weights, and in each weight the slope of what leads them up (1) or down."""


def led(model: nn.Module, look: Look, way: int, bound: float) -> float:
    """The furthest output in one direction: with the weights as they are, smaller, with the last
    ones at 0, and on a way of steps that leads there.

    Args:
        model: Whose weights are changed.
        look: What is looked at.
        way: 1 is up, -1 is down.
        bound: The furthest of the outputs with weights drawn at random.

    Raises:
        NotChecked: The way leads beyond the bound and does not end within `WAY` steps.
    """
    own = [p.detach().clone() for p in model.parameters()]
    sizes = [p.float().pow(2).mean().sqrt() + LEAST_SIZE for p in own]
    places = [[size * p for p in own] for size in SMALLER]
    places += [[*own[:-n], *map(torch.zeros_like, own[-n:])] for n in range(1, LAST + 1)]
    found = [float((way * look(place, way)[0]).max()) for place in places]
    weights, ahead = own, []
    for _ in range(WAY):
        outputs, slopes = look(weights, way)
        if all(s is None or not bool(s.any()) for s in slopes):
            break
        ahead.append(float((way * outputs).max()))
        weights = [
            w if s is None else (w + STRIDE * size * s.sign()).to(w)
            for w, s, size in zip(weights, slopes, sizes, strict=True)
        ]
    found += ahead
    if not all(map(math.isfinite, found)):
        raise NotChecked("the outputs are not finite on the way to the targets")
    if max(found) <= way * bound:
        return bound
    half = ahead[: len(ahead) // 2]
    if half and max(ahead) == max(found) and max(ahead) - max(half) > STILL * abs(ahead[0]) + TINY:
        raise NotChecked("it is not seen how far weights bring the outputs")
    return way * max(found)


def _slopes(outputs: Tensor, parameters: list[Tensor], way: int) -> list[Tensor | None]:
    """In each weight the slope of the outputs' mean and of the furthest of them."""
    trained = [p for p in parameters if p.requires_grad]
    if not outputs.requires_grad or not trained:
        return [None] * len(parameters)
    furthest = (way * outputs).max() + way * outputs.mean()
    slopes = torch.autograd.grad(furthest, trained, retain_graph=True, allow_unused=True)
    by_id = {id(p): s for p, s in zip(trained, slopes, strict=True)}
    return [by_id.get(id(p)) for p in parameters]


def in_eval_mode(session: Session, weights: list[Tensor], way: int):
    """A `Look` at what the model gives for the first batch."""
    with session.observe():
        parameters = list(session.model.parameters())
        with torch.no_grad():
            for p, new in zip(parameters, weights, strict=True):
                p.copy_(new)
        session.model.eval()
        outputs = session._first_tensor(session.call_model(session.batch[0])).float()
        return outputs.detach(), _slopes(outputs, parameters, way)


class _Met(TorchFunctionMode):
    """Takes the slopes of the outputs that meet the loss at this place of a step."""

    def __init__(self, place: int, take: Callable[[Tensor], None]) -> None:
        super().__init__()
        self.place, self.take = place, take

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None):
        kwargs = kwargs or {}
        if function in LOSSES:
            inputs = kwargs.get("input", args[0] if args else None)
            if isinstance(inputs, Tensor) and inputs.requires_grad:
                if self.place == 0:
                    self.take(inputs)
                self.place -= 1
        return function(*args, **kwargs)


def in_a_step(program: Program, place: int, weights: list[Tensor], way: int):
    """A `Look` at what meets the loss in a step on the first batch."""
    parameters = list(program.model.parameters())
    seen: list[tuple[Tensor, list[Tensor | None]]] = []

    def redraw() -> None:
        for p, new in zip(parameters, weights, strict=True):
            p.copy_(new)

    def take(outputs: Tensor) -> None:
        seen.append((outputs.detach().float(), _slopes(outputs.float(), parameters, way)))

    program.step(program.batches[0], prepare=redraw, within=_Met(place, take))
    if not seen:
        raise NotChecked("with other weights no outputs meet the loss")
    return seen[0]
