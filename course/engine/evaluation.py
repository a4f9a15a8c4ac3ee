"""Evaluation: three switches (eval mode, no graph, no step) and exact means.

Every batch counts according to what it holds: the loss is divided by what the criterion averages
over (examples, unmasked targets, their class weights), never by the number of batches. Every module
is returned to the mode it was in: a BatchNorm frozen in eval mode stays that way.

Source: the training-loop chapter, "Evaluation"; ledger C03-C05, N55, F125, F127.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from course.engine.batches import is_sharded
from course.engine.distributed import summed
from course.engine.errors import EngineError
from course.engine.loss_of import Loss, LossOf, OwnLoss, PairLoss, as_loss_of
from course.engine.placement import check_device, widest_float
from course.engine.preflight import check_shapes
from course.engine.window import (
    Batch,
    Criterion,
    averages_elements,
    is_known,
    num_examples,
)
from course.state import evaluation_mode, moved, nested, undisturbed

TAKEN = ("loss", "accuracy", "num_examples")
"""Names that metrics may not have, since they would overwrite these numbers."""
NEEDS_A_GRAPH = ("does not require grad", "does not have a grad_fn")
"""What torch says where a gradient is asked for and no graph was built."""


def evaluate(
    model: nn.Module,
    loader: Iterable[Batch],
    criterion: Criterion | None = None,
    *,
    loss_of: LossOf | None = None,
    device: torch.device | str | None = None,
    metrics: Mapping[str, Any] | None = None,
) -> dict[str, float]:
    """Mean loss and accuracy over all examples of `loader`.

    Args:
        model: In any mode; each module's mode is restored, also after an exception.
        loader: Pairs of inputs [B, ...] and targets, or what `loss_of` takes.
        criterion: Loss of model outputs and targets, mean- or sum-reduced.
        loss_of: In place of `criterion`: a function of (model, batch) that returns a `Loss`. If it
            differentiates itself (a gradient penalty), it gets a graph, and a warning says so.
        device: Where to compute; the model's own by default. It is computed in the weights' own
            precision: validation of a run in bf16 or fp16 is in fp32.
        metrics: More numbers, by name: an object with `update(outputs, targets)` and `compute()`
            (torchmetrics), or a function of outputs and targets that returns a value per example
            [B] or their mean. Only these two: values per token or per class are refused. Where each
            process has its own share, an object sees that share alone, unless its `compute()`
            gathers the others', as torchmetrics' do.

    Returns:
        `loss` (mean over what the criterion averages over), `accuracy` if targets are classes (over
        those that the criterion does not ignore), `num_examples`, then `metrics`.

    Raises:
        EngineError: The loader yields no batch, a metric's name is already taken, a metric returns
            something else, or one of torch's losses would broadcast outputs and targets against
            each other. A formula of your own that broadcasts is not seen here; `diagnose` finds it.

    Source: the training-loop chapter, "Evaluation".
    """
    loss_of = as_loss_of(criterion, loss_of)
    device = check_device(model, device)
    tally = Tally(loss_of, device, metrics or {}, shared=is_sharded(loader))
    done = 0
    with evaluation_mode(model), _passing(loss_of):
        try:
            for batch in loader:
                batch = moved(batch, device)
                tally.add(batch, _cost(loss_of, model, batch))
                done += 1
        except Exception as error:
            error.add_note(f"batch {done} (from 0) of the pass")
            raise
    return tally.result()


@contextmanager
def _passing(loss_of: PairLoss | OwnLoss) -> Iterator[None]:
    """One pass of a `loss_of` that carries state: begun afresh, and afterwards put back."""
    kept = loss_of.state_dict() if hasattr(loss_of, "state_dict") else None
    if hasattr(loss_of, "start_pass"):
        loss_of.start_pass()
    try:
        yield
    finally:
        if kept is not None:
            loss_of.load_state_dict(kept)


def _cost(loss_of: PairLoss | OwnLoss, model: nn.Module, batch: Any) -> Loss:
    """What a batch costs, without a graph; with one where the loss itself takes gradients."""
    if getattr(loss_of, "takes_gradients", False):
        with torch.enable_grad():
            return _detached(loss_of(model, batch))
    try:
        return loss_of(model, batch)
    except RuntimeError as error:
        if not any(words in str(error) for words in NEEDS_A_GRAPH):
            raise
    with torch.enable_grad():
        cost = _detached(loss_of(model, batch))
    loss_of.takes_gradients = True
    warnings.warn(
        "this loss itself computes gradients, so validation builds graphs too, which takes more "
        "time and memory.",
        stacklevel=4,
    )
    return cost


def _detached(cost: Loss) -> Loss:
    return cost._replace(
        value=cost.value.detach(),
        outputs=nested.mapped(lambda x: x.detach() if isinstance(x, Tensor) else x, cost.outputs),
    )


class Tally:
    """Sums that stay on the device and are read once, at the end."""

    def __init__(
        self,
        loss_of: PairLoss | OwnLoss,
        device: torch.device,
        metrics: Mapping[str, Any],
        *,
        shared: bool = False,
    ) -> None:
        self.device, self.shared = device, shared
        self.loss_of, self.criterion = loss_of, loss_of.criterion
        self.binary = isinstance(self.criterion, nn.BCEWithLogitsLoss)
        self.loss = self.weight = self.correct = self.counted = torch.zeros((), device=device)
        self.num_examples = 0
        self.class_dim: int | None = None
        self.metrics = dict(metrics)
        self.metric_sums: dict[str, Tensor] = {}
        for name, metric in self.metrics.items():
            if name in TAKEN:
                raise EngineError(
                    f"a metric is called {name!r}, which would overwrite the {name} that is always "
                    f"measured. Call it {'my_' + name!r}."
                )
            both = hasattr(metric, "update") and hasattr(metric, "compute")
            usable = both if hasattr(metric, "update") else callable(metric)
            if isinstance(metric, type) or not usable:
                raise EngineError(
                    f"metric {name!r} is {metric!r:.60}: expected a function of (outputs, targets) "
                    "or an object with update() and compute(), as in torchmetrics."
                )
            if hasattr(metric, "reset"):
                metric.reset()

    def add(self, batch: Any, cost: Loss) -> None:
        """Count one batch."""
        outputs, targets, loss = cost.outputs, cost.targets, cost.value.detach()
        if not self.num_examples:
            self._look_at_first(outputs, targets)
        weight = self.loss_of.weight(targets) if cost.weight is None else cost.weight
        loss_sum = loss.to(widest_float(loss.device)) * (1 if cost.sums else weight)
        # A batch whose targets are all masked has loss 0/0 and counts nothing.
        self.loss = self.loss + torch.where(torch.as_tensor(weight) > 0, loss_sum, 0.0)
        self.weight = self.weight + weight
        num = num_examples(targets) if targets is not None else nested.num_examples(batch) or 1
        self.num_examples += num
        if (right := self._right(outputs, targets)) is not None:
            counts = targets.long() != self.loss_of.ignore_index
            self.correct = self.correct + (right & counts).sum()
            self.counted = self.counted + counts.sum()
        for name, metric in self.metrics.items():
            if hasattr(metric, "update"):
                metric.update(outputs, targets)
            else:
                value = _in_sum(name, metric(outputs, targets), num)
                self.metric_sums[name] = self.metric_sums.get(name, 0.0) + value

    def _look_at_first(self, outputs: Any, targets: Any) -> None:
        """Where the classes are, and whether outputs and targets would be broadcast."""
        if not (isinstance(outputs, Tensor) and isinstance(targets, Tensor)):
            return
        if averages_elements(self.criterion):
            check_shapes(outputs, targets)
        if not targets.is_floating_point():
            self.class_dim = class_dim(outputs, targets, self.criterion)

    def _right(self, outputs: Tensor, targets: Tensor) -> Tensor | None:
        """Which predictions are right, per target; None if the targets are not classes."""
        if not (isinstance(outputs, Tensor) and isinstance(targets, Tensor)):
            return None
        if self.binary and outputs.shape == targets.shape:
            return (outputs > 0) == (targets > 0.5)
        if self.class_dim is None:
            return None
        return outputs.argmax(dim=self.class_dim) == targets

    def result(self) -> dict[str, float]:
        """The means, as Python numbers; over all processes, if each has its own share. What an
        object with update() and compute() has seen is its own matter."""
        sums = {
            "loss": float(self.loss),
            "weight": float(self.weight),
            "correct": float(self.correct),
            "counted": float(self.counted),
            "num_examples": float(self.num_examples),
            **{f"metric {name}": float(value) for name, value in self.metric_sums.items()},
        }
        if self.shared:
            sums = summed(sums, self.device)
        if not sums["num_examples"]:
            raise EngineError(
                "the loader yields no batch: there is nothing to evaluate. Is the data set empty, "
                "or is drop_last=True with fewer examples than a batch?"
            )
        if not sums["weight"]:
            raise EngineError(
                "no target counts: all of them are masked by the criterion's ignore_index, or all "
                "their class weights are 0, so there is no mean."
            )
        result = {"loss": sums["loss"] / sums["weight"]}
        if sums["counted"]:
            result["accuracy"] = sums["correct"] / sums["counted"]
        result["num_examples"] = int(sums["num_examples"])
        for name, metric in self.metrics.items():
            if hasattr(metric, "compute"):
                result[name] = _one_number(name, metric.compute())
            else:
                result[name] = sums[f"metric {name}"] / sums["num_examples"]
        return result


def _in_sum(name: str, value: Any, num: int) -> Tensor:
    """A metric's contribution to its sum over examples."""
    try:
        value = torch.as_tensor(value)
        value = value.to(widest_float(value.device))
        shape = str(list(value.shape))
    except (TypeError, ValueError, RuntimeError):
        shape = f"{value!r:.60}"
    else:
        if not value.ndim:
            return value * num
        if len(value) == value.numel() == num:
            return value.sum()
    raise EngineError(
        f"metric {name!r} returned {shape} for {num} examples: expected one value per example, "
        f"[{num}], or their mean. Values per token or per class: take their mean, or give an "
        "object with update() and compute()."
    )


def _one_number(name: str, value: Any) -> float:
    """What an object's `compute()` returned."""
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        shape = list(value.shape) if isinstance(value, Tensor) else f"{value!r:.60}"
        raise EngineError(
            f"metric {name!r}: compute() returned {shape}, expected one number."
        ) from None


def class_dim(outputs: Tensor, targets: Tensor, criterion: Any) -> int | None:
    """The dimension of `outputs` that holds one score per class; None if none fits.

    torch's losses take [B, C, ...]. A language model returns [B, T, V], and its author's criterion
    flattens that. If both would fit, because T = V, the criterion decides: adding one number to all
    scores of a prediction does not change its softmax.
    """
    if outputs.ndim != targets.ndim + 1:
        return None
    fits = [
        dim
        for dim in dict.fromkeys((1, outputs.ndim - 1))
        if outputs.shape[:dim] + outputs.shape[dim + 1 :] == targets.shape
    ]
    if len(fits) < 2 or is_known(criterion):
        return fits[0] if fits else None
    for dim in fits:
        raised = outputs + torch.randn_like(outputs.narrow(dim, 0, 1), generator=_own(outputs))
        try:
            with torch.no_grad(), undisturbed():
                pair = [float(criterion(out, targets)) for out in (outputs, raised)]
        except Exception:  # a loss_of cannot be asked
            return None
        if abs(pair[0] - pair[1]) <= 1e-3 * max(abs(pair[0]), 1e-3):
            return dim
    return None


def _own(tensor: Tensor) -> torch.Generator:
    return torch.Generator(tensor.device).manual_seed(0)
