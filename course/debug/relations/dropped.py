"""Relation on bounds that a step sets for its weights: what is clamped is written back."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode

from course.debug.probes.functions import is_transformed
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.relations.program import program_of
from course.state.nested import tensors_in

BOUNDS = {
    torch.clamp, Tensor.clamp, torch.clip, Tensor.clip, torch.clamp_min, Tensor.clamp_min,
    torch.clamp_max, Tensor.clamp_max, torch.renorm, Tensor.renorm, F.normalize,
}  # fmt: skip
"""Functions that give a copy of a tensor within bounds, of which calling them twice changes no
more."""
OUTSIDE = 1e-3
"""Distance to the bounds, over the largest number, that rounding does not make."""
LEAST_SIZE = 1e-12
"""Size of weights that are all 0, so that nothing is divided by 0."""


def bounds(session: Session) -> Iterator[Finding]:
    """A copy of a weight or a gradient within bounds is used, or the weight itself is within them.

    Such copies are meant in quantisation, for a log or for another model: a later function gets
    them, they are kept, or the step would do something else if they were other numbers.
    """
    program = program_of(session)
    if session.loop.tape.functions.called.isdisjoint(BOUNDS):
        raise NotChecked("a step keeps no tensor within bounds")
    weights = {id(p): (name, p) for name, p in session.model.named_parameters()}
    for optimizer in session.optimizers:
        for group in optimizer.param_groups:
            for p in group["params"]:
                weights.setdefault(id(p), ("a tensor of the optimizer", p))
    seen = _Bounded([*weights.values()])
    step = program.step(program.batches[0], within=seen)
    lost = seen.lost()
    if not lost:
        return
    other = _Bounded([*weights.values()], turned={one.key for one in lost})
    again = program.step(program.batches[0], within=other)
    if not _alike(step.loss, again.loss) or not all(map(_equal, seen.after, other.after)):
        return  # the step uses what it was given
    first = max(lost, key=lambda one: one.beyond)
    what = "gradient" if first.of_gradient else "weight"
    yield Finding(
        "clip-misplaced", "error",
        f"In a step {first.function} is called on the {what} of {len(lost)} parameters (first "
        f"{lost[0].name}), but nothing uses what it returns, and after the step {first.outside} of "
        f"{first.numbers} numbers of {first.name} are still outside the bounds, by up to "
        f"{first.beyond:.2g}: it returns a new tensor, and the {what} itself stays as it is.",
        {"parameters": len(lost), "first": lost[0].name, "outside": first.outside,
         "by_up_to": first.beyond},
        "with torch.no_grad():\n    p.clamp_(-c, c)  # in place; p = p.clamp(-c, c) only gives the "
        "name p to a copy",
    )  # fmt: skip


def _alike(a: float, b: float) -> bool:
    return a == b or (a != a and b != b)


def _equal(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.shape == other.shape and torch.equal(one.nan_to_num(), other.nan_to_num())


@dataclass
class _Copies:
    """What bounds gave for one weight, or for its gradient, in a step."""

    key: tuple[int, bool]
    name: str
    function: str
    again: Callable[[Tensor], Tensor]
    """Sets the same bounds for another tensor."""
    memory: list[StorageWeakRef] = field(default_factory=list)
    used: bool = False
    kept: bool = False
    """Something still holds one of them when the step has returned."""
    outside: int = 0
    numbers: int = 0
    beyond: float = 0.0

    @property
    def of_gradient(self) -> bool:
        return self.key[1]


class _Bounded(TorchFunctionMode):
    """Copies of weights within bounds, and whether a later function gets them.

    Args:
        weights: By names.
        turned: Of these, something else is handed out.
    """

    def __init__(self, weights: list[tuple[str, Tensor]], turned: set | None = None) -> None:
        super().__init__()
        self.weights = weights
        self.turned = turned or set()
        self.copies: dict[tuple[int, bool], _Copies] = {}
        self.after: list[Tensor | None] = []
        """All weights and gradients at the end of the step."""
        self._live: dict[int, tuple[weakref.ref, _Copies]] = {}

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None):
        kwargs = kwargs or {}
        if self._live:
            for t in tensors_in([args, kwargs]):
                kept, copies = self._live.get(id(t), (None, None))
                if kept is not None and kept() is t:
                    copies.used = True
        key = None
        if function in BOUNDS and kwargs.get("out") is None and args:
            key = None if is_transformed() else self._of_a_weight(args[0])
        result = function(*args, **kwargs)
        if key is None or not isinstance(result, Tensor):
            return result
        if key in self.turned:
            result = result + 1
        copies = self.copies.get(key)
        if copies is None:
            name, again = self.weights[key[0]][0], partial(_bounded, function, args[1:], kwargs)
            copies = self.copies[key] = _Copies(key, name, f"{function.__name__}()", again)
        copies.memory.append(StorageWeakRef(result.untyped_storage()))
        self._live[id(result)] = (weakref.ref(result), copies)
        return result

    def _of_a_weight(self, t: Tensor) -> tuple[int, bool] | None:
        """Place of the weight whose numbers, or whose gradient's, these are."""
        for place, (_, p) in enumerate(self.weights):
            for of_gradient, own in ((False, p), (True, p.grad)):
                if own is not None and own.shape == t.shape and own.numel() and _is_one(own, t):
                    return place, of_gradient
        return None

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for one in self.copies.values():
            one.kept = not all(memory.expired() for memory in one.memory)
        for _, p in self.weights:
            self.after += [None if t is None else t.detach().clone() for t in (p, p.grad)]

    def lost(self) -> list[_Copies]:
        """Those that nothing used or kept, though there are numbers outside the bounds."""
        found = []
        for one in self.copies.values():
            now = self.after[2 * one.key[0] + one.of_gradient]
            if one.used or one.kept or now is None:
                continue
            off = (one.again(now) - now).abs().nan_to_num()
            beyond = off > OUTSIDE * max(float(now.abs().max()), LEAST_SIZE)
            one.outside, one.numbers = int(beyond.sum()), now.numel()
            one.beyond = float(off.max())
            found += [one] if one.outside else []
        return found


def _is_one(one: Tensor, other: Tensor) -> bool:
    """Both are the same numbers, as a weight and its `.data`."""
    plain = one.device == other.device and one.layout == other.layout == torch.strided
    return one is other or (plain and one.data_ptr() == other.data_ptr())


def _bounded(function: Any, args: Any, kwargs: Any, t: Tensor) -> Tensor:
    return function(t, *args, **kwargs)
