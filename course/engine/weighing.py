"""Measured weighting: what a criterion's mean divides by, inferred from what it computes.

The loss of a whole batch is compared with the losses of its parts a and b:

    a sum               loss = loss_a + loss_b
    a mean over w       loss = (w_a · loss_a + w_b · loss_b) / (w_a + w_b)

where w counts examples, numbers, targets that are not masked, or their class weights. What the
criterion holds (an `ignore_index`, a vector of class weights) says what to try; what it computes
decides. So a function, a compiled module, or a module that contains a loss is weighted as correctly
as torch's own losses. It takes a few calls of the criterion, once; where batches lie on an
accelerator, with copies on the CPU, since a target that is no class costs a process its device.

Source: Lecture 3, "Simulating a big batch"; ledger C06, F43, F71.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from course.engine.window import (
    Criterion,
    Weigher,
    is_known,
    num_examples,
    unmasked,
    weighing,
)
from course.state import kept, nested, undisturbed
from course.state.generators import inside

CLOSE = {torch.float64: 1e-7, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 5e-2}
"""Relative distance at which two losses count as equal, by the dtype that they are computed in."""
MOST_THINGS = 300
"""Things looked at in search of masks and class weights."""
MOST_IGNORED = 12
"""Values tried as `ignore_index`."""
USUAL_IGNORED = -100
"""torch's default."""
NO_UNIT = 1.0e-12


@dataclass(frozen=True)
class Measured:
    """How a criterion weights its batch."""

    weigher: Weigher
    """(function that gives a micro-batch's weight, True if the criterion sums)."""
    kind: str
    """In words, for the record: `mean over examples`, `sum`, ..."""
    known: bool = True
    """False: neither a sum nor a mean over anything that was tried; examples are counted."""
    numbers: str = ""
    """The losses that were compared, for an error message."""

    def state_dict(self) -> dict[str, Any]:
        """What `measured_there` needs to weight in the same way in another process."""
        weigh = self.weigher[0]
        masked = isinstance(weigh, partial) and weigh.func is unmasked
        ignore_index, class_weights = weigh.args if masked else (None, None)
        return {
            "kind": self.kind,
            "known": self.known,
            "numbers": self.numbers,
            "ignore_index": ignore_index,
            "class_weights": class_weights,
        }


def measured_there(criterion: Criterion, state: dict[str, Any], device: torch.device) -> Measured:
    """What an earlier process measured of this criterion, from `Measured.state_dict`."""
    kind, class_weights = state["kind"], state["class_weights"]
    if class_weights is not None:  # rather the criterion's own: it may change them
        same = (v for v in _all_vectors(criterion) if torch.equal(v.cpu(), class_weights))
        class_weights = next(same, class_weights.to(device))
    if kind == "sum":
        weigh = _examples_or_known(criterion)
    elif state["ignore_index"] is not None:
        weigh = partial(unmasked, state["ignore_index"], class_weights)
    else:
        weigh = torch.numel if kind == "mean over numbers" else num_examples
    return Measured((weigh, kind == "sum"), kind, state["known"], state["numbers"])


@dataclass
class _Split:
    """A batch in two parts, and the losses of the whole and of the parts."""

    first: Tensor
    second: Tensor
    whole: float
    one: float
    other: float

    def explained(self, weigh: Callable[[Any], Any], batch: _Batch) -> bool:
        """Whether the mean weighted so is the whole's loss."""
        w, v = (float(weigh(batch.targets_of(rows))) for rows in (self.first, self.second))
        if w + v <= 0:
            return False
        # A part that counts nothing has loss 0/0 and adds nothing.
        mean = sum(x * y for x, y in ((w, self.one), (v, self.other)) if x) / (w + v)
        return batch.same(mean, self.whole)


class _Batch:
    """The criterion on rows of one batch, its random numbers the same at each call."""

    def __init__(self, criterion: Criterion, outputs: Any, targets: Any) -> None:
        self.criterion, self.outputs, self.targets = criterion, outputs, targets
        self.num = num_examples(targets)
        floating = [t.dtype for t in nested.tensors_in(outputs) if t.is_floating_point()]
        self.close = CLOSE.get(floating[0] if floating else torch.float32, 1e-4)
        on_cpu = all(tensor.is_cpu for tensor in nested.tensors_in(outputs))
        self.generator = torch.default_generator if on_cpu else torch
        """torch.manual_seed() takes 1 ms of this: it notes down the stack, for each accelerator."""
        self.careful = not on_cpu
        """Try only targets that the batch holds, since others may cost the process its device."""

    def rows_of(self, value: Any, rows: Tensor) -> Any:
        def take(leaf: Any) -> Any:
            if isinstance(leaf, Tensor) and leaf.dim() and len(leaf) == self.num:
                return leaf.detach()[rows.to(leaf.device)]
            return leaf

        return nested.mapped(take, value)

    def targets_of(self, rows: Tensor) -> Any:
        return self.rows_of(self.targets, rows)

    def loss(self, rows: Tensor, targets: Any = None) -> float:
        """The criterion on some rows; nan where it cannot be computed."""
        targets = self.targets_of(rows) if targets is None else targets
        try:
            with torch.no_grad(), undisturbed():
                self.generator.manual_seed(0)  # a criterion may draw: the same in each call
                return float(self.criterion(self.rows_of(self.outputs, rows), targets))
        except Exception:  # the real call says what is wrong; here it is only a guess that fails
            return float("nan")

    def same(self, one: float, other: float) -> bool:
        scale = max(abs(one), abs(other), NO_UNIT)
        return abs(one - other) <= self.close * scale


def measure(criterion: Criterion, seen: list[tuple[Any, Any]]) -> Measured | None:
    """Measure how a criterion weights, from outputs and targets of the first batches.

    Args:
        criterion: Called a few times on parts of them; its buffers and all random number generators
            are restored.
        seen: Outputs and targets of one or more batches.

    Returns:
        None if there are fewer than two examples to compare.
    """
    if hasattr(criterion, "weight_of"):
        return Measured(weighing(criterion), "as its weight_of says")
    device = next((t.device for t in nested.tensors_in(seen) if not t.is_cpu), None)
    if device is not None and (there := _on_the_cpu(criterion, seen)) is not None:
        measured = _measured(*there)
        if measured is None or measured.known or measured.numbers:
            return measured and measured_there(criterion, measured.state_dict(), device)
    plain = isinstance(criterion, (types.FunctionType, types.BuiltinFunctionType))
    with nullcontext() if plain else kept(criterion):
        return _measured(criterion, seen)


def _on_the_cpu(
    criterion: Criterion, seen: list[tuple[Any, Any]]
) -> tuple[Criterion, list[tuple[Any, Any]]] | None:
    """Copies of both there; None where the criterion holds tensors elsewhere that do not follow."""
    if isinstance(criterion, nn.Module):
        try:
            criterion = copy.deepcopy(criterion).cpu()
        except Exception:  # what cannot be copied says so in its own way
            return None
    elif isinstance(criterion, partial):
        words = {name: _as_on_the_cpu(value) for name, value in criterion.keywords.items()}
        criterion = partial(criterion.func, *map(_as_on_the_cpu, criterion.args), **words)
    if any(isinstance(thing, Tensor) and not thing.is_cpu for thing in _held(criterion)):
        return None
    return criterion, [nested.mapped(_as_on_the_cpu, pair) for pair in seen]


def _as_on_the_cpu(leaf: Any) -> Any:
    return leaf.detach().cpu() if isinstance(leaf, Tensor) else leaf


def _measured(criterion: Criterion, seen: list[tuple[Any, Any]]) -> Measured | None:
    try:
        batch = _Batch(criterion, *map(_joined, zip(*seen, strict=True)))
    except (ValueError, RuntimeError, TypeError):  # batches that cannot be joined
        batch = _Batch(criterion, *seen[-1])
    if batch.num < 2:
        return None
    splits = [split for split in _splits(batch) if split is not None]
    return _found(criterion, batch, splits)


def _found(criterion: Criterion, batch: _Batch, splits: list[_Split]) -> Measured:
    both = [s for s in splits if s.one == s.one and s.other == s.other]
    unlike = [s for s in both if not batch.same(s.one, s.other)]
    if both and all(batch.same(s.one + s.other, s.whole) for s in both) and both[0].whole:
        return Measured((_examples_or_known(criterion), True), "sum")
    for kind, weigh in _candidates(criterion, batch):
        if _explains(weigh, splits, batch) and not _by_chance(weigh, splits, batch):
            return Measured((weigh, False), f"mean over {kind}")
    examples = (num_examples, False)
    if not unlike:
        kind = "mean over examples" if both else "not measured, examples are counted"
        return Measured(examples, kind, known=bool(both))
    s = unlike[0]
    numbers = (
        f"{len(s.first)} examples give a loss of {s.one:.4g}, {len(s.second)} others "
        f"{s.other:.4g}, and all of them together {s.whole:.4g}"
    )
    return Measured(examples, "neither a sum nor a mean", known=False, numbers=numbers)


def _explains(weigh: Callable[[Any], Any], splits: list[_Split], batch: _Batch) -> bool:
    return bool(splits) and all(split.explained(weigh, batch) for split in splits)


def _by_chance(weigh: Callable[[Any], Any], splits: list[_Split], batch: _Batch) -> bool:
    """Whether class weights explain a batch only because its parts weigh as they count.

    That is so of a batch of one class, whatever vector a criterion holds: a count of the classes,
    say. Then the criterion is tried on targets of the heaviest and of the lightest class.
    """
    vector = weigh.args[1] if isinstance(weigh, partial) else None
    if vector is None or not _explains(num_examples, splits, batch):
        return False
    targets = batch.targets.detach().clone()
    classes = targets.unique() if batch.careful else torch.arange(len(vector))
    of_these = vector[classes.long()]
    targets[: batch.num // 2] = int(classes[of_these.argmax()])
    targets[batch.num // 2 :] = int(classes[of_these.argmin()])
    spread = _Batch(batch.criterion, batch.outputs, targets)
    tried = [split for split in _splits(spread) if split is not None]
    return bool(tried) and not _explains(weigh, tried, spread)


def _splits(batch: _Batch) -> Iterator[_Split | None]:
    """The batch cut in two in several ways, of which some set masked targets apart."""
    rows = torch.arange(batch.num)
    whole = batch.loss(rows)
    first = next(nested.tensors_in(batch.targets), None)
    orders = [rows, torch.randperm(batch.num, generator=torch.Generator().manual_seed(0))]
    if first is not None and first.dim() and len(first) == batch.num:
        order = first.detach().cpu().reshape(batch.num, -1).double().sum(1)
        orders.append(order.argsort(stable=True))
    for order in orders:
        cut = max(batch.num // 3, 1)
        one, other = order[:cut], order[cut:]
        split = _Split(one, other, whole, batch.loss(one), batch.loss(other))
        finite = whole == whole and (split.one == split.one or split.other == split.other)
        yield split if finite else None


def _candidates(criterion: Criterion, batch: _Batch) -> Iterator[tuple[str, Callable]]:
    """What the mean may be over, the most particular first."""
    targets = batch.targets
    if isinstance(targets, Tensor) and not targets.is_floating_point() and targets.numel():
        ignored = [USUAL_IGNORED, *_ignored(criterion, batch)]
        vectors = list(_vectors(criterion, targets))
        for ignore_index in dict.fromkeys(reversed(ignored)):
            mask = "" if ignore_index == USUAL_IGNORED else f" (ignore_index {ignore_index})"
            for vector in vectors:
                weigh = partial(unmasked, ignore_index, vector)
                yield f"class weights{mask}", weigh
            yield f"unmasked targets{mask}", partial(unmasked, ignore_index, None)
    if isinstance(targets, Tensor):
        yield "numbers", torch.numel
    yield "examples", num_examples


def _ignored(criterion: Criterion, batch: _Batch) -> list[int]:
    """Values that the criterion holds somewhere and, put into targets, takes for masked."""
    rows = torch.arange(batch.num)
    cut = max(batch.num // 3, 1)
    rest = batch.loss(rows[cut:])
    found = []
    for value in [n for n in _whole_numbers(criterion) if n != USUAL_IGNORED][:MOST_IGNORED]:
        masked = batch.targets.detach().clone()
        if masked.dtype is torch.uint8 and value < 0:
            continue
        if batch.careful and not (masked == value).any():
            continue
        masked[:cut] = value
        if batch.same(batch.loss(rows, masked), rest):
            found.append(value)
    return found


def _whole_numbers(criterion: Criterion) -> Iterator[int]:
    numbers = (n for n in _held(criterion) if isinstance(n, int) and not isinstance(n, bool))
    yield from dict.fromkeys(numbers)


def _vectors(criterion: Criterion, targets: Tensor) -> Iterator[Tensor]:
    """Vectors that could be class weights."""
    for vector in _all_vectors(criterion):
        if len(vector) > int(targets.max()) and (vector >= 0).all():
            yield vector


def _all_vectors(criterion: Criterion) -> Iterator[Tensor]:
    for thing in _held(criterion):
        if isinstance(thing, Tensor) and thing.dim() == 1 and thing.is_floating_point():
            yield thing.detach()


def _held(criterion: Criterion) -> Iterator[Any]:
    """What a criterion holds: attributes, closures, arguments, and globals that it reads."""
    waiting, seen = [criterion], {}
    while waiting and len(seen) < MOST_THINGS:
        thing = waiting.pop(0)
        if id(thing) in seen:
            continue
        seen[id(thing)] = thing
        yield thing
        waiting += inside(thing)
        if isinstance(thing, types.FunctionType):
            code, scope = thing.__code__, thing.__globals__
            waiting += [constant for constant in code.co_consts if isinstance(constant, int)]
            waiting += [scope[name] for name in code.co_names if name in scope]


def _examples_or_known(criterion: Criterion) -> Callable[[Any], Any]:
    """What a sum is divided by when it is reported."""
    for thing in _held(criterion):
        if isinstance(thing, nn.Module) and is_known(thing):
            return weighing(thing)[0]
    return num_examples


def _joined(values: Any) -> Any:
    """Batches as one, tensor by tensor."""
    values = list(values)
    if len(values) == 1:
        return values[0]
    if all(isinstance(value, Tensor) for value in values):
        return torch.cat([value.detach() for value in values])
    if isinstance(values[0], dict):
        return {name: _joined(value[name] for value in values) for name in values[0]}
    if isinstance(values[0], (tuple, list)):
        return [_joined(parts) for parts in zip(*values, strict=True)]
    raise TypeError(f"{type(values[0]).__name__} cannot be joined")
