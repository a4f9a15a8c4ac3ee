"""The training loop, in the lecture's order: one update, one epoch, one run.

    micro-batches -> forward -> loss -> backward -> unscale -> clip -> step -> schedule
    -> evaluate -> record -> best checkpoint -> next epoch

`train_step` is the one place where weights move; `train_one_epoch` and `Trainer` call it.

Source: Lecture 3, "The training recipe"; the training-loop chapter, "One step"; ledger C01, C02,
F132.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from course.engine import preflight
from course.engine.callbacks import Callback, ProgressBar, somebody_is_watching
from course.engine.checkpoint import save_atomically
from course.engine.clipping import clip_by_global_norm, first_nonfinite
from course.engine.errors import EngineError, NonFiniteError
from course.engine.evaluation import evaluate
from course.engine.history import History
from course.engine.placement import choose_device, move
from course.engine.precision import FP32, Precision
from course.engine.progress import Progress
from course.engine.seeding import seed_everything
from course.engine.stopping import better
from course.engine.window import Batch, Criterion, Window, windows


@dataclass(frozen=True, kw_only=True, slots=True)
class StepReport:
    """What one update did. Reading `loss` or `grad_norm` waits for the accelerator."""

    loss_sum: Tensor
    """Sum of the losses, each times what it counts; 0-d, on the device."""
    weight: float | Tensor
    """What the step's mean loss divides by: examples, unmasked targets or their class weights."""
    norm: Tensor
    """Joint L2 norm of the gradients before clipping; 0-d, on the device."""

    @property
    def loss(self) -> float:
        """Mean loss per example (unmasked target, class weight) over all micro-batches."""
        return float(self.loss_sum) / float(self.weight)

    @property
    def grad_norm(self) -> float:
        """Joint L2 norm of the gradients before clipping."""
        return float(self.norm)


def train_step(
    model: nn.Module,
    micro_batches: Sequence[Batch],
    criterion: Criterion,
    optimizer: Optimizer,
    *,
    max_norm: float | None = None,
    precision: Precision = FP32,
    device: torch.device | None = None,
) -> StepReport:
    """Make one optimizer step from micro-batches, as from one joined batch.

    Each loss enters with its share of what the whole window holds (examples, unmasked targets,
    class weights), so uneven micro-batches count for their size. Equality holds where examples do
    not mix (no BatchNorm).

    Args:
        model: In train mode.
        micro_batches: Pairs of inputs [B, ...] and targets, at least one.
        criterion: Mean- or sum-reduced loss of outputs and targets.
        optimizer: Holds the parameters that move; only their gradients are cleared and clipped.
        max_norm: Ceiling of the joint gradient norm; None leaves gradients alone.
        precision: How forward and backward compute; fp32 by default.
        device: Where the micro-batches go first; None where they are there already.

    Raises:
        NonFiniteError: Loss or gradient is inf or nan; the weights are untouched.

    Source: Lecture 3, "Simulating a big batch" and "How gradient clipping works".
    """
    window = Window.of(micro_batches, criterion)
    loss_sum = 0.0

    optimizer.zero_grad()
    for (inputs, targets), share in zip(micro_batches, window.shares(), strict=True):
        if device is not None:
            inputs, targets = move(inputs, device), move(targets, device)
        with precision.autocast:
            outputs = model(inputs)
            loss = criterion(outputs, targets)
        loss = loss * share
        precision.backward(loss)  # adds to .grad, so zero_grad() stays outside this loop
        loss_sum += loss.detach()  # a tensor: .item() here would wait for the GPU

    precision.unscale_(optimizer)  # before clipping, which must see gradients of true size
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    norm = clip_by_global_norm(parameters, math.inf if max_norm is None else max_norm)
    if not torch.isfinite(loss_sum + norm):
        raise NonFiniteError(
            f"loss {float(loss_sum):.3g}, gradient norm {float(norm):.3g} (first in "
            f"{first_nonfinite(model)}): step not taken. "
            "Look at this batch first (range, nan), then try a 10 times smaller lr."
        )
    precision.step(optimizer)
    return StepReport(
        loss_sum=loss_sum if window.sums else loss_sum * window.total,
        weight=window.total,
        norm=norm,
    )


def train_one_epoch(
    model: nn.Module,
    loader: Iterable[Batch],
    criterion: Criterion,
    optimizer: Optimizer,
    *,
    accum_steps: int = 1,
    max_norm: float | None = None,
    device: torch.device | str | None = None,
) -> float:
    """Train once over `loader` and return the mean loss per example.

    Args:
        accum_steps: Micro-batches an update (K); a trailing window with fewer still makes one.
        max_norm: Ceiling of the joint gradient norm, once an update; None leaves gradients alone.
        device: Where the batches go; None where they are there already.

    Raises:
        EngineError: `accum_steps` below 1, or a loader that gives no batch.
        NonFiniteError: As `train_step`.
    """
    preflight.check_accum_steps(accum_steps)
    device = torch.device(device) if device is not None else None
    loss_sum = weight = 0.0
    enter_train_mode(model)
    for micro_batches in windows(loader, accum_steps):
        report = train_step(
            model, micro_batches, criterion, optimizer, max_norm=max_norm, device=device
        )
        loss_sum, weight = loss_sum + report.loss_sum, weight + report.weight
    if not float(weight):
        raise EngineError("the loader gave no batch, so nothing was trained. Is the data empty?")
    return float(loss_sum) / float(weight)


def enter_train_mode(model: nn.Module) -> None:
    """Train mode, unless the model is in it: then a layer frozen in eval mode stays frozen."""
    if not model.training:
        model.train()


class Trainer:
    """Trains a model: the loop, and what a run needs around it.

    Args:
        model: Moved to `device` before the first update, together with the optimizer's state.
        criterion: Mean- or sum-reduced loss of outputs and targets.
        optimizer: Holds the model's parameters.
        scheduler: Sets the learning rate; stepped as `schedule_per` says.
        schedule_per: What the scheduler counts: `"epoch"`, `"update"`, or `"metric"` for one that
            looks at the monitored number.
        accum_steps: Micro-batches an update (K on the slides).
        max_norm: Ceiling of the joint gradient norm, once an update.
        precision: `"fp32"`, `"bf16"`, or `"fp16"`, which brings its gradient scaler.
        device: `"auto"` takes the accelerator where there is one.
        compile: Let `torch.compile` make the forward pass.
        callbacks: What else should happen; see `Callback`.
        seed: Seeds all generators at the start of `fit`.
        run_dir: Where the best checkpoint goes.
    """

    def __init__(
        self,
        model: nn.Module,
        criterion: Criterion,
        optimizer: Optimizer,
        *,
        scheduler: Any = None,
        schedule_per: str = "epoch",
        accum_steps: int = 1,
        max_norm: float | None = None,
        precision: str = "fp32",
        device: torch.device | str = "auto",
        compile: bool = False,
        callbacks: Sequence[Callback] = (),
        seed: int | None = None,
        run_dir: Path | str | None = None,
    ) -> None:
        preflight.check_accum_steps(accum_steps)
        self.device = choose_device(device)
        self.model = model.to(self.device)
        self.forward = torch.compile(model) if compile else model
        self.criterion = criterion
        self.optimizer = optimizer
        self.scheduler, self.schedule_per = scheduler, schedule_per
        self.accum_steps, self.max_norm = accum_steps, max_norm
        self.precision = Precision(precision, self.device)
        self.callbacks = list(callbacks)
        self.seed = seed
        self.run_dir = Path(run_dir) if run_dir is not None else None
        self.progress = Progress()
        self.history = History()

    def fit(
        self,
        train_loader: Iterable[Batch],
        val_loader: Iterable[Batch] | None = None,
        *,
        epochs: int | None = None,
        max_updates: int | None = None,
        resume: Path | str | None = None,
        monitor: str | None = None,
        mode: str = "min",
        metrics: dict[str, Any] | None = None,
        progress: bool | str = "auto",
    ) -> History:
        """Train for `epochs`, or until `max_updates` weight updates are made, whichever is first.

        Args:
            monitor: What chooses the best epoch; `val_loss` where there is a `val_loader`.
            mode: `min` where a lower monitored number is better.
            metrics: More numbers for validation, as `evaluate` takes them.
            progress: Whether to show a bar; `"auto"` where a terminal or a notebook shows it.

        Returns:
            A dictionary an epoch; `.best` is the best one.
        """
        preflight.check_plan(epochs, max_updates)
        preflight.check_optimizer(self.model, self.optimizer)
        monitor = monitor or ("train_loss" if val_loader is None else "val_loss")
        self.history = History(monitor=monitor, mode=mode)
        self.progress = Progress(
            updates_per_epoch=preflight.num_windows(train_loader, self.accum_steps)
        )
        if self.seed is not None:
            seed_everything(self.seed)
        bar = [ProgressBar()] if progress is True or (progress and somebody_is_watching()) else []
        self._hooks = self.callbacks + bar

        self._call("on_fit_start")
        try:
            while not self._finished(epochs, max_updates):
                started = time.perf_counter()
                self._call("on_epoch_start")
                self._train_epoch(train_loader, max_updates)
                self._record(val_loader, metrics, started)
                self._keep_best()
                self._call("on_epoch_end")
                self._schedule("epoch")
                self.progress.next_epoch()
        finally:
            self._call("on_fit_end")
        return self.history

    def stop(self, reason: str) -> None:
        """End the run after the current update; `reason` goes into the record."""
        self.progress.stopped = reason

    def _train_epoch(self, loader: Iterable[Batch], max_updates: int | None) -> None:
        progress = self.progress
        enter_train_mode(self.model)
        for micro_batches in windows(loader, self.accum_steps):
            report = train_step(
                self.forward,
                micro_batches,
                self.criterion,
                self.optimizer,
                max_norm=self.max_norm,
                precision=self.precision,
                device=self.device,
            )
            progress.micro_batch += len(micro_batches)
            progress.update += 1
            progress.update_in_epoch += 1
            progress.add("loss", report.loss_sum)
            progress.add("weight", report.weight)
            progress.add("norm", report.norm)
            self._schedule("update")
            self._call("on_update_end")
            if progress.stopped or progress.update == max_updates:
                break
        if not progress.update_in_epoch:
            raise EngineError(
                "the training loader gives no batch. Is the data set empty, or drop_last=True with "
                "fewer examples than a batch?"
            )

    def _record(self, val_loader: Any, metrics: Any, started: float) -> None:
        """One epoch's line of the history."""
        progress = self.progress
        epoch = {
            "epoch": progress.epoch,
            "updates": progress.update,
            "train_loss": progress.mean("loss", "weight"),
        }
        if val_loader is not None:
            measured = evaluate(
                self.model, val_loader, self.criterion, device=self.device, metrics=metrics
            )
            del measured["num_examples"]
            epoch |= {f"val_{name}": value for name, value in measured.items()}
        epoch["lr"] = self.optimizer.param_groups[0]["lr"]
        epoch["grad_norm"] = float(progress.sums["norm"]) / progress.update_in_epoch
        epoch["seconds"] = round(time.perf_counter() - started, 3)
        self.history.epochs.append(epoch)

    def _keep_best(self) -> None:
        """Save the model where this epoch is the best so far."""
        *earlier, this = self.history.epochs
        best = History(earlier, self.history.monitor, self.history.mode)
        ceiling = best.best[self.history.monitor] if earlier else None
        improved = better(this[self.history.monitor], ceiling, mode=self.history.mode)
        if improved and self.run_dir is not None:
            self.run_dir.mkdir(parents=True, exist_ok=True)
            save_atomically(
                {"model": self.model.state_dict(), "epoch": this}, self.run_dir / "best.pt"
            )

    def _schedule(self, moment: str) -> None:
        if self.scheduler is None:
            return
        if moment == "epoch" and self.schedule_per == "metric":
            self.scheduler.step(self.history[-1][self.history.monitor])
        elif moment == self.schedule_per:
            self.scheduler.step()

    def _finished(self, epochs: int | None, max_updates: int | None) -> bool:
        done = self.progress
        return bool(
            done.stopped
            or (epochs is not None and done.epoch > epochs)
            or (max_updates is not None and done.update >= max_updates)
        )

    def _call(self, hook: str) -> None:
        for callback in self._hooks:
            getattr(callback, hook)(self)
