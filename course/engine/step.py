"""The step: the one place where weights move, and an epoch of steps.

    zero_grad -> per micro-batch: forward -> loss -> backward -> unscale -> clip -> step

Source: Lecture 3, "The training recipe"; the training-loop chapter, "One step"; ledger C01, C02,
C06, F132.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import nn
from torch.optim import Optimizer

from course.engine import preflight
from course.engine.clipping import Ceiling, clip_, grad_norm, parameters_of
from course.engine.distributed import (
    agree,
    average_criterion_,
    joined,
    num_ranks,
    open_window,
    window_end,
)
from course.engine.errors import NonFiniteError
from course.engine.loss_of import LossOf, OwnLoss, PairLoss, as_loss_of
from course.engine.nonfinite import (
    found_nonfinite,
    nonfinite_error,
    remember_buffers,
    restore_buffers,
    skips_by_itself,
)
from course.engine.placement import check_device
from course.engine.precision import FP32, Precision
from course.engine.progress import Progress, StepReport
from course.engine.unprofiled import zero_grad
from course.engine.window import Batch, Criterion, OpenWindow, Window, check_any, windows
from course.state import moved, train_mode_


def train_step(
    model: nn.Module,
    micro_batches: Sequence[Batch],
    criterion: Criterion | None = None,
    optimizer: Optimizer | None = None,
    *,
    loss_of: LossOf | None = None,
    max_norm: Ceiling | None = None,
    precision: Precision = FP32,
    device: torch.device | None = None,
    on_nonfinite: str = "raise",
    measure_norm: bool = True,
) -> StepReport:
    """Make one optimizer step from micro-batches, as from one joined batch.

    Each loss enters with its share of what the whole window holds (examples, unmasked targets,
    class weights), so uneven micro-batches count according to their size. Equality holds if
    examples do not mix (no BatchNorm).

    Args:
        model: In train mode.
        micro_batches: At least one: pairs of inputs [B, ...] and targets, or what `loss_of` takes.
        criterion: Mean- or sum-reduced loss of outputs and targets.
        optimizer: Holds the parameters that move; only their gradients are cleared and clipped.
        loss_of: In place of `criterion`: a function of (model, batch) that returns a `Loss`.
        max_norm: Ceiling of the joint gradient norm, or a function that clips in its own way, such
            as `partial(clip_by_value, max_value=0.5)`; None does not clip.
        precision: How forward and backward compute; fp32 by default.
        device: Where to move the micro-batches; None if they are already there.
        on_nonfinite: `"raise"`, or `"skip"`: no step is taken and the report says so. fp16 always
            skips, because its scaler finds the right scale by trial.
        measure_norm: Measure the norm even if nothing is clipped.

    Raises:
        EngineError: There is no micro-batch, no optimizer, or nothing that defines the loss.
        NonFiniteError: Loss or gradient is inf or nan; the weights are untouched. A fused optimizer
        on an accelerator skips the update by itself and nothing waits for it: then nothing is
        raised, and `found_nonfinite` of the report, a tensor, says so.

    Source: Lecture 3, "Simulating a big batch" and "How gradient clipping works".
    """
    loss_of = as_loss_of(criterion, loss_of)
    preflight.check_is_optimizer(optimizer)
    window = window_of(micro_batches, loss_of, model, device)
    last = len(micro_batches) - 1
    parameters = parameters_of(optimizer)
    step_loss = None
    buffers = remember_buffers(model) if on_nonfinite == "skip" else ()

    zero_grad(parameters)
    for index, batch in enumerate(micro_batches):
        if window.counts_nothing(index):
            continue
        if device is not None:
            batch = moved(batch, device)
        with window_end(model, index == last):
            with precision.autocast:  # forward and loss only
                cost = loss_of(model, batch)
            loss = window.weighted(cost, index)
            precision.backward(loss)  # adds to .grad, so zero_grad stays outside this loop
        loss = loss.detach()  # a tensor: .item() here would wait for the GPU
        step_loss = loss if step_loss is None else step_loss + loss
        if last and loss_of.measured is not None:
            preflight.check_weighing(loss_of.measured)
        del cost  # with it goes the graph, before the next one is built

    average_criterion_(loss_of.criterion, model)
    precision.unscale_(optimizer)  # before anybody measures: norms of scaled gradients mislead
    window.settle_(parameters)
    norm = grad_norm(parameters) if measure_norm or max_norm is not None else None
    found = agree(found_nonfinite(step_loss, norm, parameters), model)
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
            clip_(parameters, norm, max_norm)  # once an update, on the whole window's gradient
        precision.step(optimizer, unless=found)
    return StepReport(window.mean(step_loss), window.counted, norm, found)


def train_one_epoch(
    model: nn.Module,
    loader: Iterable[Batch],
    criterion: Criterion | None = None,
    optimizer: Optimizer | None = None,
    *,
    loss_of: LossOf | None = None,
    accum_steps: int = 1,
    max_norm: Ceiling | None = None,
    device: torch.device | str | None = None,
) -> float:
    """Train once over `loader` and return the mean loss per example.

    Args:
        model: Left in train mode.
        loader: Pairs of inputs [B, ...] and targets, or what `loss_of` takes.
        criterion: Mean- or sum-reduced loss of outputs and targets.
        optimizer: Holds the model's parameters.
        loss_of: In place of `criterion`: a function of (model, batch) that gives a `Loss`.
        accum_steps: Micro-batches per update (K); a trailing window with fewer still makes one.
        max_norm: Ceiling of the joint gradient norm, applied once per update; None does not clip.
        device: Where to move the batches; the model's device by default.

    Raises:
        EngineError: `accum_steps` below 1, a model on a different device, or a loader without a
        batch.
        NonFiniteError: As `train_step`.
    """
    preflight.check_accum_steps(accum_steps)
    device = check_device(model, device)
    loss_of = as_loss_of(criterion, loss_of)
    progress = Progress()
    train_mode_(model)
    for micro_batches in windows(loader, accum_steps):
        report = train_step(
            model,
            micro_batches,
            optimizer=optimizer,
            loss_of=loss_of,
            max_norm=max_norm,
            device=device,
        )
        progress.add(report, len(micro_batches))
    progress.read()
    sums = preflight.check_trained(progress)
    if sums.skipped:  # by a fused optimizer: the epoch waits for the device only here
        raise NonFiniteError(
            f"{sums.skipped} of {progress.update} windows had a loss or gradient of inf or nan. "
            "The fused optimizer skipped these; the others moved the weights. Use fused=False to "
            "stop at the first."
        )
    return sums.mean_loss


def window_of(
    micro_batches: Sequence[Batch],
    loss_of: PairLoss | OwnLoss,
    model: nn.Module,
    device: torch.device | None,
) -> Window | OpenWindow:
    """What each micro-batch counts, where that is known before its loss; else it is found then."""
    # Measured by each process on its own: they may not all know it yet, and must ask together.
    measured_here = loss_of.measured is not None and num_ranks() > 1
    if loss_of.weigher is not None and not measured_here:
        return joined(Window.of(micro_batches, loss_of.weigher), model, device)
    check_any(micro_batches)
    return open_window(len(micro_batches), loss_of.weight, model, device)
