"""Preflight: whatever can be found wrong before the first update is reported before it.

Every message gives the value seen, what was expected, and what to try next.

Source: Lecture 3, "The batch contract"; the training-loop chapter, "Bug museum"; ledger C17, C20,
C21, F07-F13, B09, B10, B15-B17, B36.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from numbers import Integral
from os import PathLike
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import Dataset, IterableDataset

from course.data.loading import length_of
from course.engine import schedules
from course.engine.batches import EpochBatches, is_sharded
from course.engine.distributed import num_ranks
from course.engine.errors import EngineError, NonFiniteError
from course.engine.history import History
from course.engine.improvement import direction
from course.engine.loss_of import check_callable
from course.engine.progress import Plan, Progress, Sums
from course.engine.several import Optimizers, Several
from course.engine.weighing import Measured
from course.engine.window import (
    Batch,
    Criterion,
    averages_elements,
    averages_targets,
    ignored_index,
)
from course.whole import check_seed


def check_accum_steps(accum_steps: int) -> None:
    """Check that there is at least one micro-batch per step."""
    if not isinstance(accum_steps, Integral) or isinstance(accum_steps, bool) or accum_steps < 1:
        raise EngineError(
            f"accum_steps = {accum_steps!r}: a step needs at least 1 micro-batch. "
            "For no accumulation, use 1."
        )


def check_settings(max_norm: Any, seed: Any, run_dir: Any) -> None:
    """Check the settings that nothing else checks before the first update."""
    number = isinstance(max_norm, (int, float)) and not isinstance(max_norm, bool)
    if max_norm is not None and not callable(max_norm) and not (number and max_norm > 0):
        raise EngineError(
            f"max_norm = {max_norm!r}: the ceiling must be above 0. Usual values are 0.5 to 5; you "
            "can also give a function that clips. For no clipping, leave it out."
        )
    if seed is not None:
        try:
            check_seed(seed)
        except ValueError as fault:
            raise EngineError(str(fault)) from None
    if run_dir is not None and not isinstance(run_dir, (str, PathLike)):
        raise EngineError(f"run_dir = {run_dir!r}: expected a path, such as 'runs/first'.")


def parts(model: Any, optimizer: Any, scheduler: Any, step: Any) -> tuple[Any, Any, Any]:
    """Model, optimizer and scheduler; for the user's own step several by name.

    Raises:
        EngineError: They are something else.
    """
    if step is not None:
        check_callable("step", step)
        if isinstance(model, Mapping) and not isinstance(model, nn.Module):
            for name, part in model.items():
                check_model(part, f"model {name!r}")
            model = nn.ModuleDict(dict(model))
        if not isinstance(optimizer, Mapping):
            optimizer = {"optimizer": optimizer}
        for part in optimizer.values():
            check_is_optimizer(part)
        optimizer = Optimizers(optimizer)
        if isinstance(scheduler, Mapping):
            scheduler = Several(scheduler)
    check_model(model)
    if step is None:
        if isinstance(optimizer, Mapping):
            raise EngineError(
                f"several optimizers ({', '.join(optimizer)}) need a step that defines the order "
                "in which they move: Trainer(..., step=...), a function of (step, batch)."
            )
        check_is_optimizer(optimizer)
    for one in schedules.each_of(scheduler):
        if not hasattr(one, "step") or isinstance(one, type):
            raise EngineError(
                f"scheduler = {one!r:.60}: expected one of torch.optim.lr_scheduler, built with "
                "the optimizer."
            )
    return model, optimizer, scheduler


def check_model(model: Any, name: str = "model") -> None:
    """Check that it is a module, not a class."""
    if isinstance(model, type):
        raise EngineError(
            f"{name} is the class {model.__name__}. Create an instance: {model.__name__}()."
        )
    if not isinstance(model, nn.Module):
        raise EngineError(
            f"{name} is a {type(model).__name__}, expected an nn.Module. Several by name need "
            "step=...; to use a function, put it into the forward method of a module."
        )


def check_own_step(step: Any, accum_steps: int, compile: bool | str) -> None:
    """Check for settings that do not work with the user's own step."""
    if not isinstance(compile, bool) and compile != "step":
        raise EngineError(f"compile = {compile!r}: expected True, False or 'step'.")
    if step is None:
        return
    if accum_steps > 1:
        raise EngineError(
            f"accum_steps = {accum_steps} with your own step: it gets one batch at a time. Use a "
            "larger batch, or accumulate inside the step."
        )
    if compile is True:
        raise EngineError(
            "compile=True with your own step: compile the models yourself with "
            "torch.compile(model) where it helps."
        )
    if num_ranks() > 1:
        raise EngineError(
            f"your own step in {num_ranks()} processes: their gradients would not be averaged. Run "
            "it in one process."
        )


def check_weighing(measured: Measured) -> None:
    """Check that the weight of each micro-batch in a window is known.

    Raises:
        EngineError: The criterion is neither a sum nor a mean of anything known.
    """
    if measured.known:
        return
    raise EngineError(
        "the criterion's loss of a batch is neither the sum nor a mean of its parts' losses, by "
        "examples or by targets"
        + (f": {measured.numbers}" if measured.numbers else "")
        + ". So micro-batches cannot be weighted to equal the big batch. Give the criterion a "
        "method weight_of(targets) that returns what its mean divides by, or reduce by sum or mean "
        "over examples; or use accum_steps=1."
    )


def new_history(monitor: Any, mode: str | None, *, has_validation: bool) -> History:
    """The empty history, with the number that chooses the best epoch."""
    if monitor is None:
        monitor = "val_loss" if has_validation else "train_loss"
    if not isinstance(monitor, str):
        raise EngineError(f"monitor = {monitor!r}: expected a name, such as 'val_loss'.")
    if monitor.startswith("val_") and not has_validation:
        raise EngineError(
            f"monitor = {monitor!r}: no such number; without a val_loader an epoch has no val_... "
            "numbers. Pass in a val_loader, or monitor 'train_loss'."
        )
    return History(monitor, direction(monitor, mode))


def check_is_optimizer(optimizer: Any) -> None:
    """Check that it is an instance of a torch optimizer whose step needs no closure."""
    if isinstance(optimizer, Optimizer) and type(optimizer).__name__ != "LBFGS":
        return
    if isinstance(optimizer, type):
        raise EngineError(
            f"optimizer is the class {optimizer.__name__}. Create an instance: "
            f"{optimizer.__name__}(model.parameters(), lr=0.1)."
        )
    if isinstance(optimizer, Optimizer):
        raise EngineError(
            "LBFGS evaluates the loss several times per step and needs a closure, which this loop "
            "does not provide. Use SGD or AdamW, or call LBFGS in your own loop."
        )
    if hasattr(optimizer, "step") and hasattr(optimizer, "param_groups"):
        return  # a wrapper round an optimizer
    if optimizer is None:
        raise EngineError(
            "there is no optimizer, so nothing would move. Build it from the model: "
            "SGD(model.parameters(), lr=0.1)."
        )
    if isinstance(optimizer, (list, tuple, Mapping)):
        raise EngineError(
            f"optimizer is a {type(optimizer).__name__} of {len(optimizer)}. Expected one "
            "optimizer. For several, write your own step and name them: Trainer(..., optimizer="
            "{'generator': ..., 'critic': ...}, step=...)."
        )
    raise EngineError(
        f"optimizer is a {type(optimizer).__name__}, expected one of torch.optim."
        + (" The order is model, criterion, optimizer." if callable(optimizer) else "")
    )


def check_optimizer(model: nn.Module, optimizer: Optimizer, criterion: Any = None) -> None:
    """Check that the optimizer moves this model; a warning if only a part of it."""
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
    rebuild = "Build the optimizer from model.parameters() when the model is complete."
    if not held & known:
        raise EngineError(
            f"the optimizer holds {len(held)} tensors but none of the model's {len(known)} "
            f"parameters, so nothing would move. {rebuild}"
        )
    if missing and held - known:
        raise EngineError(
            f"the optimizer holds {len(held - known)} tensors that are not in the model and lacks "
            f"{', '.join(missing[:3])}: was a layer replaced after it was built? {rebuild}"
        )
    if missing:
        warnings.warn(
            f"{len(missing)} trainable parameters are not in the optimizer and will not change: "
            f"{', '.join(missing[:3])}. If this is intended, set requires_grad_(False) on them.",
            stacklevel=3,
        )


def check_loaders(batches: EpochBatches, val_loader: Iterable[Batch] | None, plan: Plan) -> None:
    """Check that both loaders yield batches on every pass, and each process gets its own share."""
    check_loader("train_loader", batches.loader)
    if val_loader is not None:
        check_loader("val_loader", val_loader)
    for name, loader in (("train_loader", batches.loader), ("val_loader", val_loader)):
        if isinstance(loader, Iterator) and plan.epochs is not None and plan.epochs > 1:
            raise EngineError(
                f"{name} is a {type(loader).__name__}, which can be read only once, but epochs = "
                f"{plan.epochs}. Pass in the DataLoader or list itself, not iter(...)."
            )
    for name, length in (("training", batches.length), ("validation", length_of(val_loader))):
        if length == 0:
            raise EngineError(
                f"the {name} loader yields no batch. Is the data set empty, or is drop_last=True "
                "with fewer examples than a batch?"
            )
    if num_ranks() > 1 and not is_sharded(batches.loader):
        raise EngineError(
            f"each of {num_ranks()} processes would train on the same batches. Build the loader "
            "with make_loader(..., rank=rank(), num_ranks=num_ranks()), or a DistributedSampler."
        )


def check_loader(name: str, loader: Any) -> None:
    """Check that a loader can yield batches repeatedly: a DataLoader, or a list of batches."""
    if isinstance(loader, Dataset) and not isinstance(loader, IterableDataset):
        raise EngineError(
            f"{name} is a data set ({type(loader).__name__}), which yields single examples. Make "
            f"batches of it: DataLoader({name.removesuffix('_loader')}_set, batch_size=32)."
        )
    if isinstance(loader, (type, str, bytes, Tensor, Mapping)):
        what = loader.__name__ if isinstance(loader, type) else type(loader).__name__
        raise EngineError(
            f"{name} is a {what}, expected a DataLoader or a list of batches, "
            "such as DataLoader(TensorDataset(inputs, targets), 32)."
        )
    if not (hasattr(loader, "__iter__") or hasattr(loader, "__getitem__")):
        raise EngineError(
            f"{name} is a {type(loader).__name__}, which yields no batches. Expected a DataLoader "
            "or a list of batches."
        )


def check_trained(progress: Progress) -> Sums:
    """Return an epoch's sums if anything was trained in it."""
    sums = progress.sums
    if not progress.micro_batch:
        raise EngineError(
            "the training loader yielded no batch, so nothing was trained. Is the data set empty, "
            "or is it a generator that an earlier epoch used up?"
        )
    if not sums.weight and not sums.skipped:
        raise EngineError(
            f"epoch {progress.epoch}: no target counted, so nothing was learned: each is masked by "
            "the criterion's ignore_index, or its class has weight 0."
        )
    if not sums.weight:
        raise NonFiniteError(
            f"epoch {progress.epoch}: all of its {sums.skipped} windows had a loss or gradient of "
            "inf or nan, so no update was made. Look at the data, then try a smaller lr (under "
            "fp16: bf16)."
        )
    return sums


def warn_of_no_number(history: History) -> None:
    """Warn where the monitored number begins to be nan or inf: such an epoch is never the best."""
    finite = [math.isfinite(value) for value in history.column(history.monitor)[-2:]]
    if not finite[-1] and all(finite[:-1]):
        warnings.warn(
            f"epoch {history[-1]['epoch']}: {history.monitor} is "
            f"{history[-1][history.monitor]}, so it cannot be the best epoch, and no best.pt is "
            "written. Look for nan or inf in the data, or for a metric that divides by 0.",
            stacklevel=4,
        )


def warn_of_batch_norm(model: nn.Module, accum_steps: int) -> None:
    """Warn once of the documented exception: BatchNorm normalises micro-batches, not the window."""
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    if accum_steps > 1 and any(norm.training for norm in norms):
        warnings.warn(
            f"BatchNorm with accum_steps = {accum_steps}: each micro-batch is normalised by its "
            "own mean and variance, so the update is not the big batch's. GroupNorm or LayerNorm "
            "do not mix examples.",
            stacklevel=3,
        )


OF_SEVERAL_PROCESSES = {
    "'DistributedDataParallel' object has no attribute": "With several processes, loss_of gets the "
    "model in a wrapper that averages the gradients where model(...) itself is called. Let forward "
    "return all that the loss needs, instead of calling parts such as model.head(...).",
    "find_unused_parameters": "With several processes, every parameter that is not frozen must be "
    "used in every loss: the trainer leaves find_unused_parameters off. Freeze what is not used: "
    "part.requires_grad_(False).",
}
"""What torch says of its wrapper, and what it means here."""


def located(
    error: Exception, progress: Progress, num_micro_batches: int, moved: Sequence[str] = ()
) -> Exception:
    """Add to an error in which epoch and at which batches it happened.

    Args:
        moved: Optimizers that the user's own step had stepped before it.
    """
    first = progress.micro_batch
    last = first + num_micro_batches - 1
    batches = f"batch {first}" if first == last else f"batches {first} to {last}"
    where = f"epoch {progress.epoch}, {batches} (from 0)"
    stepped = f"In this update, {' and '.join(moved)} had already stepped"
    if type(error) in (NonFiniteError, EngineError):  # a class of the user's takes what it takes
        return type(error)(f"{where}: {error}" + (f" {stepped}." if moved else ""))
    kept = "the weights are as they were before this update"
    error.add_note(f"{where}: {stepped if moved else kept}.")
    for words, explained in OF_SEVERAL_PROCESSES.items():
        if words in str(error):
            error.add_note(explained)
    return error


def check_pair(
    criterion: Criterion,
    all_targets: Tensor | None,
    outputs: Any,
    targets: Any,
    *,
    val_targets: Tensor | None = None,
) -> None:
    """Check outputs and targets before the criterion gets them.

    Args:
        all_targets: Every target of a data set of tensors: all its labels are checked, not just one
            batch's.

    Raises:
        EngineError: They do not fit; the message says what was seen and how to fix it.
    """
    if targets is None:
        raise EngineError(
            "targets are None: there is nothing to compare the outputs with. For an autoencoder "
            "let the dataset return (inputs, inputs), or define the loss of a batch with "
            "loss_of=..."
        )
    if not (isinstance(outputs, Tensor) and isinstance(targets, Tensor)):
        return
    known = averages_targets(criterion) or averages_elements(criterion)
    if known and not targets.ndim and outputs.ndim:
        raise EngineError(
            f"targets are one number for outputs {list(outputs.shape)}: these are single examples, "
            "not batches. Make batches of them: DataLoader(examples, batch_size=32)."
        )
    if averages_targets(criterion):
        _check_classes(criterion, all_targets, outputs, targets)
        if val_targets is not None:
            _check_labels(criterion, val_targets, outputs, "validation labels")
    elif averages_elements(criterion):
        check_shapes(outputs, targets)


def _check_classes(
    criterion: Criterion, all_targets: Tensor | None, outputs: Tensor, targets: Tensor
) -> None:
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
    _check_labels(criterion, targets if all_targets is None else all_targets, outputs, "labels")


def _check_labels(criterion: Criterion, labels: Tensor, outputs: Tensor, what: str) -> None:
    """Check that each label is one of the classes that the model has outputs for."""
    if labels.is_floating_point():
        return
    num_classes = outputs.shape[1] if outputs.ndim > 1 else outputs.shape[0]
    kept = labels[labels != ignored_index(criterion)]
    if len(kept) and not 0 <= kept.min() <= kept.max() < num_classes:
        raise EngineError(
            f"{what} run from {kept.min()} to {kept.max()}, but the model has {num_classes} "
            f"outputs: expected 0 to {num_classes - 1}. Count classes from 0, or widen the last "
            "layer."
        )


def check_shapes(outputs: Tensor, targets: Tensor) -> None:
    """Check that outputs and targets, compared number by number, have the same shape.

    Raises:
        EngineError: They would be broadcast, or targets are not numbers like the outputs.
    """
    if outputs.shape != targets.shape:
        raise EngineError(
            f"outputs are {list(outputs.shape)} and targets {list(targets.shape)}: they would be "
            "broadcast, and each output compared with every target. Use outputs.squeeze(-1) or "
            "targets.unsqueeze(-1)."
        )
    if not targets.is_floating_point():
        raise EngineError(
            f"targets are {targets.dtype}: this criterion expects floating-point numbers like the "
            "outputs. Use targets.float()."
        )
