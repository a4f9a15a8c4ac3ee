"""What the doctor is given: the user's own objects and callables, if available."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any

from torch import nn
from torch.nn.parameter import is_lazy

REQUIRED = ("model", "optimizer", "train_loader")
CALLED = ("loss_fn", "loss_of", "train_step", "train", "evaluate", "save", "load")
LIKE = 0.88
"""Similarity of two names from which one is taken for the other, misspelt."""


@dataclass
class Setup:
    """A training set-up, as passed to `diagnose`.

    Model, optimizer, train_loader and one of loss_fn, loss_of and train_step are needed; each of
    the others makes more probes possible.

    Args:
        model: `nn.Module`.
        optimizer: `torch.optim.Optimizer`, or a list of them.
        train_loader: Yields (inputs, targets), or anything that `loss_of` or `train_step` takes.
        loss_fn: Takes (outputs, targets), returns a scalar tensor.
        loss_of: Takes (model, batch), returns a `course.engine.Loss` or a scalar tensor.
        val_loader: Yields what `train_loader` does, from data that is not trained on.
        scheduler: From `torch.optim.lr_scheduler`.
        num_classes: Number of classes of a classification.
        task: `classification`, `binary`, `multilabel` or `regression`; None: inferred from the
            targets.
        train_step: Takes a batch of `train_loader`, makes an update, returns the loss.
        train: Takes a number of steps and makes them.
        evaluate: Takes no arguments, returns metrics by name.
        save: `save() -> state` or `save(path)`: the checkpoint as the author makes it.
        load: `load(state)` or `load(path)`: restores it into model, optimizer and scheduler.
        groups: Group of each example: {"train": [...], "val": [...]} or a pair of sequences.
        declared: What is intended: `accumulate=4`, `max_grad_norm=1.0`, `scheduler_unit="batch"`,
            `frozen=[...]`, `label_smoothing=0.1`, `target_parameters=[names]`,
            `shared=[lists of modules]`, `allow=[class ids]`.
        extra: Other objects passed in by name; saved and restored, not examined.
    """

    model: Any
    optimizer: Any
    train_loader: Iterable[Any]
    loss_fn: Callable[..., Any] | None = None
    loss_of: Callable[[Any, Any], Any] | None = None
    val_loader: Iterable[Any] | None = None
    scheduler: Any = None
    num_classes: int | None = None
    task: str | None = None
    train_step: Callable[[Any], Any] | None = None
    train: Callable[[int], Any] | None = None
    evaluate: Callable[[], Any] | None = None
    save: Callable[..., Any] | None = None
    load: Callable[..., Any] | None = None
    groups: Any = None
    declared: Mapping[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)


def as_setup(given: Any) -> Setup:
    """A mapping, a dataclass or any object with these attributes, as a `Setup`.

    Raises:
        ValueError: Model, optimizer, train_loader, or something that gives the loss is missing, or
            one of them is another kind of thing.
    """
    if isinstance(given, Setup):
        _check_kinds(given)
        return given
    names = [item.name for item in fields(Setup) if item.name != "extra"]
    values = dict(given) if isinstance(given, Mapping) else _attributes(given, names)
    missing = [name for name in REQUIRED if values.get(name) is None]
    if all(values.get(name) is None for name in ("loss_fn", "loss_of", "train_step")):
        missing.insert(1, "loss_fn")
    if missing:
        given_names = sorted(name for name, value in values.items() if value is not None)
        raise ValueError(
            f"the set-up has {', '.join(given_names) or 'no parts'}; {', '.join(missing)} missing. "
            "It needs at least model, optimizer, train_loader, and loss_fn (or loss_of(model, "
            "batch), or train_step)."
        )
    known = {name: values[name] for name in names if values.get(name) is not None}
    extra = {name: value for name, value in values.items() if name not in names}
    for name in extra:
        if meant := get_close_matches(name, set(names) - known.keys(), 1, LIKE):
            warnings.warn(
                f"the set-up's {name!r} is not examined. Is it {meant[0]!r}, misspelt?",
                stacklevel=3,
            )
    setup = Setup(**known, extra=extra)
    _check_kinds(setup)
    return setup


def _check_kinds(setup: Setup) -> None:
    """Text, a class or a number in place of a part would only show as checks that cannot run."""
    given, loader = setup.optimizer, setup.train_loader
    if isinstance(given, Mapping):
        given = list(given.values())
    optimizers = given if isinstance(given, (list, tuple, set)) else [given]
    readable = hasattr(loader, "__iter__") or hasattr(loader, "__getitem__")
    called = [(name, getattr(setup, name)) for name in CALLED]
    for name, value, expected, fits in (
        ("model", setup.model, "an nn.Module", isinstance(setup.model, nn.Module)),
        ("train_loader", loader, "batches, e.g. a DataLoader", readable),
        *(("optimizer", o, "an Optimizer", hasattr(o, "param_groups")) for o in optimizers),
        *((name, f, "a function", callable(f)) for name, f in called if f is not None),
    ):
        if isinstance(value, type):
            raise ValueError(
                f"{name} is the class {value.__name__}: expected an object. Pass in "
                f"{value.__name__}(...)."
            )
        if not fits:
            raise ValueError(f"{name} = {value!r:.60}: expected {expected}.")
    if any(map(is_lazy, setup.model.parameters())):
        raise ValueError(
            "the model has lazy layers, whose weights are made by the first forward, which could "
            "not be undone. Call it on one batch first."
        )


def _attributes(given: Any, names: list[str]) -> dict[str, Any]:
    public = {k: v for k, v in getattr(given, "__dict__", {}).items() if not k.startswith("_")}
    return public | {name: getattr(given, name, None) for name in names}
