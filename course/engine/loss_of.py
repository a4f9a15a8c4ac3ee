"""The loss of one batch: the one interface between the loop and the user's data, models and losses.

    loss_of(model, batch) -> Loss(value, weight, outputs, targets)

A batch is whatever the loader yields. By default it is a pair, and its loss is
`criterion(model(inputs), targets)`. For anything else, write a function and pass it to `Trainer`,
`train_step`, `evaluate`, `lr_find`, `climb` or `diagnose` as `loss_of=`:

    def vae_loss(model, batch):
        images, _ = batch
        decoded, mean, log_var = model(images)
        total = squared_error(decoded, images) + divergence(mean, log_var)    # sums over the batch
        return Loss(total / len(images), len(images), decoded, images)

With several processes, `model` is in a wrapper that averages the gradients: call it as a whole,
`model(...)`, not parts of it such as `model.head(...)`.

An object may carry state from batch to batch, such as a recurrent net's hidden state. It is called
like the function and may have the methods

    start_pass()                       called before a training epoch and before a validation
    state_dict(), load_state_dict()    saved in checkpoints; restored after each validation

Source: the training-loop chapter, "One step"; ledger C01, C06, F07.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from numbers import Real
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from course.engine.errors import EngineError
from course.engine.weighing import Measured, measure
from course.engine.window import (
    Criterion,
    Weigher,
    Weight,
    as_pair,
    ignored_index,
    is_known,
    num_examples,
    unmasked,
    weighing,
    weighing_all,
)
from course.state import nested


class Loss(NamedTuple):
    """The loss of a batch, and what the rest of the loop needs to know about it."""

    value: Tensor
    """The loss on which `backward` is called, one number: the mean over what `weight` counts."""
    weight: Weight | None = None
    """What the mean was divided by: examples, or unmasked targets; None counts the examples, of
    nested lists as `course.state.num_examples` says. 0: a batch from which there is nothing to
    learn; alone in its window, it gives gradients of 0, unless the value is 0/0: divide a masked
    sum by `mask.sum().clamp(min=1)`."""
    outputs: Any = None
    """What accuracy and metrics are computed from; None if there is nothing to compare."""
    targets: Any = None
    """Likewise."""
    sums: bool = False
    """True if the value is intentionally a sum over what `weight` counts: it then enters `backward`
    as it is."""


LossOf = Callable[[nn.Module, Any], Loss]


def as_loss_of(
    criterion: Criterion | None, loss_of: LossOf | None, all_targets: Tensor | None = None
) -> PairLoss | OwnLoss:
    """Make the interface from what the user passed in: a criterion or a `loss_of`.

    Args:
        all_targets: Every target of the data set, if they are known: if none is masked, they need
            not be counted batch by batch.

    Raises:
        EngineError: Both, neither, or something that cannot be called.
    """
    if isinstance(loss_of, (PairLoss, OwnLoss)):
        return loss_of
    if criterion is not None and loss_of is not None:
        raise EngineError(
            "criterion and loss_of are both given, but each defines the loss of a batch. Leave one "
            "out; with loss_of, use the criterion inside it."
        )
    if criterion is None and loss_of is None:
        raise EngineError(
            "neither criterion nor loss_of is given. For batches of (inputs, targets) give a "
            "criterion such as nn.CrossEntropyLoss(), for any other batches a function "
            "loss_of(model, batch)."
        )
    name, value = ("criterion", criterion) if loss_of is None else ("loss_of", loss_of)
    check_callable(name, value)
    return PairLoss(criterion, all_targets) if loss_of is None else OwnLoss(loss_of)


def check_callable(name: str, value: Any) -> None:
    """Check that a criterion or `loss_of` is a callable object, not a class.

    Raises:
        EngineError: It is something else, which the message names.
    """
    if isinstance(value, type):
        raise EngineError(
            f"{name} is the class {value.__name__}. Create an instance: {value.__name__}()."
        )
    if isinstance(value, torch.optim.Optimizer):
        raise EngineError(
            f"{name} is an optimizer ({type(value).__name__}). The order is model, criterion, "
            "optimizer; with loss_of, pass both by name: optimizer=..., loss_of=..."
        )
    if not callable(value):
        raise EngineError(
            f"{name} = {value!r:.80}: it cannot be called. Expected "
            + (
                "a loss such as nn.CrossEntropyLoss()."
                if name == "criterion"
                else "a function of (model, batch)."
            )
        )


class Seam:
    """The base of both kinds of `loss_of`."""

    check: Callable[[Any, Any], None] | None = None
    """Checks outputs and targets before the criterion gets them; only for the first training
    batch."""
    takes_gradients = False
    """True if the loss itself differentiates, so that it needs a graph in validation too."""
    criterion: Any
    weigher: Weigher | None

    @property
    def ignore_index(self) -> int:
        """The class that does not count: measured, as the criterion names it, or else -100."""
        weigh = self.weigher[0] if self.weigher else None
        if isinstance(weigh, partial) and weigh.func is unmasked:
            return weigh.args[0]
        return ignored_index(self.criterion)


class PairLoss(Seam):
    """`criterion(model(inputs), targets)` of a pair.

    How torch's own losses weight a batch is known. Any other criterion is measured on the first
    batch: the loss of the whole is compared with those of its parts.
    """

    def __init__(self, criterion: Criterion, all_targets: Tensor | None = None) -> None:
        self.criterion = criterion
        self.measured: Measured | None = None
        """What was measured of a criterion that is not torch's own; None before that."""
        self.weigher = weighing_all(criterion, all_targets) if is_known(criterion) else None
        """(function that gives a batch's weight, True if the criterion sums); None before."""
        self._seen: list[tuple[Any, Any]] = []
        self._unlike = not is_known(criterion)
        """True until outputs and targets of different shapes have been compared, for which torch
        only warns."""

    def __call__(self, model: nn.Module, batch: Any) -> Loss:
        inputs, targets = as_pair(batch)
        outputs = model(inputs)
        if self.check is not None:
            self.check(outputs, targets)
        if self._unlike:
            value = self._first_value(outputs, targets)
        else:
            value = self.criterion(outputs, targets)
        if self.check is not None:
            check_value(value)
            self.check = None  # looking costs time, on an accelerator a wait
        if self.weigher is None:
            self.look_at(outputs, targets, value)
        sums = self.weigher[1] if self.weigher else False
        return Loss(value, None, outputs, targets, sums)

    def _first_value(self, outputs: Any, targets: Any) -> Tensor:
        """The first loss; shapes that torch would broadcast with a warning are refused."""
        self._unlike = False
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="Using a target size", category=UserWarning)
            try:
                return self.criterion(outputs, targets)
            except UserWarning:
                raise EngineError(
                    f"outputs are {shape_of(outputs)} and targets {shape_of(targets)}: the "
                    "criterion would broadcast them and compare each output with every target. Use "
                    "outputs.squeeze(-1) or targets.unsqueeze(-1)."
                ) from None

    def look_at(self, outputs: Any, targets: Any, value: Tensor) -> None:
        """Measure the weighting as soon as there are two examples to compare, and a loss that is
        finite: nan, as of targets that are all masked, says nothing."""
        if not torch.isfinite(value).all():
            return
        self._seen.append((outputs, targets))
        measured = measure(self.criterion, self._seen)
        if measured is not None:
            self.remember(measured)
            self._seen = []
        else:
            self._seen = self._seen[-3:]

    def remember(self, measured: Measured) -> None:
        """Weight as an earlier process measured, from the first window of a resumed run on."""
        self.measured, self.weigher = measured, measured.weigher

    def weight(self, targets: Any) -> Weight:
        """The weight of a batch with these targets, if it is known."""
        weigh, _ = self.weigher or weighing(self.criterion)
        return weigh(targets)


class OwnLoss(Seam):
    """The user's own `loss_of`; what it returns is checked."""

    weigher = measured = None
    """What a batch weighs is known when its loss is."""

    def __init__(self, function: LossOf) -> None:
        self.function = function
        self.criterion = function
        """For the record, and for a module's parameters."""

    def __call__(self, model: nn.Module, batch: Any) -> Loss:
        loss = self.function(model, batch)
        if isinstance(loss, Tensor):
            loss = Loss(loss)
        if not isinstance(loss, Loss):
            raise EngineError(
                f"loss_of returned a {type(loss).__name__}, expected a Loss. Return "
                "Loss(value, weight, outputs, targets) from course.engine, or the loss alone."
            )
        check_number(loss.value, "loss_of")
        if self.check is not None:
            check_value(loss.value)
            self.check = None
        if loss.weight is None:
            return loss._replace(weight=examples_in(loss, batch))
        check_weight(loss.weight)
        return loss

    def weight(self, targets: Any) -> Weight:
        """Never called: each loss comes with its weight."""
        return num_examples(targets)

    def __getattr__(self, name: str) -> Any:
        if name in ("start_pass", "state_dict", "load_state_dict"):
            return getattr(self.function, name)
        raise AttributeError(name)


def examples_in(loss: Loss, batch: Any) -> int:
    """How many examples a batch holds, from its targets, else from the first tensor in it."""
    if loss.targets is not None:
        return num_examples(loss.targets)
    found = nested.num_examples(batch)
    if found is None:
        raise EngineError(
            f"a batch is a {type(batch).__name__} without a tensor, so its examples cannot be "
            "counted. Give the weight: Loss(value, weight=number of examples)."
        )
    return found


def shape_of(value: Any) -> Any:
    """The shape of a tensor, or the type of anything else."""
    return list(value.shape) if isinstance(value, Tensor) else type(value).__name__


def check_number(value: Any, who: str) -> None:
    """Check that a loss is one number, as a tensor.

    Raises:
        EngineError: With its shape or type.
    """
    if not isinstance(value, Tensor) or value.numel() != 1:
        shape = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise EngineError(
            f"{who} returned {shape}, expected a single number. Use reduction='mean'."
        )


def check_weight(weight: Any) -> None:
    """Check that a weight is one number, 0 or more; on an accelerator it is not read.

    Raises:
        EngineError: With the weight.
    """
    if isinstance(weight, Tensor):
        fits = weight.numel() == 1 and (not weight.is_cpu or bool(weight >= 0))
    else:
        fits = isinstance(weight, Real) and weight >= 0
    if not fits:
        raise EngineError(
            f"loss_of gave the weight {weight!r:.60}: expected what the loss was averaged over, "
            "one number above 0, or 0 for a batch from which there is nothing to learn."
        )


def check_value(value: Any) -> None:
    """Check that a loss is one number with a graph.

    Raises:
        EngineError: With its shape, or what is missing.
    """
    check_number(value, "the criterion")
    if not value.requires_grad:
        raise EngineError(
            "the loss has no graph: nothing it is computed from requires a gradient. Is everything "
            "frozen, or does the model use detach(), .item() or no_grad()?"
        )
