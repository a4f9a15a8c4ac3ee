"""Checkpoints: what they must contain, what they may contain, and what printed loaders forget."""

from __future__ import annotations

import argparse
import collections
import copy
import dataclasses
import io
import math
import pathlib
import random
import sys
import types
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR

from course.claims.lab import error_of, flat, mlp, relative, spirals
from course.claims.registry import claim
from course.claims.trial import Measured, weigh, weigh_settings


def _saved(value: Any) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return file


def _load_error(value: Any, **options: Any) -> str:
    """The error that torch.load raises for a file holding `value`; empty if it loads."""
    return error_of(lambda: torch.load(_saved(value), **options))


@claim(
    "F105",
    title="A model saved whole breaks on refactoring",
    expected="holds",
    says="A model saved whole cannot be loaded after its class is renamed; a state_dict can.",
)
def whole_model_and_refactoring() -> Measured:
    module = types.ModuleType("lecture_model")
    module.Net = type("Net", (nn.Linear,), {"__module__": "lecture_model"})
    sys.modules["lecture_model"] = module
    try:
        model = module.Net(3, 2)
        whole, state = _saved(model), _saved(model.state_dict())
        default = error_of(torch.load, whole)
        whole.seek(0)
        module.RenamedNet = module.Net
        del module.Net
        renamed = error_of(torch.load, whole, weights_only=False)
        from_state = error_of(lambda: module.RenamedNet(3, 2).load_state_dict(torch.load(state)))
    finally:
        del sys.modules["lecture_model"]
    evidence = {
        "ways that load after the class is renamed, of 2": [renamed, from_state].count(""),
        "whole model raises": renamed or "nothing",
        "state_dict raises": from_state or "nothing",
        "whole model with torch.load's default raises": default or "nothing",
    }
    stated = bool(renamed) and not from_state
    return weigh("ways that load after the class is renamed, of 2", evidence, stated=stated)


@dataclasses.dataclass
class _Config:
    lr: float = 0.1


@claim(
    "F106",
    title="weights_only=True is fine for checkpoints",
    expected="holds if",
    says="Checkpoints can be loaded with weights_only=True.",
    condition="if they hold tensors, numbers, strings and plain containers; NumPy objects, paths, "
    "dataclasses and namespaces are refused",
)
def weights_only_and_checkpoints() -> Measured:
    plain = {
        "tensors": mlp().state_dict(),
        "numbers and strings": {"epoch": 3, "best": 0.9, "name": "run"},
        "lists and sets": [[1, 2], {3}],
        "Python's random state": random.getstate(),
        "torch's random state": torch.get_rng_state(),
    }
    other = {
        "argparse.Namespace": argparse.Namespace(lr=0.1),
        "dataclass": _Config(),
        "Path": pathlib.PurePosixPath("runs"),
        "defaultdict": collections.defaultdict(list),
        "NumPy array": np.ones(2),
        "numpy.float64": np.float64(0.5),
        "NumPy's random state": np.random.get_state(),
    }
    refused = [name for name, value in (plain | other).items() if _load_error(value)]
    evidence = {
        "kinds of content refused, of 12": len(refused),
        "refused": refused,
        "loaded": [name for name in (plain | other) if name not in refused],
    }
    return weigh(
        "kinds of content refused, of 12",
        evidence,
        stated=not refused,
        conditioned=not set(refused) & set(plain),
    )


_EXECUTED: list[str] = []


def _note_execution(what: str) -> str:
    _EXECUTED.append(what)
    return what


class _Payload:
    """Pickles as a call of a function, as a hostile file would."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return _note_execution, ("ran",)


@claim(
    "F107",
    title="torch.load executes code from the file",
    expected="holds if",
    says="torch.load runs whatever code the pickle in the file names.",
    condition="if it is called with weights_only=False, which was the default before torch 2.6",
)
def load_executes_code() -> Measured:
    runs = {}
    for name, options in (("default", {}), ("weights_only=False", {"weights_only": False})):
        _EXECUTED.clear()
        _load_error(_Payload(), **options)
        runs[name] = len(_EXECUTED)
    evidence = {"calls executed by default": runs["default"], "calls executed": runs}
    return weigh(
        "calls executed by default",
        evidence,
        stated=runs["default"] > 0,
        conditioned=runs["weights_only=False"] > 0,
    )


@claim(
    "F56",
    title="A checkpoint costs twice the model on disk",
    expected="holds if",
    says="A checkpoint with the optimizer's state costs twice the model's size on disk.",
    condition="if it means Adam's state in addition to the weights, or the whole file for SGD with "
    "momentum",
)
def checkpoint_size(seed: int) -> Measured:
    sizes = {}
    for name, optimizer_type, options in (
        ("SGD", torch.optim.SGD, {}),
        ("SGD with momentum", torch.optim.SGD, {"momentum": 0.9}),
        ("Adam", torch.optim.Adam, {}),
    ):
        model = mlp(256, 512, 512, 10, seed=seed)
        optimizer = optimizer_type(model.parameters(), lr=0.01, **options)
        model(torch.randn(2, 256)).sum().backward()
        optimizer.step()
        both = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        sizes[name] = _saved(both).getbuffer().nbytes / _saved(both["model"]).getbuffer().nbytes
    held = {f"{name}, the whole file": abs(size - 2) < 0.1 for name, size in sizes.items()}
    held |= {
        f"{name}, in addition to the weights": abs(size - 3) < 0.1 for name, size in sizes.items()
    }
    evidence = {"checkpoint / weights with Adam": sizes["Adam"], "checkpoint / weights": sizes}
    return weigh_settings(
        "checkpoint / weights with Adam",
        evidence,
        held,
        criterion="the size is within 0.1 of twice the weights",
        note="The table does not say which of the two it means; the chapter's script uses Adam.",
    )


class _Training:
    """A run with all that its next step depends on: weights, Adam, cosine, shuffle, dropout."""

    def __init__(self, seed: int, epochs: int = 6) -> None:
        torch.manual_seed(seed)
        self.model = mlp(2, 32, 32, 3, dropout=0.1)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.scheduler = CosineAnnealingLR(self.optimizer, epochs)
        self.inputs, self.targets, _, _ = spirals(seed)

    def train(self, epochs: range) -> None:
        for _ in epochs:
            for rows in torch.randperm(len(self.targets)).split(32):
                loss = F.cross_entropy(self.model(self.inputs[rows]), self.targets[rows])
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
            self.scheduler.step()

    def state(self) -> dict[str, Any]:
        parts = {name: getattr(self, name).state_dict() for name in _PARTS if name != "rng"}
        return copy.deepcopy(parts | {"rng": torch.get_rng_state()})

    def restore(self, state: dict[str, Any], parts: tuple[str, ...]) -> None:
        for part in parts:
            if part == "rng":
                torch.set_rng_state(state["rng"])
            else:
                getattr(self, part).load_state_dict(state[part])


_PARTS = ("model", "optimizer", "scheduler", "rng")


def _interrupted(seed: int, parts: tuple[str, ...], make: type[_Training]) -> float:
    """Relative error of the weights after a stop halfway and a restart with these parts."""
    whole = make(seed)
    whole.train(range(3))
    state = whole.state()
    whole.train(range(3, 6))
    resumed = make(seed + 1000)  # another start, as in a new process
    resumed.inputs, resumed.targets = whole.inputs, whole.targets
    resumed.restore(state, parts)
    resumed.train(range(3, 6))
    return relative(flat(resumed.model), flat(whole.model))


@claim(
    "F108",
    title="The full state makes resuming exact",
    expected="holds",
    says="With model, optimizer, scheduler and RNG restored, a run resumes exactly where it was.",
)
def exact_resume(seed: int) -> Measured:
    runs = {
        "MLP 2-32-32-3 with dropout on spirals, Adam, cosine": (
            _Training, ("optimizer", "scheduler", "rng"),
        ),
        "MLP 2-64-3 on spirals, SGD with momentum, constant": (
            _MomentumTraining, ("optimizer", "rng"),
        ),
    }  # fmt: skip
    full, missing, held = {}, {}, {}
    for name, (make, needed) in runs.items():
        full[name] = _interrupted(seed, _PARTS, make)
        missing[name] = {
            part: _interrupted(seed, tuple(p for p in _PARTS if p != part), make) for part in needed
        }
        held[name] = full[name] == 0 < min(missing[name].values())
    evidence = {
        "weights differ with the full state by": max(full.values()),
        "differ without": missing,
    }
    return weigh_settings(
        "weights differ with the full state by",
        evidence,
        held,
        criterion="with all parts the final weights are equal in every bit, and without any one of "
        "them they differ",
    )


@claim(
    "F109",
    title="The chapter's loader restores the random states it saved",
    expected="does not hold",
    says="Loading a checkpoint restores the random number generators that were saved in it.",
)
def loader_restores_rng(seed: int) -> Measured:
    def draws() -> dict[str, float]:
        numpy_draw = float(np.random.rand())
        return {"torch": torch.rand(()).item(), "numpy": numpy_draw, "python": random.random()}

    saved = {
        "torch_rng": torch.get_rng_state(),
        "numpy_rng": np.random.get_state(),
        "python_rng": random.getstate(),
    }
    file = _saved(saved)
    uninterrupted = draws()
    draws()
    checkpoint = torch.load(file, weights_only=False)  # as printed, then one line for the RNG:
    torch.set_rng_state(checkpoint["torch_rng"])
    resumed = draws()
    restored = {name: resumed[name] == uninterrupted[name] for name in resumed}
    elsewhere = error_of(torch.set_rng_state, saved["torch_rng"].to("meta"))
    evidence = {
        "generators restored, of 3": sum(restored.values()),
        "restored": restored,
        "RNG state mapped off the CPU (stand-in: meta) raises": elsewhere or "nothing",
    }
    return weigh(
        "generators restored, of 3",
        evidence,
        stated=all(restored.values()) and not elsewhere,
        note="NumPy, Python and CUDA states are saved but never read.",
    )


@claim(
    "F110",
    title="Resuming continues where the run stopped",
    expected="does not hold",
    says="The loader returns the saved epoch, and training continues from there where it stopped.",
)
def resume_epoch(seed: int) -> Measured:
    ends, held = {}, {}
    for name, make in (
        ("Adam, cosine", _Training),
        ("SGD with momentum, constant", _MomentumTraining),
    ):
        whole = make(seed)
        whole.train(range(6))
        stopped = make(seed)
        stopped.train(range(3))  # epochs 0, 1, 2
        file = _saved(stopped.state() | {"epoch": 2})
        found = {}
        for first in ("saved epoch", "saved epoch + 1"):
            again = make(seed + 1000)
            again.inputs, again.targets = whole.inputs, whole.targets
            file.seek(0)
            state = torch.load(file, weights_only=True)
            again.restore(state, _PARTS)
            epochs = range(state["epoch"] + first.endswith("+ 1"), 6)
            again.train(epochs)
            apart = relative(flat(again.model), flat(whole.model))
            found[first] = {"epochs trained": 3 + len(epochs), "weights apart": apart}
        ends[name] = found
        held[f"MLP on spirals, {name}, stopped after 3 of 6 epochs"] = (
            found["saved epoch"]["epochs trained"] == 6
        )
    evidence = {
        "epochs trained, of 6 asked": ends["Adam, cosine"]["saved epoch"]["epochs trained"],
        "by run": ends,
    }
    return weigh_settings(
        "epochs trained, of 6 asked",
        evidence,
        held,
        criterion="a run resumed at the epoch that the loader returns does not train any epoch "
        "twice",
        note="The next epoch is the saved one + 1. A cosine schedule that ends at rate 0 hides the "
        "fault.",
    )


class _MomentumTraining(_Training):
    """The same with another network, SGD with momentum, and a constant rate."""

    def __init__(self, seed: int, epochs: int = 6) -> None:
        super().__init__(seed, epochs)
        self.model = mlp(2, 64, 3)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.scheduler = LambdaLR(self.optimizer, lambda _: 1.0)


@claim(
    "F111",
    title="Early stopping after P epochs without improvement",
    expected="holds",
    says="Training stops after `patience` consecutive epochs without improvement.",
)
def early_stopping() -> Measured:
    from course.engine.stopping import EarlyStopping

    def stops_at(losses: list[float], patience: int, min_delta: float = 0.0) -> int:
        """The chapter's rule: a loss below best − min_delta resets the counter."""
        best, waited = math.inf, 0
        for index, loss in enumerate(losses):
            improved = loss < best - min_delta
            best, waited = (loss, 0) if improved else (best, waited + 1)
            if waited >= patience:
                return index
        return -1

    rising = [1, 0.9, 0.8, 0.81, 0.82, 0.83]
    stopper = EarlyStopping(patience=3)
    engine = next(i for i, loss in enumerate(rising) if stopper.update(loss, epoch=i))
    stopped = stops_at(rising, 3)
    never = stops_at([1 / (i + 1) for i in range(20)], 3)
    evidence = {
        "stopped at index, best at 2, patience 3": stopped,
        "the course's engine stops at index": engine,
        "only nan, patience 5, stopped at index": stops_at([math.nan] * 9, 5),
        "falling by 1e-5, min_delta 1e-4, patience 5": stops_at(
            [1 - 1e-5 * i for i in range(9)], 5, 1e-4
        ),
        "always better, stopped at index (-1: never)": never,
    }
    stated = stopped == engine == rising.index(min(rising)) + 3 and never == -1
    return weigh(
        "stopped at index, best at 2, patience 3",
        evidence,
        stated=stated,
        note="NaN does not count as an improvement, and the chapter's checkpoint lacks the "
        "counter.",
    )
