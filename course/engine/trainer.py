"""The training loop, in the lecture's order: one update, one epoch, one run.

    micro-batches -> forward -> loss -> backward -> unscale -> clip -> step -> schedule
    -> evaluate -> record -> best checkpoint -> callbacks (early stopping) -> last checkpoint

`train_step` is the one place where weights move; `train_one_epoch` and `Trainer` call it.

Source: Lecture 3, "The training recipe"; the training-loop chapter, "One step"; ledger C01, C02,
C06, F132, K01.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from course.data.workers import workers_explained
from course.engine import checkpoint, preflight, schedules
from course.engine.batches import EpochBatches, all_targets
from course.engine.callbacks import Callback, Callbacks
from course.engine.clipping import Ceiling, clip_, grad_norm, parameters_of
from course.engine.distributed import agree, joined, rank, share_gradients, summed, window_end
from course.engine.errors import NonFiniteError
from course.engine.evaluation import evaluate
from course.engine.history import History
from course.engine.nonfinite import (
    found_nonfinite,
    nonfinite_error,
    remember_buffers,
    restore_buffers,
    skips_by_itself,
)
from course.engine.placement import as_pair, check_device, choose_device, move, move_training_
from course.engine.precision import FP32, Precision
from course.engine.progress import Progress, Sums
from course.engine.record import RunRecord
from course.engine.resume import collect, restore
from course.engine.seeding import seed_everything, undisturbed
from course.engine.unlabelled import zero_grad
from course.engine.window import (
    Batch,
    Criterion,
    Weigher,
    Window,
    weighing,
    weighing_all,
    windows,
)


class StepReport(NamedTuple):
    """What one update did. Reading `loss` or `grad_norm` waits for the accelerator."""

    mean_loss: Tensor
    """Mean loss over all micro-batches; 0-d, on the device."""
    weight: float | Tensor
    """What the mean divides by: examples, unmasked targets or their class weights."""
    norm: Tensor | None
    """Joint L2 norm of the gradients before clipping, 0-d; None where it was not measured."""
    found_nonfinite: bool | Tensor
    """True: a loss or gradient was inf or nan, and the step was not taken."""

    @property
    def loss(self) -> float:
        """Mean loss per example (unmasked target, class weight) over all micro-batches."""
        return float(self.mean_loss)

    @property
    def grad_norm(self) -> float | None:
        """Joint L2 norm of the gradients before clipping."""
        return None if self.norm is None else float(self.norm)


def train_step(
    model: nn.Module,
    micro_batches: Sequence[Batch],
    criterion: Criterion,
    optimizer: Optimizer,
    *,
    max_norm: Ceiling | None = None,
    precision: Precision = FP32,
    device: torch.device | None = None,
    on_nonfinite: str = "raise",
    measure_norm: bool = True,
    weigh: Weigher | None = None,
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
        max_norm: Ceiling of the joint gradient norm, or a function that clips in its own way, as
            `partial(clip_by_value, max_value=0.5)`; None leaves gradients alone.
        precision: How forward and backward compute; fp32 by default.
        device: Where the micro-batches go first; None where they are there already.
        on_nonfinite: `"raise"`, or `"skip"`: no step is taken and the report says so. fp16 skips
            in any case, since its scaler looks for the right scale by trying.
        measure_norm: Measure the norm even where nothing is clipped.
        weigh: What `weighing(criterion)` gives, if it is known already.

    Raises:
        NonFiniteError: Loss or gradient is inf or nan; the weights are untouched.

    Source: Lecture 3, "Simulating a big batch" and "How gradient clipping works".
    """
    window = joined(Window.of(micro_batches, weigh or weighing(criterion)), model, device)
    last = len(micro_batches) - 1
    moved = parameters_of(optimizer)
    step_loss = None
    buffers = remember_buffers(model) if on_nonfinite == "skip" else ()

    zero_grad(moved)
    for index, (inputs, targets) in enumerate(micro_batches):
        if window.counts_nothing(index):
            continue
        if device is not None:
            inputs, targets = move(inputs, device), move(targets, device)
        with window_end(model, index == last):
            with precision.autocast:  # forward and loss only
                outputs = model(inputs)
                loss = criterion(outputs, targets)
            loss = window.weighted(loss, index)
            precision.backward(loss)  # adds to .grad, so zero_grad stays outside this loop
        loss = loss.detach()  # a tensor: .item() here would wait for the GPU
        step_loss = loss if step_loss is None else step_loss + loss

    precision.unscale_(optimizer)  # before anybody measures: norms of scaled gradients mislead
    norm = grad_norm(moved) if measure_norm or max_norm is not None else None
    found = agree(found_nonfinite(step_loss, norm, moved), model)
    if found is not False and (precision.scaler or not skips_by_itself(optimizer)):
        found = bool(found)
    if buffers:
        restore_buffers(buffers, found)
    if found is True:
        precision.overflowed()
        if on_nonfinite == "raise" and not precision.scaler:
            raise nonfinite_error(model, step_loss, norm)
    else:
        if max_norm is not None:
            clip_(moved, norm, max_norm)  # once an update, on the whole window's gradient
        precision.step(optimizer, unless=found)
    return StepReport(window.mean(step_loss), window.counted, norm, found)


def train_one_epoch(
    model: nn.Module,
    loader: Iterable[Batch],
    criterion: Criterion,
    optimizer: Optimizer,
    *,
    accum_steps: int = 1,
    max_norm: Ceiling | None = None,
    device: torch.device | str | None = None,
) -> float:
    """Train once over `loader` and return the mean loss per example.

    Args:
        model: Left in train mode.
        loader: Pairs of inputs [B, ...] and targets.
        criterion: Mean- or sum-reduced loss of outputs and targets.
        optimizer: Holds the model's parameters.
        accum_steps: Micro-batches an update (K); a trailing window with fewer still makes one.
        max_norm: Ceiling of the joint gradient norm, once an update; None leaves gradients alone.
        device: Where the batches go; the model's device by default.

    Raises:
        EngineError: `accum_steps` below 1, a model on another device, or a loader without a batch.
        NonFiniteError: As `train_step`.
    """
    preflight.check_accum_steps(accum_steps)
    device = check_device(model, device)
    progress = Progress()
    enter_train_mode(model)
    for micro_batches in windows(map(as_pair, loader), accum_steps):
        report = train_step(
            model, micro_batches, criterion, optimizer, max_norm=max_norm, device=device
        )
        progress.add(report, len(micro_batches))
    progress.read()
    return preflight.check_trained(progress).mean_loss


def enter_train_mode(model: nn.Module) -> None:
    """Train mode, unless the model is in it: then a layer frozen in eval mode stays frozen."""
    if not model.training:
        model.train()


class Trainer:
    """Trains a model: the loop, and what a run needs around it.

    Args:
        model: Moved to `device`, and the optimizer's state with it.
        criterion: Mean- or sum-reduced loss of outputs and targets.
        optimizer: Holds the model's parameters.
        scheduler: Sets the learning rate; stepped as `schedule_per` says.
        schedule_per: What the scheduler counts: `"epoch"`, `"update"`, or `"metric"` for one that
            looks at the monitored number.
        accum_steps: Micro-batches an update (K on the slides).
        max_norm: Ceiling of the joint gradient norm, once an update; or a function that clips in
            its own way, as `partial(clip_by_value, max_value=0.5)`.
        precision: `"fp32"`, `"bf16"`, or `"fp16"`, which brings its gradient scaler.
        device: `"auto"` takes the accelerator where there is one.
        compile: Let `torch.compile` make the forward pass; checkpoints keep the plain names.
        callbacks: What else should happen, as `EarlyStopping(patience=3)`.
        seed: Seeds all generators at the start of `fit`; with several processes, each its own way.
        run_dir: Where the record, the log and the checkpoints go; nothing is written without it. A
            run that is there already is kept beside it, under a number.

    Raises:
        EngineError: A setting that cannot work; nothing was moved.
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
        max_norm: Ceiling | None = None,
        precision: str = "fp32",
        device: torch.device | str = "auto",
        compile: bool = False,
        callbacks: Sequence[Callback] = (),
        seed: int | None = None,
        run_dir: Path | str | None = None,
    ) -> None:
        preflight.check_accum_steps(accum_steps)
        preflight.check_optimizer(model, optimizer, criterion)
        schedules.check_unit(scheduler, schedule_per)
        self.device = choose_device(device)
        self.precision = Precision(precision, self.device)
        move_training_(model, criterion, optimizer, self.device)
        self.model, self.criterion, self.optimizer = model, criterion, optimizer
        self.forward = share_gradients(torch.compile(model) if compile else model)
        self.scheduler, self.schedule_per = scheduler, schedule_per
        self.accum_steps, self.max_norm, self.compile = accum_steps, max_norm, compile
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
        checkpoint_every: int | None = None,
        monitor: str | None = None,
        mode: str = "min",
        metrics: Mapping[str, Any] | None = None,
        on_nonfinite: str = "raise",
        log_every: int = 50,
        progress: bool | str = "auto",
        config: Mapping[str, Any] | None = None,
    ) -> History:
        """Train for `epochs`, or until `max_updates` updates are made, whichever is first.

        Args:
            train_loader: Pairs of inputs [B, ...] and targets.
            val_loader: Likewise; evaluated after each epoch.
            epochs: Passes over the data, counted from the start of the run, not of this call.
            max_updates: Weight updates, likewise. The run may end inside an epoch; it is evaluated
                and can be resumed there.
            resume: A checkpoint or a run directory to go on from; `"auto"` goes on from `run_dir`
                where a checkpoint is there, and starts afresh where none is.
            checkpoint_every: Updates between two checkpoints; one is written after every epoch in
                any case.
            monitor: What chooses the best epoch; `val_loss` where there is a `val_loader`.
            mode: `"min"` where a lower monitored number is better, else `"max"`.
            metrics: More numbers for validation, as `evaluate` takes them.
            on_nonfinite: `"raise"` at a loss or gradient that is inf or nan, or `"skip"` its window
                and count it.
            log_every: Updates between two log lines; an accelerator is waited for only then.
            progress: Whether to show a bar; `"auto"` where a terminal or a notebook shows it.
            config: Settings of yours that belong into the run's record.

        Returns:
            A dictionary an epoch; `.best` is the best one.

        Raises:
            EngineError: Something cannot work, said before the first update.
            NonFiniteError: A loss or gradient is inf or nan; the weights are those before it.
            CheckpointError: There is nothing to resume from, or it does not fit.
            WorkerDiedError: A worker of `train_loader` died; the message says of what.
        """
        self.plan = preflight.Plan(
            epochs=epochs,
            max_updates=max_updates,
            checkpoint_every=checkpoint_every,
            log_every=log_every,
            on_nonfinite=on_nonfinite,
            metrics=metrics,
        )
        preflight.check_loaders(train_loader, val_loader)
        preflight.warn_of_batch_norm(self.model, self.accum_steps)
        self.batches = EpochBatches(train_loader, self.device)
        self.weigh = weighing_all(self.criterion, all_targets(train_loader))
        self.history = History(monitor or f"{'val' if val_loader else 'train'}_loss", mode)
        self.progress = Progress.of(train_loader, self.accum_steps)
        self.hooks = Callbacks(self.callbacks, self, progress)
        if self.seed is not None:
            seed_everything(
                self.seed + rank(), deterministic=torch.are_deterministic_algorithms_enabled()
            )  # dropout should differ between processes
        place = restore(self, resume)
        schedules.check_length(self.scheduler, self.schedule_per, self.plan, self.progress)
        schedules.check_mode(self.scheduler, self.schedule_per, self.history)

        self.record = RunRecord.of(self, train_loader, val_loader, config, resumed_from=place)

        guarded = train_loader if isinstance(train_loader, DataLoader) else None
        with self.record, workers_explained(guarded):
            self.hooks.on_fit_start()
            while not self._finished():
                self.hooks.on_epoch_start()
                if self._finished():  # a callback has called stop()
                    break
                started = time.perf_counter()
                whole = self._train_epoch()
                self._evaluate(val_loader, started)
                self._keep_best()
                self.hooks.on_epoch_end()
                if whole:
                    self._schedule("epoch")
                    self.progress.next_epoch()
                self._save_last()
            self.hooks.on_fit_end()
        return self.history

    def stop(self, reason: str) -> None:
        """End the run after the current update; `reason` goes into the record."""
        self.progress.stopped = reason

    def _train_epoch(self) -> bool:
        """Train on the rest of the epoch under way; False where the run ends inside it."""
        progress, plan = self.progress, self.plan
        enter_train_mode(self.model)
        criterion = preflight.FirstUpdate.of(self) if progress.update == 0 else self.criterion
        for micro_batches in self._windows():
            try:
                report = train_step(
                    self.forward,
                    micro_batches,
                    criterion,
                    self.optimizer,
                    max_norm=self.max_norm,
                    precision=self.precision,
                    device=self.device,
                    on_nonfinite=plan.on_nonfinite,
                    measure_norm=progress.update_in_epoch % 50 == 0,
                    weigh=self.weigh,
                )
            except Exception as error:
                raise preflight.located(error, progress, len(micro_batches)) from None
            criterion = self.criterion
            progress.add(report, len(micro_batches))
            if report.found_nonfinite is True:
                continue
            self._schedule("update")
            self.hooks.on_update_end()
            if progress.update % plan.log_every == 0:
                self._log()
            if plan.wants_checkpoint(progress.update):
                self._save_last()
        self._log()
        preflight.check_trained(progress)
        return progress.micro_batch == progress.micro_batches_per_epoch

    def _windows(self) -> Iterator[list[Batch]]:
        """The windows that are left of this epoch; none is loaded after the run's end."""
        progress = self.progress
        batches = self.batches.enter(progress)
        while not self._reached():
            micro_batches = [as_pair(batch) for batch in islice(batches, self.accum_steps)]
            if not micro_batches:
                progress.micro_batches_per_epoch = progress.micro_batch
                return
            yield micro_batches

    def _evaluate(self, val_loader: Iterable[Batch] | None, started: float) -> None:
        """Validate, and write the epoch's line of the history."""
        progress = self.progress
        sums = Sums(**summed(vars(progress.sums), self.device))
        line = {
            "epoch": progress.epoch,
            "updates": progress.update,
            "train_loss": sums.mean_loss,
        }
        if val_loader is not None:
            with undisturbed(self.device):
                validation = evaluate(
                    self.model,
                    val_loader,
                    self.criterion,
                    device=self.device,
                    metrics=self.plan.metrics,
                )
            del validation["num_examples"]
            line |= {f"val_{name}": value for name, value in validation.items()}
        line |= {
            "lr": self.optimizer.param_groups[0]["lr"],
            "grad_norm": progress.sums.mean_norm,
            "skipped": progress.sums.skipped,  # the same in every process
            "seconds": round(time.perf_counter() - started, 3),
        }
        self.history.add(line)
        progress.recorded = progress.update
        self.record.log("epoch", line)

    def _keep_best(self) -> None:
        """Save the weights where this epoch is the best so far."""
        if self.run_dir is not None and rank() == 0 and self.history.best_is_last:
            state = {"model": self.model.state_dict(), "epoch": self.history[-1]}
            checkpoint.save(state, self.run_dir / checkpoint.BEST)

    def _save_last(self) -> None:
        """Save all that the next step depends on."""
        if self.run_dir is None:
            return
        state = collect(self)  # by every process, since each has generators of its own
        if rank() == 0:
            checkpoint.save_last(state, self.run_dir)
        self.hooks.on_checkpoint()

    def _log(self) -> None:
        """Read what the updates since the last line measured, and write it down."""
        progress = self.progress
        first_skipped = progress.read()
        if first_skipped is not None and self.plan.on_nonfinite == "raise":
            raise NonFiniteError(
                f"update {first_skipped}: loss or gradient is inf or nan; it was not taken. "
                "Run again with log_every=1 to stop there and be told the parameter."
            )
        if not (line := progress.log_line()):
            return
        line["lr"] = self.optimizer.param_groups[0]["lr"]
        self.record.log("update", line)
        self.hooks.on_log(line)

    def _schedule(self, moment: str) -> None:
        """Step the scheduler if it counts what has just ended: never a micro-batch."""
        if self.scheduler is None:
            return
        if moment == self.schedule_per:
            self.scheduler.step()
        elif moment == "epoch" and self.schedule_per == "metric":
            self.scheduler.step(self.history[-1][self.history.monitor])

    def _reached(self) -> bool:
        """Whether no further update is to be made."""
        return self.progress.stopped is not None or self.plan.is_reached(self.progress)

    def _finished(self) -> bool:
        """Whether the last update is made and evaluated."""
        return self._reached() and self.progress.recorded == self.progress.update
