"""What a model says about every example, run once over a loader; all scores start from it.

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
    """What a model says about every example, and what is true; on the CPU."""

    logits: Tensor
    """[N, C] float; C = 2 also where the model has one output a example: (0, logit)."""
    targets: Tensor
    """[N] class indices, long."""
    class_names: tuple[str, ...]

    @property
    def num_classes(self) -> int:
        """Outputs of the model."""
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
        """Share of right predictions."""
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
        model: Gives logits [B, C], or one logit per example ([B] or [B, 1]) for yes and no. Every
            module comes back in its own mode.
        loader: Pairs of inputs [B, ...] and class indices [B].
        device: Where to compute; the model's own by default.
        class_names: One per class; the indices by default.

    Raises:
        ValueError: No example, shapes that do not fit, targets outside the classes, or logits that
            are nan or inf.

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
            "the loader gives no batch: there is nothing to score. Is the data set empty, or "
            "drop_last=True with fewer examples than a batch?"
        )
    return predictions(torch.cat(logits), torch.cat(targets), class_names=class_names)


def check_parts(model: Any, loader: Any) -> None:
    """A model that has modes and a device, and a loader that can be gone through.

    Raises:
        ValueError: Something else.
    """
    if not isinstance(model, nn.Module):
        raise ValueError(
            f"model is a {type(model).__name__}: expected an nn.Module. What a plain function says "
            "goes to predictions(logits, targets)."
        )
    if not isinstance(loader, Iterable) and not hasattr(loader, "__getitem__"):
        raise ValueError(
            f"loader is a {type(loader).__name__}: expected a DataLoader, or any list of pairs "
            "(inputs, targets)."
        )


def predictions(
    logits: Tensor, targets: Tensor, *, class_names: Sequence[str] | None = None
) -> Predictions:
    """The same from logits that are already there.

    Args:
        logits: [N, C], or [N] and [N, 1] for yes and no; a tensor, an array or a list.
        targets: [N] class indices; the same.
        class_names: One per class.

    Raises:
        ValueError: As `predict`.
    """
    logits, targets = (
        _tensor(name, value) for name, value in (("logits", logits), ("targets", targets))
    )
    if not len(targets):
        raise ValueError(
            f"logits {list(logits.shape)} and targets {list(targets.shape)}: no example, so there "
            "is nothing to score."
        )
    logits, targets = check_logits(logits, targets, 0)
    return Predictions(logits, targets, names_of_classes(class_names, logits.shape[1]))


def _tensor(name: str, value: Any) -> Tensor:
    """A tensor as it is; an array or nested list of numbers as one."""
    try:
        tensor = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"{name} = a {type(value).__name__}: expected a tensor, an array or a list of numbers "
            f"({str(error).splitlines()[0]})."
        ) from error
    if tensor.ndim == 0:
        raise ValueError(f"{name} = {tensor.item()}: expected one entry per example, not a number.")
    return tensor


def expect_predictions(value: Any) -> Predictions:
    """What `predict` gives, or an error that says how to get it.

    Raises:
        ValueError: Something else, as logits or a model.
    """
    if not isinstance(value, Predictions):
        raise ValueError(
            f"predictions = a {type(value).__name__}: expected what predict(model, loader) gives, "
            "or predictions(logits, targets) where the logits are already there."
        )
    return value


def check_logits(logits: Tensor, targets: Tensor, batch: int) -> tuple[Tensor, Tensor]:
    """Logits [B, C] as float and targets [B] as long, both on the CPU; or what is wrong."""
    where = f"batch {batch}: logits {list(logits.shape)} and targets {list(targets.shape)}"
    logits, targets = logits.detach().cpu(), targets.detach().cpu()
    if logits.ndim == 2 and logits.shape[1] == 1:
        logits = logits[:, 0]
        targets = targets[:, 0] if targets.ndim == 2 and targets.shape[1] == 1 else targets
    if targets.ndim == 2:
        raise ValueError(
            f"{where}: expected one class index per example, shape [B]. One-hot targets become "
            "indices with targets.argmax(dim=1); several labels per example need a threshold each."
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
            "that input, then at the weights: the training may have diverged."
        )
    if logits.ndim == 1:  # yes and no: sigmoid(z) is softmax of (0, z)
        logits = torch.stack([torch.zeros_like(logits), logits], dim=1)
    return logits.float(), _class_indices(targets, logits.shape[1], where)


def _class_indices(targets: Tensor, num_classes: int, where: str) -> Tensor:
    if targets.is_floating_point() and len(parts := targets[targets != targets.round()]):
        raise ValueError(
            f"{where}: targets hold {parts[0]:g}, which is not a class index. A regression has no "
            "mistakes to count: look at the largest residuals instead."
        )
    targets = targets.long()
    outside = targets[(targets < 0) | (targets >= num_classes)]
    if len(outside):
        raise ValueError(
            f"{where}: target {int(outside[0])} with {num_classes} classes: 0 to {num_classes - 1} "
            "are expected. Drop masked targets (-100) first; labels from 1 need a minus 1."
        )
    return targets
