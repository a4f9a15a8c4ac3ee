"""The accumulation window: how micro-batches are weighted to make the big batch's update.

A mean-reduced criterion divides by what it averaged over: examples, unmasked targets, or the sum of
their class weights. Call that number the micro-batch's weight w. The big batch's loss is then

    loss = (w₁·loss₁ + w₂·loss₂ + ...) / (w₁ + w₂ + ...)

and micro-batch i enters `backward` with the share wᵢ / Σw. Dividing every loss by K instead is the
same only if all K weights are equal: not for a short last micro-batch, a trailing window, masked
targets or class weights. BatchNorm is the documented exception: it sees micro-batches only.

Source: Lecture 3, "Simulating a big batch"; ledger C06, F43, F71.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course.engine.errors import EngineError
from course.state import nested

if TYPE_CHECKING:
    from course.engine.loss_of import Loss

Criterion = Callable[[Tensor, Tensor], Tensor]
Batch = tuple[Tensor, Tensor]
Weight = float | Tensor
Weigher = tuple[Callable[[Tensor], Weight], bool]
"""(function that gives a micro-batch's weight, True if the criterion sums)."""

PER_TARGET = (nn.CrossEntropyLoss, nn.NLLLoss)
PER_ELEMENT = (
    nn.MSELoss,
    nn.L1Loss,
    nn.SmoothL1Loss,
    nn.HuberLoss,
    nn.BCELoss,
    nn.BCEWithLogitsLoss,
)
PER_TARGET_FUNCTIONS = (F.cross_entropy, F.nll_loss)
PER_ELEMENT_FUNCTIONS = (
    F.mse_loss,
    F.l1_loss,
    F.smooth_l1_loss,
    F.huber_loss,
    F.binary_cross_entropy,
    F.binary_cross_entropy_with_logits,
)


def windows(loader: Iterable[Batch], accum_steps: int) -> Iterator[list[Batch]]:
    """Yield up to `accum_steps` micro-batches at a time, including a trailing window with fewer."""
    micro_batches = iter(loader)
    while window := list(islice(micro_batches, accum_steps)):
        yield window


def check_any(micro_batches: Sequence[Batch]) -> None:
    """Check that a step has something to learn from."""
    if not micro_batches:
        raise EngineError("no micro-batches: a step needs at least one pair (inputs, targets).")


def as_pair(batch: Any) -> Batch:
    """Return the batch as (inputs, targets)."""
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        raise EngineError(
            f"a batch is a {type(batch).__name__}"
            + (f" of {len(batch)}" if hasattr(batch, "__len__") else "")
            + ", expected a pair (inputs, targets). Let the dataset or collate_fn return pairs, or "
            "define the loss of such a batch with loss_of=..."
        )
    return batch


@dataclass(slots=True)
class Window:
    """The weight of each micro-batch of one update."""

    weights: list[Weight]
    """What each mean loss was averaged over; a number, or a 0-d tensor on an accelerator."""
    total: Weight
    """Their sum, over all processes: what the big batch's mean would divide by."""
    sums: bool
    """True if the criterion sums instead of averaging: losses enter backward as they are."""
    num_ranks: int = 1
    """Processes that share the window; DistributedDataParallel averages over them."""

    @classmethod
    def of(cls, micro_batches: Sequence[Batch], weighing: Weigher) -> Window:
        """Weight the micro-batches by what the criterion averages over."""
        check_any(micro_batches)
        weigh, sums = weighing
        weights = [weigh(as_pair(batch)[1]) for batch in micro_batches]
        return cls(weights, weights[0] if len(weights) == 1 else sum(weights), sums)

    def shares(self) -> list[Weight]:
        """The factor of each loss before `backward`; they sum to one, unless the criterion sums."""
        return [self.share(index) for index in range(len(self.weights))]

    def share(self, index: int) -> Weight:
        """The factor of one micro-batch's loss."""
        if self.sums:
            return self.num_ranks  # undoes the average over processes
        return self.weights[index] * self.num_ranks / self.total

    def mean(self, entered: Tensor) -> Tensor:
        """The mean loss, from the sum of what entered `backward`; 0 where nothing counts."""
        known = isinstance(self.total, Tensor) or self.total
        return entered / self.total if self.sums and known else entered

    @property
    def counted(self) -> Weight:
        """What this process's mean stands for; over all processes it adds up to the total."""
        return self.total if self.num_ranks == 1 else self.total / self.num_ranks

    def weighted(self, loss: Loss, index: int) -> Tensor:
        """One micro-batch's loss, as it enters `backward`."""
        loss = loss.value
        if len(self.weights) == 1 and self.num_ranks == 1:
            return loss
        if self.sums:
            return loss * self.share(index)
        weight = self.weights[index]  # where all targets are masked, it is 0, and the mean 0/0
        if isinstance(weight, Tensor):  # in a window of nothing else, 0/0 again: it is refused
            return torch.where(weight > 0, loss * self.share(index), 0.0 / self.total)
        if weight:
            return loss * self.share(index)
        nothing = loss.nan_to_num() * 0.0
        return nothing / self.total if isinstance(self.total, Tensor) or self.total else loss

    def counts_nothing(self, index: int) -> bool:
        """Whether all targets of a micro-batch are masked, while the window has others."""
        if len(self.weights) == 1 or self.num_ranks > 1:
            return False
        weight = self.weights[index]
        if isinstance(weight, Tensor) and weight.device.type != "cpu":
            return False  # reading it would block until the GPU is done
        return not weight and bool(self.total)

    def settle_(self, parameters: Iterable[Tensor]) -> None:
        """Nothing left to do: every share was known before its `backward`."""


class OpenWindow:
    """A window whose weights are known only when its losses are.

    Each loss enters `backward` as if all micro-batches had the weight of the first that has one. At
    the end the gradients are multiplied by one factor, which is 1 if that was the case.
    """

    def __init__(
        self,
        num_micro_batches: int,
        weigh: Callable[[Any], Weight],
        *,
        num_ranks: int = 1,
        sum_up: Callable[[Weight], Tensor] | None = None,
    ) -> None:
        self.num, self.weigh = num_micro_batches, weigh
        self.num_ranks, self.sum_up = num_ranks, sum_up
        self.weights: list[Weight] = []
        self.first: Weight = 0.0 if sum_up is None else 1.0  # other processes have other weights
        """The first weight above 0: those before it entered nothing."""
        self.total: Weight = 0.0
        self.sums = False

    def counts_nothing(self, index: int) -> bool:
        """Unknown before the loss is computed."""
        return False

    def weighted(self, loss: Loss, index: int) -> Tensor:
        """One micro-batch's loss, as it enters `backward`; its weight is counted."""
        weight, self.sums = loss.weight, loss.sums
        weight = self.weigh(loss.targets) if weight is None else weight
        if isinstance(weight, Tensor) and weight.device.type == "cpu":
            weight = weight.item()
        if isinstance(self.first, Tensor):
            self.first = torch.where(self.first > 0, self.first, weight)
        else:
            self.first = self.first or weight
        self.weights.append(weight)
        if self.sums:
            return loss.value * self.num_ranks if self.num_ranks > 1 else loss.value
        if isinstance(weight, Tensor):
            return torch.where(weight > 0, loss.value * (weight / self.unit), 0.0)
        if weight == self.unit:
            return loss.value
        return loss.value * (weight / self.unit) if weight else loss.value.nan_to_num() * 0.0

    @property
    def unit(self) -> Weight:
        """The assumed weight of all micro-batches together."""
        return self.num * _above_0(self.first)

    @property
    def _of_total(self) -> Weight:
        """The assumed weight as a multiple of the true one."""
        return self.unit / _above_0(self.total)

    def settle_(self, parameters: Iterable[Tensor]) -> None:
        """Divide the gradients by the window's true weight."""
        self.total = sum(self.weights)
        if self.sum_up is not None:
            self.total = self.sum_up(self.total)
        if self.sums:
            return
        if not isinstance(self.total, Tensor) and not self.total:
            return  # nothing to learn from: the gradients are 0
        factor = self.num_ranks * self._of_total if self.num > 1 or self.sum_up else 1.0
        if not isinstance(factor, Tensor) and factor == 1:
            return
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.mul_(factor)

    def mean(self, entered: Tensor) -> Tensor:
        """The mean loss, from the sum of what entered `backward`."""
        if not isinstance(self.total, Tensor) and not self.total:
            return entered
        return entered / self.total if self.sums else entered * self._of_total

    @property
    def counted(self) -> Weight:
        """What this process's mean stands for; over all processes it adds up to the total."""
        return self.total if self.num_ranks == 1 else self.total / self.num_ranks


def _above_0(weight: Weight) -> Weight:
    """A weight by which may be divided; a tensor is not read."""
    return weight.clamp(min=1e-9) if isinstance(weight, Tensor) else weight or 1.0


def weighing(criterion: Criterion) -> Weigher:
    """How `criterion` weights a micro-batch's targets, and whether it sums instead of averaging.

    torch's losses are known, as modules, as functions and under `functools.partial`. A criterion
    with a method `weight_of(targets)` gives its weight itself. Any other is assumed to average over
    examples, unless `course.engine.weighing` measures it.
    """
    if type(criterion) is nn.CrossEntropyLoss and criterion.reduction == "mean":  # the hot path
        return partial(unmasked, criterion.ignore_index, criterion.weight), False
    options, _ = _options(criterion)
    reduction = options.get("reduction", "mean")
    if reduction == "none" and is_known(criterion):  # a class built on one may take the mean itself
        raise EngineError(
            "criterion has reduction='none', so it returns one loss per example, but backward "
            "needs one number. Use reduction='mean'."
        )
    if own := getattr(criterion, "weight_of", None):
        weigh = own
    elif averages_targets(criterion):
        weigh = partial(unmasked, ignored_index(criterion), options.get("weight"))
    else:
        weigh = torch.numel if averages_elements(criterion) else num_examples
    return weigh, reduction == "sum"


def weighing_all(criterion: Criterion, every_target: Tensor | None) -> Weigher:
    """`weighing`, but simpler if all targets are known and none is masked."""
    weigh, sums = weighing(criterion)
    options = _options(criterion)[0]
    if (
        every_target is not None
        and averages_targets(criterion)
        and not hasattr(criterion, "weight_of")
        and options.get("weight") is None
        and not every_target.is_floating_point()
        and not (every_target == ignored_index(criterion)).any()
    ):
        return torch.numel, sums
    return weigh, sums


def is_known(criterion: Criterion) -> bool:
    """Whether `weighing` knows how this criterion weights: torch's own, or one with `weight_of`."""
    if hasattr(criterion, "weight_of") or type(criterion) in (*PER_TARGET, *PER_ELEMENT):
        return True
    if isinstance(criterion, partial):
        return (
            not criterion.args
            and not isinstance(criterion.func, nn.Module)
            and is_known(criterion.func)
        )
    return any(criterion is known for known in (*PER_TARGET_FUNCTIONS, *PER_ELEMENT_FUNCTIONS))


def averages_targets(criterion: Criterion) -> bool:
    """Whether this is cross-entropy or negative log-likelihood: targets are classes."""
    return isinstance(criterion, PER_TARGET) or _options(criterion)[1] in PER_TARGET_FUNCTIONS


def averages_elements(criterion: Criterion) -> bool:
    """Whether this compares outputs and targets number by number, as MSE does."""
    return isinstance(criterion, PER_ELEMENT) or _options(criterion)[1] in PER_ELEMENT_FUNCTIONS


def ignored_index(criterion: Criterion) -> int:
    """The class that does not count; -100 if the criterion does not name one."""
    return _options(criterion)[0].get("ignore_index", -100)


def _options(criterion: Criterion) -> tuple[dict, object]:
    if isinstance(criterion, partial):
        inner, function = _options(criterion.func)
        return inner | criterion.keywords, function
    names = ("reduction", "ignore_index", "weight")
    said = {name: getattr(criterion, name) for name in names if hasattr(criterion, name)}
    return said, None if isinstance(criterion, nn.Module) else criterion


def num_examples(targets: Any) -> int:
    """How many examples these targets are for.

    Raises:
        EngineError: They hold nothing that can be counted.
    """
    if isinstance(targets, Tensor) and targets.dim():
        return len(targets)
    found = nested.num_examples(targets)
    if found is None:
        raise EngineError(
            f"targets are {targets!r:.60}: they hold no tensor, so their examples cannot be "
            "counted. Let the dataset return targets, e.g. the inputs again for an autoencoder."
        )
    return found


def unmasked(ignore_index: int, class_weights: Tensor | None, targets: Tensor) -> Weight:
    """Number of targets that count, or the sum of their class weights."""
    try:
        are_shares = targets.is_floating_point()
    except AttributeError:
        raise EngineError(
            f"targets are a {type(targets).__name__}, expected a tensor. Let the loader make "
            "tensors: DataLoader(...), or torch.from_numpy(array)."
        ) from None
    if are_shares:  # class probabilities [B, C, ...]: nothing is masked
        return targets.numel() / targets.shape[1] if targets.ndim > 1 else 1.0
    if targets.dtype is torch.uint8:  # as an index it would be a mask, and -100 would wrap to 156
        targets = targets.long()
    if class_weights is not None:
        targets = targets.to(class_weights.device, non_blocking=True)
        kept = targets != ignore_index
        return (class_weights[targets.where(kept, 0)] * kept).sum()
    if targets.device.type != "cpu":
        return (targets != ignore_index).sum()  # stays there: a number would wait for it
    if ignore_index < 0 and targets.numel() and targets.min().item() >= 0:
        return targets.numel()  # nothing masked: three times as fast as to count
    return (targets != ignore_index).sum().item()
