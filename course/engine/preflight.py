"""Preflight: what can be seen to be wrong before the first update is said before it.

Every message gives the value seen, what was expected, and what to try next.

Source: Lecture 3, "The batch contract"; the training-loop chapter, "Bug museum"; ledger C17, C20,
C21, F07-F13, B09, B10, B15-B17, B36.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from course.data.loading import length_of
from course.engine.batches import all_targets, is_sharded
from course.engine.distributed import num_ranks
from course.engine.errors import EngineError, NonFiniteError
from course.engine.nonfinite import POLICIES
from course.engine.progress import Progress, Sums
from course.engine.window import (
    Batch,
    Criterion,
    averages_elements,
    averages_targets,
    ignored_index,
    weighing,
)

if TYPE_CHECKING:
    from course.engine.trainer import Trainer


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How long a run lasts and what it does on the way; checked when made."""

    epochs: int | None
    """Passes over the data; None where only `max_updates` ends the run."""
    max_updates: int | None
    """Weight updates; None where only `epochs` ends the run."""
    checkpoint_every: int | None
    """Updates between two checkpoints; None for one after each epoch."""
    log_every: int
    """Updates between two log lines."""
    on_nonfinite: str
    """`raise` or `skip`."""
    metrics: Mapping[str, Any] | None
    """More numbers for validation."""

    def __post_init__(self) -> None:
        if self.epochs is None and self.max_updates is None:
            raise EngineError(
                "epochs and max_updates are both None, so the run would not end. Say epochs=10."
            )
        for name in ("epochs", "max_updates", "checkpoint_every", "log_every"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise EngineError(f"{name} = {value}: expected 1 or more.")
        if self.on_nonfinite not in POLICIES:
            raise EngineError(
                f"on_nonfinite = {self.on_nonfinite!r}: expected {' or '.join(POLICIES)}."
            )

    def is_reached(self, progress: Progress) -> bool:
        """Whether all the updates asked for are made."""
        if self.max_updates is not None and progress.update >= self.max_updates:
            return True
        return self.epochs is not None and progress.epoch > self.epochs

    def wants_checkpoint(self, update: int) -> bool:
        """Whether a checkpoint is due after this update."""
        return self.checkpoint_every is not None and update % self.checkpoint_every == 0

    def num_updates(self, updates_per_epoch: int | None) -> int | None:
        """Updates of the whole run; None where the loader has no length."""
        if self.epochs is None:
            return self.max_updates
        return None if updates_per_epoch is None else self.epochs * updates_per_epoch


def check_accum_steps(accum_steps: int) -> None:
    """At least one micro-batch a step."""
    if not isinstance(accum_steps, int) or accum_steps < 1:
        raise EngineError(
            f"accum_steps = {accum_steps}: a step needs at least 1 micro-batch. "
            "For no accumulation, use 1."
        )


def check_optimizer(model: nn.Module, optimizer: Optimizer, criterion: Any = None) -> None:
    """The optimizer must move this model: all of it, or a part of it that is meant (a warning)."""
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    if not held:
        raise EngineError(
            "the optimizer holds no parameters. "
            "Build it from the model: SGD(model.parameters(), lr=0.1)."
        )
    trainable = {name: id(p) for name, p in model.named_parameters() if p.requires_grad}
    missing = [name for name, key in trainable.items() if key not in held]
    modules = [model, *([criterion] if isinstance(criterion, nn.Module) else [])]
    known = {id(p) for module in modules for p in module.parameters()}
    rebuild = "Build the optimizer when the model is complete, from model.parameters()."
    if not held & known:
        raise EngineError(
            f"the optimizer holds {len(held)} tensors and none of the model's "
            f"{len(known)} parameters, so nothing would move. {rebuild}"
        )
    if missing and held - known:
        raise EngineError(
            f"the optimizer holds {len(held - known)} tensors that are not the model's and lacks "
            f"{', '.join(missing[:3])}: was a layer replaced after it was built? {rebuild}"
        )
    if missing:
        warnings.warn(
            f"{len(missing)} trainable parameters are not in the optimizer and stay as they are: "
            f"{', '.join(missing[:3])}. If this is meant, set requires_grad_(False) on them.",
            stacklevel=3,
        )


def check_loaders(train_loader: Iterable[Batch], val_loader: Iterable[Batch] | None) -> None:
    """Both loaders must give batches, and each process its own share."""
    for name, loader in (("training", train_loader), ("validation", val_loader)):
        if length_of(loader) == 0:
            raise EngineError(
                f"the {name} loader gives no batch. Is the data set empty, or drop_last=True with "
                "fewer examples than a batch?"
            )
    if num_ranks() > 1 and not is_sharded(train_loader):
        raise EngineError(
            f"each of {num_ranks()} processes would train on the same batches. Build the loader "
            "with make_loader(..., rank=rank(), num_ranks=num_ranks()), or a DistributedSampler."
        )


def check_trained(progress: Progress) -> Sums:
    """An epoch's sums, if anything was trained in it."""
    sums = progress.sums
    if not progress.micro_batch:
        raise EngineError(
            "the training loader gave no batch, so nothing was trained. Is the data set empty, or "
            "is it a generator that an earlier epoch used up?"
        )
    if not sums.weight:
        raise NonFiniteError(
            f"epoch {progress.epoch}: each of its {sums.skipped} windows had a loss or gradient "
            "that is inf or nan, so no update was made. Look at the data, then try a smaller lr"
            " (under fp16: bf16)."
        )
    return sums


def warn_of_batch_norm(model: nn.Module, accum_steps: int) -> None:
    """The documented exception, said once: BatchNorm normalises micro-batches, not the window."""
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    if accum_steps > 1 and any(norm.training for norm in norms):
        warnings.warn(
            f"BatchNorm with accum_steps = {accum_steps}: each micro-batch is normalised by its "
            "own mean and variance, so the update is not the big batch's. GroupNorm or LayerNorm "
            "do not mix examples.",
            stacklevel=3,
        )


def located(error: Exception, progress: Progress, num_micro_batches: int) -> Exception:
    """The error, saying at which batches of which epoch it happened."""
    first = progress.micro_batch
    last = first + num_micro_batches - 1
    batches = f"batch {first}" if first == last else f"batches {first} to {last}"
    where = f"epoch {progress.epoch}, {batches} (from 0)"
    if isinstance(error, (NonFiniteError, EngineError)):
        return type(error)(f"{where}: {error}")
    error.add_note(f"{where}: the weights are as they were before this update.")
    return error


class FirstUpdate:
    """The criterion during the first update: looks at outputs and targets before they can do harm.

    Later updates use the criterion itself: looking costs time, on an accelerator a wait.
    """

    def __init__(self, criterion: Criterion, all_targets: Tensor | None = None) -> None:
        self.criterion, self.all_targets = criterion, all_targets
        self.weight_of, sums = weighing(criterion)
        self.reduction = "sum" if sums else "mean"

    @classmethod
    def of(cls, trainer: Trainer) -> FirstUpdate:
        """For a trainer; a data set of tensors has all its labels looked at, not one batch's."""
        return cls(trainer.criterion, all_targets(trainer.batches.loader))

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if isinstance(outputs, Tensor) and isinstance(targets, Tensor):
            if averages_targets(self.criterion):
                self._check_classes(outputs, targets)
            elif averages_elements(self.criterion):
                self._check_shapes(outputs, targets)
        loss = self.criterion(outputs, targets)
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            shape = list(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
            raise EngineError(
                f"the criterion gave {shape}, expected a single number. Use reduction='mean'."
            )
        if not loss.requires_grad:
            raise EngineError(
                "the loss has no graph: nothing that it is computed from requires a gradient. "
                "Is everything frozen, or is there a detach(), .item() or no_grad() in the model?"
            )
        return loss

    def _check_classes(self, outputs: Tensor, targets: Tensor) -> None:
        if targets.is_floating_point():
            if outputs.shape != targets.shape:
                raise EngineError(
                    f"targets are {targets.dtype} {list(targets.shape)} for outputs "
                    f"{list(outputs.shape)}: class indices must be whole numbers. "
                    "Use targets.long(), without a last dimension of 1."
                )
            return
        taken = targets.dtype is torch.long or (targets.dtype is torch.uint8 and targets.ndim == 1)
        if not taken:
            raise EngineError(
                f"targets are {targets.dtype}: this criterion takes class indices as torch.long "
                "(torch.uint8 as [B] only). Use targets.long()."
            )
        expected = [*outputs.shape[:1], *outputs.shape[2:]]
        if list(targets.shape) != expected:
            one_hot = targets.shape == outputs.shape
            raise EngineError(
                f"targets are {list(targets.shape)} for outputs {list(outputs.shape)}, expected "
                f"{expected}. "
                + ("One-hot? Use targets.argmax(1)." if one_hot else "Try targets.squeeze(-1).")
            )
        num_classes = outputs.shape[1] if outputs.ndim > 1 else outputs.shape[0]
        every = targets if self.all_targets is None else self.all_targets
        kept = every[every != ignored_index(self.criterion)]
        if len(kept) and not 0 <= kept.min() <= kept.max() < num_classes:
            raise EngineError(
                f"labels run from {kept.min()} to {kept.max()}, and the model has {num_classes} "
                f"outputs: expected 0 to {num_classes - 1}. Count classes from 0, or widen the "
                "last layer."
            )

    def _check_shapes(self, outputs: Tensor, targets: Tensor) -> None:
        if outputs.shape != targets.shape:
            raise EngineError(
                f"outputs are {list(outputs.shape)} and targets {list(targets.shape)}: they would "
                "be broadcast against each other, each output compared with each target. "
                "Use outputs.squeeze(-1) or targets.unsqueeze(-1)."
            )
        if not targets.is_floating_point():
            raise EngineError(
                f"targets are {targets.dtype}: this criterion takes numbers like the outputs. "
                "Use targets.float()."
            )
