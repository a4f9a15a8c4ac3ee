"""The training simulator: a small network on spirals, and next to it a copy with one change.

Both see the same batches. The healthy update is the engine's `train_step`; the bugs that break the
order of its operations are written out. Nothing here draws from torch's global generator, so a cell
that runs at the same time is not affected.

Source: Training-loop chapter, c6; annotated-loop essay, lead animation; ledger S07, S10, X39-X43,
F72-F76.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from course.claims.lab import saved_bytes, spirals
from course.engine import NonFiniteError, evaluation_mode, grad_norm, train_step
from course.widgets.base.frames import as_bytes, thinned
from course.widgets.base.settings import Checked, choice, decades, slider

CRITERION = nn.CrossEntropyLoss()
HIDDEN = 64
EVERY = 10
"""Updates between two evaluations."""
EPOCHS = 20
"""Length of the cosine schedule; a run ends some time after it."""
CELLS = 36
"""Cells per side of the decision-boundary picture."""
LEVELS = 8
"""Levels of confidence that a cell can show."""
REACH = 1.15
"""Both axes of the picture range from minus to plus this."""
CURVE = 80
"""Points of a curve that are sent to a page."""
MOST_KEPT = 40_000_000
"""Bytes of kept graphs at which a run stops."""

BUGS = {
    "none": "no bug",
    "uncleared": "zero_grad() is never called",
    "late clear": "zero_grad() between backward() and step()",
    "softmax twice": "softmax before the cross-entropy",
    "graph": "evaluation without no_grad()",
    "graph kept": "the same, with the losses kept",
}

OTHERS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "adam 1": {"optimizer": "Adam", "lr": 1.0},
    "sgd": {"optimizer": "SGD"},
    "sgd 0.3": {"optimizer": "SGD", "lr": 0.3},
    "uncleared": {"bug": "uncleared"},
    "graph": {"bug": "graph"},
    "graph kept": {"bug": "graph kept"},
    "cosine": {"schedule": "cosine"},
}
"""The second network: like the first, except for this."""


@dataclass(frozen=True, kw_only=True)
class Settings(Checked):
    """How the first network trains, and what is different in the second."""

    num_examples: int = slider(500, (100, 250, 500, 1_000, 2_000), "data", unit="points")
    batch_size: int = slider(16, (1, 4, 8, 16, 32, 64, 128), "batch size", unit="points")
    optimizer: str = choice(
        "Adam", ("SGD", "momentum", "Adam"), "optimizer", names=("SGD", "SGD, momentum 0.9", "Adam")
    )
    lr: float = slider(0.01, decades(1e-4, 10), "learning rate", hot=True)
    schedule: str = choice(
        "constant",
        ("constant", "cosine"),
        "schedule",
        names=("constant", f"cosine over {EPOCHS} epochs"),
    )
    bug: str = choice("none", tuple(BUGS), "bug", names=tuple(BUGS.values()))
    other: str = choice(
        "nothing",
        tuple(OTHERS),
        "compare with",
        names=(
            "nothing",
            "experiment 1: Adam at rate 1",
            "experiment 2: SGD at the same rate",
            "experiment 2, fair: SGD at 0.3",
            "experiment 3: no zero_grad()",
            "experiment 4: no no_grad()",
            "experiment 4, losses kept",
            "experiment 5: cosine",
        ),
    )
    speed: int = choice(
        4,
        (1, 4, 16, 0),
        "speed",
        names=("1 update per picture", "4 updates", "16 updates", "as fast as it can"),
        hot=True,
    )
    seed: int = slider(0, (0, 1, 2, 3, 4), "seed")


class Learner:
    """One network with its optimizer, its bug, and its measurements."""

    def __init__(self, settings: Settings, updates_per_epoch: int) -> None:
        self.settings = settings
        self.model = network(settings.seed)
        twice = settings.bug == "softmax twice"
        self.trained = nn.Sequential(self.model, nn.Softmax(1)) if twice else self.model
        """The outputs as the loss receives them."""
        self.optimizer = make_optimizer(settings.optimizer, self.model, settings.lr)
        self.total = EPOCHS * updates_per_epoch
        self.updates = 0
        self.losses: list[float] = []
        self.norms: list[float] = []
        self.evaluated: list[tuple[int, float, float, float]] = []
        """(updates, accuracy, loss, live bytes) of each evaluation."""
        self.kept: list[Tensor] = []
        self.kept_bytes = 0
        self.peak_bytes = 0
        self.stopped = ""

    def set_lr(self, lr: float) -> None:
        """Set a new rate, from which a schedule continues."""
        self.settings = self.settings.changed(lr=lr)

    @property
    def lr(self) -> float:
        """The rate of the next update."""
        if self.settings.schedule == "constant":
            return self.settings.lr
        done = min(self.updates / self.total, 1.0)
        return self.settings.lr * 0.5 * (1 + math.cos(math.pi * done))

    def step(self, inputs: Tensor, targets: Tensor) -> None:
        """One update, with the bug if there is one."""
        if self.stopped:
            return
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr
        try:
            loss, norm = self._update(inputs, targets)
        except NonFiniteError as fault:
            loss, norm = math.nan, math.nan
            self.stopped = f"Update {self.updates + 1}: {fault}"
        self.updates += 1
        self.losses.append(loss)
        self.norms.append(norm)
        if not math.isfinite(loss) and not self.stopped:
            self.stopped = f"Update {self.updates}: the loss is {loss}. Reset, with a smaller rate."

    def _update(self, inputs: Tensor, targets: Tensor) -> tuple[float, float]:
        bug = self.settings.bug
        if bug not in ("uncleared", "late clear"):
            report = train_step(self.trained, [(inputs, targets)], CRITERION, self.optimizer)
            return report.loss, report.grad_norm
        loss = CRITERION(self.model(inputs), targets)
        loss.backward()  # adds to what is there, since it was not cleared
        norm = grad_norm(self.model.parameters()).item()
        if bug == "late clear":
            self.optimizer.zero_grad()
        self.optimizer.step()
        return loss.item(), norm

    def evaluate(self, inputs: Tensor, targets: Tensor) -> None:
        """Accuracy and loss on the validation part, and the bytes alive afterwards."""
        with_graph = self.settings.bug in ("graph", "graph kept")
        result: list[Tensor] = []

        def forward() -> None:
            logits = self.model(inputs)
            result[:] = [logits, CRITERION(logits, targets)]

        if with_graph:
            saved = saved_bytes(forward, without=self.model.parameters())
        else:
            saved = 0
            with evaluation_mode(self.model):
                forward()
        logits, loss = result
        if self.settings.bug == "graph kept":
            self.kept.append(loss)
            self.kept_bytes += saved
            if self.kept_bytes > MOST_KEPT:
                self.stopped = f"The kept losses hold {MOST_KEPT / 1e6:.0f} MB of graphs: stopped."
        accuracy = (logits.argmax(1) == targets).float().mean().item()
        live = self.live_bytes()
        self.peak_bytes = max(self.peak_bytes, live + saved)
        self.evaluated.append((self.updates, accuracy, loss.item(), live))

    def live_bytes(self) -> int:
        """Bytes of weights, gradients, optimizer state and graphs that are still referenced."""
        parameters = list(self.model.parameters())
        tensors = [*parameters, *(p.grad for p in parameters if p.grad is not None)]
        for state in self.optimizer.state.values():
            tensors += [value for value in state.values() if isinstance(value, Tensor)]
        return sum(tensor.nbytes for tensor in tensors) + self.kept_bytes

    @torch.no_grad()
    def boundary(self, points: Tensor) -> str:
        """Class and confidence of each cell, one byte each."""
        confidence, classes = self.model(points).nan_to_num().softmax(1).max(1)
        level = ((confidence - 1 / 3) * 1.5 * (LEVELS - 1)).round().clamp(0, LEVELS - 1)
        return as_bytes((classes * LEVELS + level).to(torch.uint8))

    def frame(self, points: Tensor) -> dict[str, Any]:
        """The data that the page draws."""
        loss_at, losses = thinned(self.losses, CURVE)
        norm_at, norms = thinned(self.norms, CURVE)
        reached = [at for at, accuracy, _, _ in self.evaluated if accuracy >= 0.9]
        at, accuracy, loss, live = self.evaluated[-1]
        seen = self.evaluated[:: max(1, len(self.evaluated) // 30)]
        return {
            "name": named(self.settings),
            "updates": self.updates,
            "lr": self.lr,
            "loss": self.losses[-1] if self.losses else math.nan,
            "norm": self.norms[-1] if self.norms else math.nan,
            "accuracy": accuracy,
            "val_loss": loss,
            "evaluated_at": at,
            "reached": reached[0] if reached else None,
            "live_kb": live / 1e3,
            "peak_kb": self.peak_bytes / 1e3,
            "boundary": self.boundary(points),
            "loss_at": [index + 1 for index in loss_at],
            "losses": _short(losses),
            "norm_at": [index + 1 for index in norm_at],
            "norms": _short(norms),
            "seen_at": [one[0] for one in seen],
            "accuracies": _short([one[1] for one in seen]),
            "live": _short([one[3] / 1e3 for one in seen]),
            "stopped": self.stopped,
        }


class SimulatedRun:
    """One or two learners over the same batches."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        inputs, targets, self.val_inputs, self.val_targets = spirals(
            settings.seed, settings.num_examples, 150
        )
        self.inputs, self.targets = inputs, targets
        self.generator = torch.Generator().manual_seed(settings.seed)
        self.per_epoch = -(-settings.num_examples // settings.batch_size)
        self.learners = [Learner(one, self.per_epoch) for one in both(settings)]
        self.updates, self.rows, self.stopped = 0, [], ""
        ticks = torch.linspace(-REACH, REACH, CELLS)
        y, x = torch.meshgrid(ticks.flip(0), ticks, indexing="ij")
        self.cells = torch.stack([x.flatten(), y.flatten()], dim=1)
        few = slice(0, 500)  # more points would hide the boundary
        self.points = {
            "x": inputs[few, 0].tolist(),
            "y": inputs[few, 1].tolist(),
            "class": targets[few].tolist(),
        }
        self._evaluate()

    @property
    def steps_per_frame(self) -> int | None:
        """Steps per frame, from the speed setting."""
        return self.settings.speed or None

    def change(self, settings: Settings) -> None:
        """Change the rate or the speed."""
        if settings.lr != self.settings.lr:
            for learner, one in zip(self.learners, both(settings), strict=True):
                learner.set_lr(one.lr)
        self.settings = settings

    def step(self) -> None:
        """One update of each learner on the next batch."""
        if not self.rows:
            order = torch.randperm(len(self.targets), generator=self.generator)
            self.rows = list(order.split(self.settings.batch_size))[::-1]
        rows = self.rows.pop()
        for learner in self.learners:
            learner.step(self.inputs[rows], self.targets[rows])
        self.updates += 1
        if self.updates % EVERY == 0 or not self.rows:
            self._evaluate()
        self.stopped = self.learners[0].stopped  # if only the second has stopped, the run continues

    def epoch(self) -> Iterator[None]:
        """Train to the end of the epoch."""
        self.step()
        while self.rows and not self.stopped:
            yield
            self.step()

    def _evaluate(self) -> None:
        for learner in self.learners:
            learner.evaluate(self.val_inputs, self.val_targets)

    def frame(self) -> dict[str, Any]:
        """Points, and a frame of each learner."""
        return {
            "points": self.points,
            "epoch": self.updates / self.per_epoch,
            "updates": self.updates,
            "per_epoch": self.per_epoch,
            "learners": [learner.frame(self.cells) for learner in self.learners],
        }


def both(settings: Settings) -> list[Settings]:
    """Settings of the first learner, and of the second if there is one."""
    changes = OTHERS[settings.other]
    first = settings.changed(other="nothing")
    return [first, first.changed(**changes)] if changes else [first]


def network(seed: int) -> nn.Sequential:
    """2-64-64-3 with ReLU, as torch would initialise it, from its own generator."""
    generator = torch.Generator().manual_seed(seed)
    sizes, layers = (2, HIDDEN, HIDDEN, 3), []
    for fan_in, fan_out in pairwise(sizes):
        layer = torch.nn.utils.skip_init(nn.Linear, fan_in, fan_out)
        bound = 1 / math.sqrt(fan_in)
        for parameter in layer.parameters():
            nn.init.uniform_(parameter, -bound, bound, generator=generator)
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def make_optimizer(name: str, model: nn.Module, lr: float) -> torch.optim.Optimizer:
    """SGD, SGD with momentum 0.9, or Adam."""
    if name == "Adam":
        return torch.optim.Adam(model.parameters(), lr=lr)
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9 if name == "momentum" else 0.0)


def named(settings: Settings) -> str:
    """A learner in a few words, for legends."""
    words = f"{settings.optimizer} {settings.lr:g}"
    words += ", cosine" if settings.schedule == "cosine" else ""
    return words + (f", {settings.bug}" if settings.bug != "none" else "")


def says(settings: Settings, frame: dict[str, Any]) -> str:
    """The state of both, in a sentence."""
    stand = "; ".join(
        f"{one['name']}: validation accuracy {float(one['accuracy']):.0%}"
        for one in frame["learners"]
    )
    return f"After {frame['updates']} updates ({float(frame['epoch']):.1f} epochs): {stand}."


def _short(values: list[float]) -> list[float]:
    """Four digits: a curve shows no more."""
    return [float(f"{value:.4g}") for value in values]
