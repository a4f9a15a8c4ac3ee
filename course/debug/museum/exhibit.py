"""What an exhibit is: one tiny training run on digits, with a bug as a switch.

exhibit = museum.exhibit("B01")
exhibit.show()             # symptom with and without the bug, evidence, fix
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, cycle, islice
from typing import Any

import torch
from torch import nn

from course.debug.probes.report import Finding

STEPS = 150


@dataclass(frozen=True)
class Run:
    """What one run left behind."""

    losses: list[float]
    """Loss of each step."""
    grad_norms: list[float]
    """Joint gradient norm after each step, as the step left it; 0 where gradients are cleared."""
    setup: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Exhibit:
    """One bug of the ledger's section B."""

    id: str
    title: str
    names: tuple[str, ...]
    """Class ids under which `diagnose` finds it."""
    make: Callable[[bool], dict[str, Any]]
    """The set-up, with the bug or without."""
    symptom: str
    """What is measured, in words."""
    measure: Callable[[Run], float]
    shows: Callable[[float], bool]
    """Is the symptom there?"""

    def run(self, bug: bool, steps: int = STEPS) -> Run:
        """Train a few steps, from the same seed either way."""
        torch.manual_seed(0)
        setup = self.make(bug)
        losses, norms = [], []
        batches = chain.from_iterable(cycle([setup["train_loader"]]))
        for batch in islice(batches, steps):
            losses.append(float(setup["train_step"](batch)))
            grads = [p.grad for p in setup["model"].parameters() if p.grad is not None]
            norms.append(math.sqrt(sum(float(g.pow(2).sum()) for g in grads)))
        return Run(losses, norms, setup)

    def both(self) -> tuple[float, float]:
        """The symptom with the bug and without it."""
        return self.measure(self.run(True)), self.measure(self.run(False))

    def diagnosis(self, bug: bool) -> list[Finding]:
        """What `diagnose` says of the set-up."""
        from course.debug.diagnose import diagnose

        torch.manual_seed(0)
        return diagnose(self.make(bug)).alarms

    def show(self) -> str:
        """Symptom, evidence and fix as text."""
        with_bug, without = self.both()
        seen = f"{self.symptom}: {with_bug:.4g} with the bug, {without:.4g} without"
        lines = [f"{self.id}  {self.title}", f"  symptom  {seen}"]
        for finding in self.diagnosis(True)[:1]:
            lines += [f"  found    {finding.id}: {finding.message}"]
            lines += [f"  fix      {line}" for line in finding.fix.splitlines()]
        return "\n".join(lines)

    def plot(self) -> Any:
        """Loss curves with and without the bug, as a matplotlib Figure."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(5, 3), layout="constrained")
        axes = figure.subplots()
        for bug, label in ((False, "without the bug"), (True, "with the bug")):
            axes.plot(self.run(bug).losses, label=label)
        axes.set(xlabel="step", ylabel="loss of the batch", title=f"{self.id}  {self.title}")
        axes.legend()
        return figure


def digits(model: nn.Module | None = None, lr: float = 0.1) -> dict[str, Any]:
    """The run all exhibits share: digits, a small network, SGD, cross-entropy."""
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


def final_loss(run: Run) -> float:
    """Mean loss of the last twenty steps."""
    return sum(run.losses[-20:]) / 20
