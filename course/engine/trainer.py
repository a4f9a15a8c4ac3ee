"""The training loop, in the lecture's order: one update, one epoch, one run.

    micro-batches -> forward -> loss -> backward -> unscale -> clip -> step -> schedule
    -> evaluate -> record -> best checkpoint -> callbacks (early stopping) -> last checkpoint

`train_step` in `step.py` is the only place where weights move.

Source: Lecture 3, "The training recipe"; the training-loop chapter, "One step"; ledger C01, C02,
C06, F132, K01.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from course.data.workers import workers_explained
from course.engine import checkpoint, preflight, schedules
from course.engine.averaging import WeightAverage
from course.engine.batches import EpochBatches, ValidationBatches
from course.engine.callbacks import Callback, Callbacks, check_callbacks
from course.engine.clipping import Ceiling
from course.engine.distributed import (
    everybodys,
    num_ranks,
    rank,
    share_buffers,
    share_criterion,
    share_gradients,
    summed,
)
from course.engine.errors import CheckpointError, EngineError, NonFiniteError
from course.engine.evaluation import evaluate
from course.engine.history import History
from course.engine.loss_of import LossOf, OwnLoss, PairLoss, as_loss_of
from course.engine.module_state import ModuleState
from course.engine.one_graph import OneGraph
from course.engine.placement import choose_device, move_training_
from course.engine.precision import Precision
from course.engine.progress import Plan, Progress, StepReport, Sums
from course.engine.record import RunRecord, describe
from course.engine.rehearsal import rehearse
from course.engine.resume import collect, restore
from course.engine.several import OwnStep, Step, train_mode_of_parts_
from course.engine.step import train_step
from course.engine.window import Batch, Criterion
from course.state import seed_everything, train_mode_, undisturbed


class Trainer:
    """Trains a model: the loop, and everything a run needs around it.

    Args:
        model: Moved to `device`, together with the optimizer's state. With your own `step`, it may
            be several by name, such as `{"generator": G, "critic": D}`.
        criterion: Mean- or sum-reduced loss of outputs and targets.
        optimizer: Holds the model's parameters. With your own `step`, several by name.
        loss_of: In place of `criterion`: a function of (model, batch) that returns a `Loss`, for
            batches that are not pairs, or losses that need more than outputs and targets.
        step: In place of the trainer's own step, a function of (step, batch) that moves several
            optimizers in its own order; see `course.engine.several`. Validation then takes
            `criterion` or `loss_of`.
        scheduler: Sets the learning rate; stepped as `schedule_per` says. With your own `step`, one
            or several by name.
        schedule_per: What the scheduler counts: `"epoch"`, `"update"`, or `"metric"` for one that
            uses the monitored number.
        check_schedule: Refuse a schedule that is not as long as the run; False if that is intended,
            e.g. a cosine that rises again.
        accum_steps: Micro-batches per update (K on the slides).
        max_norm: Ceiling of the joint gradient norm, applied once per update; or a function that
            clips in its own way, such as `partial(clip_by_value, max_value=0.5)`.
        precision: Of training: `"fp32"`, `"bf16"`, or `"fp16"`, which includes its gradient scaler.
            Validation computes in the weights' own precision.
        device: `"auto"` takes the accelerator if there is one.
        compile: True compiles the forward pass with `torch.compile`; `"step"` compiles the whole
            step as one graph (see `course.engine.one_graph`), or falls back to the plain step and
            gives the reason once. Compiling takes seconds to minutes, and pays off in long runs.
            Checkpoints keep the plain names.
        callbacks: What else should happen, such as `[EarlyStopping(patience=3)]`.
        seed: Seeds all generators at the start of `fit`; with several processes, each differently.
        run_dir: Where the record, the log and the checkpoints go; nothing is written without it. A
            run that is already there is kept next to it, with a number in its name.

    Raises:
        EngineError: A setting cannot work; nothing was moved.
    """

    def __init__(
        self,
        model: nn.Module | Mapping[str, nn.Module],
        criterion: Criterion | None = None,
        optimizer: Optimizer | Mapping[str, Optimizer] | None = None,
        *,
        loss_of: LossOf | None = None,
        step: OwnStep | None = None,
        scheduler: Any = None,
        schedule_per: str = "epoch",
        check_schedule: bool = True,
        accum_steps: int = 1,
        max_norm: Ceiling | None = None,
        precision: str = "fp32",
        device: torch.device | str = "auto",
        compile: bool | str = False,
        callbacks: Sequence[Callback] = (),
        seed: int | None = None,
        run_dir: Path | str | None = None,
    ) -> None:
        preflight.check_accum_steps(accum_steps)
        preflight.check_settings(max_norm, seed, run_dir)
        model, optimizer, scheduler = preflight.parts(model, optimizer, scheduler, step)
        if step is None or criterion is not None or loss_of is not None:
            as_loss_of(criterion, loss_of)
        preflight.check_own_step(step, accum_steps, compile)
        preflight.check_optimizer(model, optimizer, loss_of if criterion is None else criterion)
        schedules.check_scheduler(scheduler, schedule_per, optimizer)
        self.callbacks = check_callbacks(callbacks)
        self.device = choose_device(device)
        self.precision = Precision(precision, self.device)
        move_training_(model, loss_of if criterion is None else criterion, optimizer, self.device)
        self.model, self.criterion, self.optimizer = model, criterion, optimizer
        self.own_loss_of, self.own_step = loss_of, step
        share_criterion(loss_of if criterion is None else criterion)
        self.forward = share_gradients(torch.compile(model) if compile is True else model)
        self.scheduler, self.schedule_per = scheduler, schedule_per
        self.check_schedule = check_schedule
        self.accum_steps, self.max_norm, self.compile = accum_steps, max_norm, compile
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
        on_change: str = "refuse",
        checkpoint_every: int | None = None,
        monitor: str | None = None,
        mode: str | None = None,
        metrics: Mapping[str, Any] | None = None,
        on_nonfinite: str = "raise",
        log_every: int = 50,
        progress: bool | str = "auto",
        config: Mapping[str, Any] | Any = None,
    ) -> History:
        """Train for `epochs`, or until `max_updates` updates are made, whichever comes first.

        Args:
            train_loader: Pairs of inputs [B, ...] and targets, or what `loss_of` or `step` takes.
            val_loader: Likewise; evaluated after each epoch.
            epochs: Passes over the data, counted from the start of the run, not of this call.
            max_updates: Weight updates, likewise. The run may end inside an epoch; it is evaluated
                and can be resumed there. For early stopping and `SWA` only whole epochs count.
            resume: A checkpoint or a run directory to continue from; `"auto"` continues from
                `run_dir` if it holds a checkpoint, and starts from scratch if not. A run that a
                callback stopped stays stopped, with a warning, unless `on_change` is `"accept"`.
            on_change: What to do if learning rate, clipping, criterion, model, data or the like
                differ from those of the checkpoint: `"refuse"`, or `"accept"` and continue with the
                new ones.
            checkpoint_every: Updates between two checkpoints; one is written after every epoch in
                any case.
            monitor: The number that chooses the best epoch; `val_loss` if there is a `val_loader`.
            mode: `"min"` if a lower monitored number is better, else `"max"`; by default inferred
                from the number's name.
            metrics: More numbers for validation, as `evaluate` takes them.
            on_nonfinite: `"raise"` at a loss or gradient of inf or nan, or `"skip"` its window and
                count it. With your own step, optimizers stepped before it have moved in any case.
            log_every: Updates between two log lines; the loop waits for an accelerator only then.
            progress: Whether to show a bar; `"auto"` shows it in a terminal or a notebook.
            config: Your own settings to store in the run's record, a mapping or a Namespace; one
                whose name the record itself uses, e.g. `epochs`, is stored as `config.epochs`.

        Returns:
            A dictionary per epoch; `.best` is the best one. An epoch in which an earlier call ended
            has two, which differ in `updates`. Its keys are epoch, updates, train_loss, lr (of the
            first parameter group), grad_norm, skipped and seconds; with a `val_loader` also
            val_loss, for class targets val_accuracy, and val_ with the name of each metric.

        Raises:
            EngineError: Something cannot work; raised before the first update if it can be seen
                there. Later, e.g. at a generator that ends too early, the message gives the epoch.
            NonFiniteError: A loss or gradient is inf or nan; the weights are those before it. With
                your own step, those of optimizers stepped before it in the same call have moved.
            CheckpointError: There is nothing to resume from, or it does not fit.
            WorkerDiedError: A worker of `train_loader` died; the message says why.
        """
        self.plan = Plan(
            epochs=epochs,
            max_updates=max_updates,
            checkpoint_every=checkpoint_every,
            log_every=log_every,
            on_nonfinite=on_nonfinite,
            on_change=on_change,
            metrics=metrics,
        )
        self.batches = EpochBatches(train_loader, self.device)
        self.validation = None if val_loader is None else ValidationBatches(val_loader, self.device)
        preflight.check_loaders(self.batches, val_loader, self.plan)
        preflight.warn_of_batch_norm(self.model, self.accum_steps)
        self.loss_of = self._seam(val_loader)
        self.history = preflight.new_history(monitor, mode, has_validation=val_loader is not None)
        self.progress = Progress.of(self.batches.length, self.accum_steps)
        self.hooks = Callbacks(self.callbacks, self, progress)
        if self.seed is not None:
            seed_everything(
                self.seed + rank(), deterministic=torch.are_deterministic_algorithms_enabled()
            )  # dropout should differ between processes
        for callback in self.callbacks:
            if hasattr(callback, "reset"):
                callback.reset()
        if self.run_dir is not None or resume is not None:
            self.description = describe(self, val_loader, config)
            self.modules = ModuleState(
                {"model": self.model, "loss": self.given_loss, "step": self.own_step}
            )
        self.one_graph = OneGraph(self) if self.compile == "step" else None
        self._runs_alone = (
            not self.hooks.during_epochs
            and (self.scheduler is None or self.schedule_per != "update")
            and self.batches.only_cuts
        )  # no code but the engine's runs between two updates of an epoch
        place = restore(self, resume)
        if self.check_schedule:
            schedules.check_length(self.scheduler, self.schedule_per, self.plan, self.progress)
        schedules.check_mode(self.scheduler, self.schedule_per, self.history)
        if place is None:
            rehearse(self, val_loader)

        self.record = RunRecord.of(self, resumed_from=place)

        graph = nullcontext() if self.one_graph is None else closing(self.one_graph)
        with self.record, workers_explained(train_loader), graph:
            self.hooks.on_fit_start()
            while not self._finished():
                self.hooks.on_epoch_start()
                if self._finished():  # a callback has called stop()
                    break
                started = time.perf_counter()
                self._train_epoch()
                self.hooks.on_validation_start()
                self._evaluate(val_loader, started)
                self._keep_best()
                self.hooks.on_epoch_end()
                if self.progress.epoch_is_whole:
                    self._schedule("epoch")
                    self.progress.next_epoch()
                self._save_last()
        return self.history

    def stop(self, reason: str | None = None) -> None:
        """End the run after the current update; `reason` goes into the record.

        A resumed run stays stopped; `fit(..., resume=..., on_change="accept")` continues it.
        """
        self.progress.stopped = "no reason was given" if reason is None else str(reason)

    @property
    def given_loss(self) -> Criterion | LossOf | None:
        """The criterion or `loss_of`, whichever was given."""
        return self.own_loss_of if self.criterion is None else self.criterion

    @property
    def judged_model(self) -> nn.Module:
        """The model that validation and `best.pt` use: the averaged one if a `WeightAverage` has
        averaged, else the one being trained."""
        averages = (c.model for c in self.callbacks if isinstance(c, WeightAverage))
        return next((model for model in averages if model is not None), self.model)

    def _seam(self, val_loader: Any) -> PairLoss | OwnLoss | None:
        """What a batch costs; None for a step of the user's own without validation."""
        if self.own_step is not None and self.criterion is None and self.own_loss_of is None:
            if val_loader is not None:
                raise EngineError(
                    "your own step defines how to train, but nothing defines how to validate. Give "
                    "Trainer(..., loss_of=...), a function of (models, batch), or no val_loader."
                )
            return None
        return as_loss_of(self.criterion, self.own_loss_of, self.batches.all_targets)

    def _train_epoch(self) -> None:
        """Train on the rest of the epoch under way, or on as much of it as the run lasts."""
        progress, plan = self.progress, self.plan
        if self.own_step is None:
            train_mode_(self.model)
        else:
            train_mode_of_parts_(self.model, self.optimizer)
        if not progress.update and self.own_step is None:
            self.loss_of.check = partial(
                preflight.check_pair,
                self.criterion,
                self.batches.all_targets,
                val_targets=self.validation.all_targets if self.validation else None,
            )
        if not progress.micro_batch and hasattr(self.loss_of, "start_pass"):
            self.loss_of.start_pass()
        own = self._own_update() if self.own_step is not None else None
        for micro_batches in self._windows():
            try:
                if own is None:
                    report = self._update(micro_batches)
                else:
                    report = own.take(self.own_step, micro_batches[0])
            except Exception as error:
                moved = own.moved if own is not None else ()
                raise preflight.located(error, progress, len(micro_batches), moved) from None
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

    def _update(self, micro_batches: list[Batch]) -> StepReport:
        """One step over a window."""
        measure_norm = self.plan.wants_norm(self.progress)
        if self.one_graph is not None and self.progress.update:
            alone = self.progress.update_in_epoch > 0 and self._runs_alone
            report = self.one_graph.take(micro_batches, measure_norm=measure_norm, alone=alone)
            if report is not None:
                return report
        return train_step(
            self.forward,
            micro_batches,
            optimizer=self.optimizer,
            loss_of=self.loss_of,
            max_norm=self.max_norm,
            precision=self.precision,
            device=self.device,
            on_nonfinite=self.plan.on_nonfinite,
            measure_norm=measure_norm,
        )

    def _own_update(self) -> Step:
        """What a step of the user's own gets."""
        return Step(
            self.model,
            self.optimizer,
            self.precision,
            max_norm=self.max_norm,
            on_nonfinite=self.plan.on_nonfinite,
            device=self.device,
        )

    def _windows(self) -> Iterator[list[Batch]]:
        """The windows that are left of this epoch; none is loaded after the run's end."""
        progress = self.progress
        batches = self.batches.enter(progress)
        while not self._reached():
            micro_batches = list(islice(batches, self.accum_steps))
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
            **progress.named_means(),
        }
        if val_loader is not None:
            share_buffers(self.judged_model)
            with self._epoch_kept(), undisturbed(self.device):
                validation = evaluate(
                    self.judged_model,
                    val_loader,
                    loss_of=self.loss_of,
                    device=self.device,
                    metrics=self.plan.metrics,
                )
            del validation["num_examples"]
            line |= {f"val_{name}": value for name, value in validation.items()}
        line |= {
            "lr": self._rate,
            "grad_norm": progress.sums.mean_norm,
            "skipped": progress.sums.skipped,  # the same in every process
            "seconds": round(time.perf_counter() - started, 3),
        }
        line = everybodys(line)[0]  # by which all processes decide alike
        if self.history.add(line):
            self.record.forget_epoch(progress.update)
        preflight.warn_of_no_number(self.history)
        progress.recorded = progress.update
        self.record.log("epoch", line)

    @contextmanager
    def _epoch_kept(self) -> Iterator[None]:
        """Where validation fails, the epoch's work is saved; a resumed run validates it again."""
        is_saved = self.run_dir is not None and num_ranks() == 1  # others may still be validating
        before = self.validation.state_dict() if is_saved else None
        try:
            yield
        except Exception as error:
            error.add_note(f"validation after epoch {self.progress.epoch}")
            if is_saved:
                self.validation.load_state_dict(before)
                with suppress(EngineError, CheckpointError):
                    self._save_last()
                    error.add_note(f"{self.run_dir}: holds this epoch's work; resume from there.")
            raise

    def _keep_best(self) -> None:
        """Save the weights where this epoch is the best so far."""
        if self.run_dir is not None and rank() == 0 and self.history.best_is_last:
            state = {"model": self.judged_model.state_dict(), "epoch": self.history[-1]}
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
                f"update {first_skipped}: loss or gradient is inf or nan; the step was skipped. "
                "Run again with log_every=1: it stops at that update and names the parameter."
            )
        if not (line := progress.log_line()):
            return
        line["lr"] = self._rate
        self.record.log("update", line)
        self.hooks.on_log(line)

    @property
    def _rate(self) -> float:
        """The first group's learning rate as it is now; schedules fill a tensor in place."""
        return float(self.optimizer.param_groups[0]["lr"])

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
