"""Evaluation: the three switches (eval mode, no graph, no step) and exact means.

Every batch counts for what it holds: the loss is divided by what the criterion averages over
(examples, unmasked targets, their class weights), never by the number of batches. The model comes
back in the mode in which it came, module by module: a BatchNorm frozen in eval stays so.

Source: the training-loop chapter, "Evaluation"; ledger C03-C05, N55, F125, F127.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from course.engine.batches import is_sharded
from course.engine.distributed import summed
from course.engine.errors import EngineError
from course.engine.placement import check_device, to_device
from course.engine.window import Batch, Criterion, ignored_index, num_examples, weighing


def evaluate(
    model: nn.Module,
    loader: Iterable[Batch],
    criterion: Criterion,
    *,
    device: torch.device | str | None = None,
    metrics: Mapping[str, Any] | None = None,
) -> dict[str, float]:
    """Mean loss and accuracy over all examples of `loader`.

    Args:
        model: In any mode; each module's mode is restored, also after an exception.
        loader: Pairs of inputs [B, ...] and targets.
        criterion: Loss of model outputs and targets, mean- or sum-reduced.
        device: Where to compute; the model's own by default.
        metrics: More numbers, by name: an object with `update(outputs, targets)` and `compute()`
            (torchmetrics), or a function of outputs and targets that gives a value an example [B]
            or their mean.

    Returns:
        `loss` (mean over what the criterion averages over), `accuracy` where targets are classes,
        `num_examples`, then `metrics`.

    Raises:
        EngineError: The loader gives no batch.

    Source: the training-loop chapter, "Evaluation".
    """
    device = check_device(model, device)
    tally = Tally(criterion, device, metrics or {}, shared=is_sharded(loader))
    with evaluation_mode(model):
        for inputs, targets in to_device(loader, device):
            outputs = model(inputs)
            tally.add(outputs, targets, criterion(outputs, targets))
    return tally.result()


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Eval mode and no graph inside; afterwards every module is in its own mode again."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training  # not train(): it would flip frozen children


class Tally:
    """Sums on the device, read once at the end."""

    def __init__(
        self,
        criterion: Criterion,
        device: torch.device,
        metrics: Mapping[str, Any],
        *,
        shared: bool = False,
    ) -> None:
        self.device, self.shared = device, shared
        self.weigh, self.sums = weighing(criterion)
        self.ignore_index = ignored_index(criterion)
        self.binary = isinstance(criterion, nn.BCEWithLogitsLoss)
        self.loss = self.weight = self.correct = self.counted = torch.zeros((), device=device)
        self.num_examples = 0
        self.metrics = dict(metrics)
        self.metric_sums: dict[str, Tensor] = {}
        for metric in self.metrics.values():
            if hasattr(metric, "reset"):
                metric.reset()

    def add(self, outputs: Tensor, targets: Tensor, loss: Tensor) -> None:
        """Count one batch."""
        weight = self.weigh(targets)
        loss_sum = loss.double() if self.sums else loss.double() * weight
        # A batch whose targets are all masked has loss 0/0 and counts nothing.
        self.loss = self.loss + torch.where(torch.as_tensor(weight) > 0, loss_sum, 0.0)
        self.weight = self.weight + weight
        self.num_examples += num_examples(targets)
        if (right := self._right(outputs, targets)) is not None:
            self.correct = self.correct + right.sum()
            self.counted = self.counted + (targets.long() != self.ignore_index).sum()
        for name, metric in self.metrics.items():
            if hasattr(metric, "update"):
                metric.update(outputs, targets)
            else:
                value = torch.as_tensor(metric(outputs, targets)).double()
                value = value * len(targets) if value.ndim == 0 else value.sum()
                self.metric_sums[name] = self.metric_sums.get(name, 0.0) + value

    def _right(self, outputs: Tensor, targets: Tensor) -> Tensor | None:
        """Which targets are hit; None where targets are no classes."""
        if not (isinstance(outputs, Tensor) and isinstance(targets, Tensor)):
            return None
        if self.binary and outputs.shape == targets.shape:
            return (outputs > 0) == (targets > 0.5)
        if targets.is_floating_point() or outputs.ndim != targets.ndim + 1:
            return None
        return outputs.argmax(dim=1) == targets

    def result(self) -> dict[str, float]:
        """The means, as Python numbers; over all processes, where each has its own share."""
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
                "the loader gives no batch: there is nothing to evaluate. Is the data set empty, "
                "or drop_last=True with fewer examples than a batch?"
            )
        if not sums["weight"]:
            raise EngineError(
                "no target counts: all of them are masked by the criterion's ignore_index, or all "
                "their class weights are 0. There is no mean to give."
            )
        result = {"loss": sums["loss"] / sums["weight"]}
        if sums["counted"]:
            result["accuracy"] = sums["correct"] / sums["counted"]
        result["num_examples"] = int(sums["num_examples"])
        for name, metric in self.metrics.items():
            if hasattr(metric, "compute"):
                result[name] = float(metric.compute())
            else:
                result[name] = sums[f"metric {name}"] / sums["num_examples"]
        return result
