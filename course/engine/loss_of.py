"""What one batch costs: the one seam between the loop and the user's data, models and losses.

    loss_of(model, batch) -> Loss(value, weight, outputs, targets)

A batch is whatever the loader gives. By default it is a pair and costs
`criterion(model(inputs), targets)`. Anything else is a function of yours, handed to `Trainer`,
`train_step`, `evaluate`, `lr_find`, `climb` and `diagnose` alike as `loss_of=`:

    def vae_loss(model, batch):
        images, _ = batch
        decoded, mean, log_var = model(images)
        total = squared_error(decoded, images) + divergence(mean, log_var)    # sums over the batch
        return Loss(total / len(images), len(images), decoded, images)

An object may carry state from batch to batch, such as a recurrent net's hidden state. It is called
like the function and may have
    start_pass()                       called before a training epoch and before a validation
    state_dict(), load_state_dict()    what a checkpoint holds; put back after each validation

Source: the training-loop chapter, "One step"; ledger C01, C06, F07.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from course.engine.errors import EngineError
from course.engine.weighing import Measured, measure
from course.engine.window import (
    Criterion,
    Weight,
    as_pair,
    is_known,
    num_examples,
    weighing,
    weighing_all,
)
from course.state import nested


class Loss(NamedTuple):
    """What a batch costs, and what the rest of the loop needs to know of it."""

    value: Tensor
    """The loss that `backward` starts from, one number: the mean over what `weight` counts."""
    weight: Weight | None = None
    """What the mean was divided by: examples, or unmasked targets; None counts the examples."""
    outputs: Any = None
    """What accuracy and metrics look at; None where there is nothing to compare."""
    targets: Any = None
    """Likewise."""
    sums: bool = False
    """The value is a sum over what `weight` counts, and meant as one: it enters `backward` so."""


LossOf = Callable[[nn.Module, Any], Loss]


def as_loss_of(
    criterion: Criterion | None, loss_of: LossOf | None, all_targets: Tensor | None = None
) -> PairLoss | OwnLoss:
    """The seam from what the user handed over: a criterion, or a `loss_of`.

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
            "criterion and loss_of are both given, and each says what a batch costs. "
            "Leave one out; with loss_of, use the criterion inside it."
        )
    if criterion is None and loss_of is None:
        raise EngineError(
            "neither criterion nor loss_of is given. For batches of (inputs, targets) give a "
            "criterion such as nn.CrossEntropyLoss(), for any other a function loss_of(model, "
            "batch)."
        )
    name, value = ("criterion", criterion) if loss_of is None else ("loss_of", loss_of)
    check_callable(name, value)
    return PairLoss(criterion, all_targets) if loss_of is None else OwnLoss(loss_of)


def check_callable(name: str, value: Any) -> None:
    """A criterion or `loss_of` must be an object that can be called, not a class.

    Raises:
        EngineError: With what it is instead.
    """
    if isinstance(value, type):
        raise EngineError(f"{name} is the class {value.__name__}. Make one: {value.__name__}().")
    if isinstance(value, torch.optim.Optimizer):
        raise EngineError(
            f"{name} is an optimizer ({type(value).__name__}). The order is model, criterion, "
            "optimizer; with loss_of, name both: optimizer=..., loss_of=..."
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
    """What both kinds of `loss_of` have."""

    check: Callable[[Any, Any], None] | None = None
    """Looks at outputs and targets before the criterion does; only at the first training batch."""
    takes_gradients = False
    """The loss differentiates by itself, so that it needs a graph in validation too."""


class PairLoss(Seam):
    """`criterion(model(inputs), targets)` of a pair.

    How the criterion weighs a batch is read off torch's own losses. Any other criterion is measured
    on the first batch: the loss of the whole is compared with those of its parts.
    """

    def __init__(self, criterion: Criterion, all_targets: Tensor | None = None) -> None:
        self.criterion = criterion
        self.measured: Measured | None = None
        """What was found out about a criterion that is not torch's own; None before."""
        self.weigher = weighing_all(criterion, all_targets) if is_known(criterion) else None
        """(function that gives a batch's weight, True if the criterion sums); None before."""
        self._seen: list[tuple[Any, Any]] = []
        self._unlike = not is_known(criterion)
        """No outputs and targets of unlike shapes were compared yet, which torch only warns of."""

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
            self.look_at(outputs, targets)
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
                    "criterion would broadcast them against each other, each output compared with "
                    "each target. Use outputs.squeeze(-1) or targets.unsqueeze(-1)."
                ) from None

    def look_at(self, outputs: Any, targets: Any) -> None:
        """Measure the weighing as soon as there are two examples to compare."""
        self._seen.append((outputs, targets))
        measured = measure(self.criterion, self._seen)
        if measured is not None:
            self.measured, self.weigher, self._seen = measured, measured.weigher, []
        else:
            self._seen = self._seen[-3:]

    def weight(self, targets: Any) -> Weight:
        """What a batch with these targets weighs, as far as that is known."""
        weigh, _ = self.weigher or weighing(self.criterion)
        return weigh(targets)


class OwnLoss(Seam):
    """A `loss_of` of the user's own; what it returns is checked."""

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
            loss = loss._replace(weight=examples_in(loss, batch))
        return loss

    def weight(self, targets: Any) -> Weight:
        """Never asked: each loss comes with its weight."""
        return num_examples(targets)

    def __getattr__(self, name: str) -> Any:
        if name in ("start_pass", "state_dict", "load_state_dict"):
            return getattr(self.function, name)
        raise AttributeError(name)


def examples_in(loss: Loss, batch: Any) -> int:
    """How many examples a batch holds, by its targets, else by the first tensor in it."""
    if loss.targets is not None:
        return num_examples(loss.targets)
    found = nested.num_examples(batch)
    if found is None:
        raise EngineError(
            f"a batch is a {type(batch).__name__} without a tensor, so its examples cannot be "
            "counted. Say the weight: Loss(value, weight=number of examples)."
        )
    return found


def shape_of(value: Any) -> Any:
    """The shape of a tensor, or the kind of anything else."""
    return list(value.shape) if isinstance(value, Tensor) else type(value).__name__


def check_number(value: Any, who: str) -> None:
    """A loss must be one number, as a tensor.

    Raises:
        EngineError: With its shape or type.
    """
    if not isinstance(value, Tensor) or value.numel() != 1:
        shape = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise EngineError(f"{who} gave {shape}, expected a single number. Use reduction='mean'.")


def check_value(value: Any) -> None:
    """A loss must be one number with a graph.

    Raises:
        EngineError: With its shape, or what is missing.
    """
    check_number(value, "the criterion")
    if not value.requires_grad:
        raise EngineError(
            "the loss has no graph: nothing that it is computed from requires a gradient. "
            "Is everything frozen, or is there a detach(), .item() or no_grad() in the model?"
        )
