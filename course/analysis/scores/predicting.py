"""A model's predictions for every example of a loader; all scores start from them.

Source: Lecture 3, "Error analysis"; ledger C03.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from course.analysis.checks import names_of_classes
from course.engine.placement import check_device, to_device
from course.state import evaluation_mode


@dataclass(frozen=True)
class Predictions:
    """A model's outputs for all examples, and the targets; on the CPU."""

    logits: Tensor
    """[N, C] float; C = 2 also if the model has one output per example: (0, logit)."""
    targets: Tensor
    """[N] class indices, long."""
    class_names: tuple[str, ...]

    @property
    def num_classes(self) -> int:
        """Number of outputs of the model."""
        return self.logits.shape[1]

    @property
    def probabilities(self) -> Tensor:
        """[N, C] softmax of the logits."""
        return self.logits.softmax(dim=1)

    @property
    def predicted(self) -> Tensor:
        """[N] the class with the largest logit."""
        return self.logits.argmax(dim=1)

    @property
    def confidence(self) -> Tensor:
        """[N] probability of the predicted class."""
        return self.probabilities.amax(dim=1)

    @property
    def right(self) -> Tensor:
        """[N] bool: the predicted class is the target."""
        return self.predicted == self.targets

    @property
    def accuracy(self) -> float:
        """Share of predictions that are right."""
        from sklearn.metrics import accuracy_score

        return float(accuracy_score(self.targets.numpy(), self.predicted.numpy()))

    def __len__(self) -> int:
        return len(self.targets)


def predict(
    model: nn.Module,
    loader: Iterable[tuple[Tensor, Tensor]],
    *,
    device: torch.device | str | None = None,
    class_names: Sequence[str] | None = None,
) -> Predictions:
    """Run the model once over a loader, in eval mode, without a graph.

    Args:
        model: Returns logits [B, C], or one logit per example ([B] or [B, 1]) for two classes. The
            mode of every module is restored.
        loader: Pairs of inputs [B, ...] and class indices [B].
        device: Where to compute; the model's own by default.
        class_names: One per class; the indices by default.

    Raises:
        ValueError: There are no examples, shapes do not fit, targets are outside the classes, or
        logits are nan or inf.

    Source: Lecture 3, "Error analysis"; ledger C03.
    """
    check_parts(model, loader)
    device = check_device(model, device)
    logits, targets = [], []
    with evaluation_mode(model):
        for inputs, batch_targets in to_device(loader, device):
            batch_logits, batch_targets = check_logits(model(inputs), batch_targets, len(targets))
            logits.append(batch_logits)
            targets.append(batch_targets)
    if not targets:
        raise ValueError(
            "the loader yields no batch, so there is nothing to score. Is the data set empty, or "
            "smaller than a batch with drop_last=True?"
        )
    return predictions(torch.cat(logits), torch.cat(targets), class_names=class_names)


def check_parts(model: Any, loader: Any) -> None:
    """Check that the model is a module and that the loader can be iterated.

    Raises:
        ValueError: One of them is something else.
    """
    if not isinstance(model, nn.Module):
        raise ValueError(
            f"model is a {type(model).__name__}: expected an nn.Module. For the outputs of a plain "
            "function use predictions(logits, targets)."
        )
    if not isinstance(loader, Iterable) and not hasattr(loader, "__getitem__"):
        raise ValueError(
            f"loader is a {type(loader).__name__}: expected a DataLoader, or a list of pairs "
            "(inputs, targets)."
        )


def predictions(
    logits: Tensor, targets: Tensor, *, class_names: Sequence[str] | None = None
) -> Predictions:
    """The same from logits that you already have.

    Args:
        logits: [N, C], or [N] or [N, 1] for two classes; a tensor, an array or a list.
        targets: [N] class indices; the same.
        class_names: One per class.

    Raises:
        ValueError: As for `predict`.
    """
    logits, targets = (
        _tensor(name, value) for name, value in (("logits", logits), ("targets", targets))
    )
    if not len(targets):
        raise ValueError(
            f"logits {list(logits.shape)} and targets {list(targets.shape)}: there are no "
            "examples, so there is nothing to score."
        )
    logits, targets = check_logits(logits, targets, 0)
    return Predictions(logits, targets, names_of_classes(class_names, logits.shape[1]))


def _tensor(name: str, value: Any) -> Tensor:
    """The tensor itself, or an array or nested list of numbers converted to one."""
    try:
        tensor = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"{name} = a {type(value).__name__}: expected a tensor, an array or a list of numbers "
            f"({str(error).splitlines()[0]})."
        ) from error
    if tensor.ndim == 0:
        raise ValueError(
            f"{name} = {tensor.item()}: expected one entry per example, not a single number."
        )
    return tensor


def expect_predictions(value: Any) -> Predictions:
    """Check that this is a result of `predict`; the error says how to get one.

    Raises:
        ValueError: It is something else, such as logits or a model.
    """
    if not isinstance(value, Predictions):
        raise ValueError(
            f"predictions = a {type(value).__name__}: expected the result of predict(model, "
            "loader), or of predictions(logits, targets) if you already have the logits."
        )
    return value


def check_logits(logits: Tensor, targets: Tensor, batch: int) -> tuple[Tensor, Tensor]:
    """Logits [B, C] as float and targets [B] as long, both on the CPU; or an error."""
    where = f"batch {batch}: logits {list(logits.shape)} and targets {list(targets.shape)}"
    logits, targets = logits.detach().cpu(), targets.detach().cpu()
    if logits.ndim == 2 and logits.shape[1] == 1:
        logits = logits[:, 0]
        targets = targets[:, 0] if targets.ndim == 2 and targets.shape[1] == 1 else targets
    if targets.ndim == 2:
        raise ValueError(
            f"{where}: expected one class index per example, shape [B]. Convert one-hot targets to "
            "indices with targets.argmax(dim=1); with several labels per example, score each "
            "label by its own threshold."
        )
    if logits.ndim not in (1, 2) or targets.ndim != 1 or len(logits) != len(targets):
        raise ValueError(
            f"{where}: expected logits [B, C] and targets [B]. For pixels or tokens flatten first: "
            "logits.flatten(2).transpose(1, 2).flatten(0, 1) and targets.flatten()."
        )
    if not torch.isfinite(logits).all():
        first = int((~torch.isfinite(logits)).flatten(1 if logits.ndim > 1 else 0).nonzero()[0][0])
        raise ValueError(
            f"{where}: nan or inf in the logits, first at example {first} of the batch. Look at "
            "that input, then at the weights: training may have diverged."
        )
    if logits.ndim == 1:  # two classes: sigmoid(z) is softmax of (0, z)
        logits = torch.stack([torch.zeros_like(logits), logits], dim=1)
    return logits.float(), _class_indices(targets, logits.shape[1], where)


def _class_indices(targets: Tensor, num_classes: int, where: str) -> Tensor:
    if targets.is_floating_point() and len(parts := targets[targets != targets.round()]):
        raise ValueError(
            f"{where}: targets hold {parts[0]:g}, which is not a class index. In regression there "
            "are no mistakes to count: look at the largest residuals instead."
        )
    targets = targets.long()
    outside = targets[(targets < 0) | (targets >= num_classes)]
    if len(outside):
        raise ValueError(
            f"{where}: target {int(outside[0])} with {num_classes} classes: expected 0 to "
            f"{num_classes - 1}. Drop masked targets (-100) first; if labels start at 1, subtract "
            "1."
        )
    return targets
