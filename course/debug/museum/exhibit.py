"""What an exhibit is: one tiny training run on digits, with a bug as a switch.

exhibit = museum.exhibit("B01")
print(exhibit.show())      # symptom with and without the bug, evidence, fix, curve
exhibit.plot()             # the same as a figure; in a notebook `exhibit` alone shows both
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any

import torch
from torch import nn

from course.debug.museum import show
from course.debug.probes.report import Finding
from course.state import undisturbed

STEPS = 150


@dataclass(frozen=True)
class ExhibitRun:
    """What one run recorded."""

    losses: list[float]
    """Loss of each step."""
    grad_norms: list[float]
    """Joint gradient norm after each step, as the step left it; 0 where gradients are cleared."""
    setup: dict[str, Any]
    error: Exception | None = None
    """What stopped the run if the bug is not a silent one."""


@dataclass(frozen=True, kw_only=True)
class Exhibit:
    """One bug of the ledger's section B."""

    id: str
    title: str
    names: tuple[str, ...] = ()
    """Class ids under which `diagnose` finds it; none if it does not."""
    why_not: str = ""
    """Why `diagnose` does not name it and what does; given only if there are no names."""
    mend: str = ""
    """Code that fixes it, if no finding of `diagnose` gives it."""
    raises: type[Exception] | None = None
    """What stops the run; None for a silent bug."""
    make: Callable[[bool], dict[str, Any]]
    """The set-up, with the bug or without."""
    symptom: str
    """What is measured, in words."""
    measure: Callable[[ExhibitRun], float]
    shows: Callable[[float], bool]
    """Whether the symptom is there."""
    trace: Callable[[ExhibitRun], list[float]] | None = None
    """A second curve to draw if the loss does not show the bug."""
    trace_label: str = ""
    scaled: str = ""
    """What was made larger or smaller than usual so that the bug shows in so short a run."""

    def __post_init__(self) -> None:
        if bool(self.names) == bool(self.why_not):
            raise ValueError(
                f"{self.id} has names={self.names} and why_not={self.why_not!r}. Give names where "
                "diagnose finds the bug, else say in why_not what catches it."
            )

    def run(self, bug: bool, steps: int = STEPS) -> ExhibitRun:
        """Train a few steps, from the same seed with the bug and without."""
        run = ExhibitRun([], [], {})
        try:
            with seeded():
                run.setup.update(self.make(bug))
                self._train(run, steps)
        except Exception as error:
            if self.raises is None or not isinstance(error, self.raises):
                raise
            return replace(run, error=error)
        return run

    def _train(self, run: ExhibitRun, steps: int) -> None:
        for batch in islice(epochs(run.setup["train_loader"]), steps):
            run.losses.append(float(run.setup["train_step"](batch)))
            grads = [p.grad for p in run.setup["model"].parameters() if p.grad is not None]
            run.grad_norms.append(math.sqrt(sum(float(g.pow(2).sum()) for g in grads)))

    @cached_property
    def runs(self) -> tuple[ExhibitRun, ExhibitRun]:
        """The run with the bug and the run without it; computed once."""
        return self.run(True), self.run(False)

    @cached_property
    def both(self) -> tuple[float, float]:
        """The symptom with the bug and without it."""
        with seeded():
            with_bug, healthy = self.runs
            return self.measure(with_bug), self.measure(healthy)

    @property
    def drawn(self) -> tuple[Callable[[ExhibitRun], list[float]], str]:
        """The most telling curve and its label: the trace, else the loss."""
        if self.trace is not None:
            return self.trace, self.trace_label
        return (lambda run: run.losses), "loss of the batch"

    def diagnosis(self, bug: bool) -> list[Finding]:
        """What `diagnose` says about the set-up."""
        from course.debug.diagnose import diagnose

        with seeded():
            return diagnose(self.make(bug)).alarms

    def show(self) -> str:
        """Symptom, evidence, fix and curve as text."""
        return show.as_text(self)

    def plot(self) -> Any:
        """Both runs side by side, as a matplotlib Figure."""
        return show.as_figure(self)

    def _repr_html_(self) -> str:
        return show.as_html(self)


@contextmanager
def seeded() -> Iterator[None]:
    """Inside, torch draws from seed 0; afterwards its generator continues where it was."""
    with undisturbed():
        torch.manual_seed(0)
        yield


def digits(model: nn.Module | None = None, lr: float = 0.1) -> dict[str, Any]:
    """The set-up that all exhibits share: digits, a small network, SGD, cross-entropy."""
    from course.data.datasets import load

    train, val = load("digits").loaders(64)
    model = model or nn.Sequential(
        nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10)
    )
    setup = {
        "model": model, "loss_fn": nn.CrossEntropyLoss(), "train_loader": train,
        "val_loader": val, "num_classes": 10, "task": "classification",
        "optimizer": torch.optim.SGD(model.parameters(), lr),
    }  # fmt: skip
    return setup | {"train_step": healthy_step(setup), "evaluate": evaluation(setup)}


def epochs(loader: Iterable[Any]) -> Iterator[Any]:
    """Batches of one epoch after another; ends if an epoch has none."""
    empty = False
    while not empty:
        empty = True
        for batch in loader:
            empty = False
            yield batch


def healthy_step(setup: dict[str, Any]) -> Callable[[Any], float]:
    """Clear, forward, loss, backward, step."""

    def train_step(batch: Any) -> float:
        inputs, targets = batch
        setup["model"].train()
        setup["optimizer"].zero_grad()
        loss = setup["loss_fn"](setup["model"](inputs), targets)
        loss.backward()
        setup["optimizer"].step()
        return loss.item()

    return train_step


def evaluation(setup: dict[str, Any], *, train_mode: bool = False) -> Callable[[], dict]:
    """Mean loss over the validation examples."""

    def evaluate() -> dict[str, float]:
        model, total, count = setup["model"], 0.0, 0
        model.train(train_mode)
        with torch.no_grad():
            for inputs, targets in setup["val_loader"]:
                total += setup["loss_fn"](model(inputs), targets).item() * len(targets)
                count += len(targets)
        model.train()
        return {"val_loss": total / count}

    return evaluate


def accuracy(run: ExhibitRun) -> float:
    """Share of the validation examples that the model, in the state it was left in, gets right."""
    inputs, targets = run.setup["val_loader"].dataset.tensors
    with torch.no_grad():
        return float((run.setup["model"](inputs).argmax(1) == targets).float().mean())


def head_moved(run: ExhibitRun) -> float:
    """Largest change of a weight of the head since `setup["head_at_start"]`."""
    moved = run.setup["model"][-1].weight.detach() - run.setup["head_at_start"]
    return float(moved.abs().max())


def final_loss(run: ExhibitRun) -> float:
    """Mean loss of the last twenty steps."""
    return sum(run.losses[-20:]) / 20


def steps_made(run: ExhibitRun) -> float:
    """Steps before the run stopped."""
    return float(len(run.losses))


def norms(run: ExhibitRun) -> list[float]:
    """Gradient norm after each step."""
    return run.grad_norms
