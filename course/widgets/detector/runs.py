"""One small training run with any of six bugs switched on, and everything its log would show.

Source: Training-loop chapter, c5; ledger S06, T19, B01, B05, B07, B15, B17, B22.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course.claims.lab import saved_bytes
from course.data import load
from course.debug.switched import SwitchedLoop
from course.engine import evaluation_mode
from course.worked.seeded import seeded

BUGS = {
    "uncleared": "zero_grad() is never called",
    "asleep": "no train() after a validation",
    "kept": "the log keeps tensors with their graphs",
    "stale": "head replaced after the optimizer was built",
    "leaked": "validation images are trained on",
    "elsewhere": "the batch stays on another device",
}
"""The chapter's six bugs, as a colleague would find them in the code."""
UPDATES, EVERY = 64, 8
"""Updates of a run, and updates between two validations."""
NUM_TRAIN, NUM_VAL, NUM_UNSEEN = 160, 80, 400
"""Training images; validation images; images that no run sees before the end."""
BATCH_SIZE, LR = 16, 0.1


@dataclass
class Log:
    """The log of one run."""

    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    """Joint gradient norm at each update."""
    val_at: list[int] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    """Accuracy on the validation images."""
    kilobytes: list[float] = field(default_factory=list)
    """Bytes held after each validation: weights, gradients and the graphs of kept losses."""
    unseen: float | None = None
    """Final accuracy on images that no run uses for training or validation."""
    error: str = ""
    """The error that ended the run, if any."""


@dataclass(frozen=True)
class Images:
    """The parts of the digits that a run uses."""

    train: tuple[Tensor, Tensor]
    val: tuple[Tensor, Tensor]
    unseen: tuple[Tensor, Tensor]


@cache
def images(leaked: bool) -> Images:
    """Training, validation and unseen images; with a leak, training also has validation images."""
    data = load("digits", seed=0)
    inputs, targets = data.train_inputs.flatten(1), data.train_targets
    ends = [0, NUM_TRAIN, NUM_TRAIN + NUM_VAL, NUM_TRAIN + NUM_VAL + NUM_UNSEEN]
    train, val, unseen = (
        (inputs[low:high], targets[low:high])
        for low, high in pairwise(ends)
    )  # fmt: skip
    if leaked:
        own = NUM_TRAIN - NUM_VAL
        train = tuple(
            torch.cat([part[:own], seen]) for part, seen in zip(train, val, strict=True)
        )  # fmt: skip
    return Images(train, val, unseen)


@cache
def run(bugs: frozenset[str], seed: int) -> Log:
    """Train with these `BUGS` switched on; an error that a bug raises is noted in the log."""
    log, parts = Log(), images("leaked" in bugs)
    with seeded(seed):
        loop = _loop(bugs)
        model = loop.model
        graphs: list[Tensor] = []
        held = 0
        model.train()
        for update, (inputs, targets) in enumerate(_batches(parts.train), start=1):
            try:
                loss, norm = loop.update(inputs, targets)
            except RuntimeError as error:
                log.error = f"update {update}: {type(error).__name__}: {str(error).split('!')[0]}"
                return log
            log.norms.append(norm)
            log.losses.append(loss.item())
            graphs += [loss] if "kept" in bugs else []
            if update % EVERY == 0:
                held += _validate(model, parts.val, log, graphs, bugs)
                log.val_at.append(update)
                log.kilobytes.append((_weights_and_gradients(model) + held) / 1e3)
        with evaluation_mode(model):
            log.unseen = _accuracy(model(parts.unseen[0]), parts.unseen[1])
    return log


def _loop(bugs: frozenset[str]) -> SwitchedLoop:
    """A network with dropout and batch norm, and its updates."""
    body = [nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.5)]
    return SwitchedLoop(
        nn.Sequential(*body, nn.Linear(64, 10)),
        nn.Linear(64, 10),
        partial(torch.optim.SGD, lr=LR),
        **{switch: switch in bugs for switch in ("stale", "uncleared", "elsewhere")},
    )


def _batches(train: tuple[Tensor, Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    inputs, targets = train
    made = 0
    while True:
        for rows in torch.randperm(len(targets)).split(BATCH_SIZE):
            if made == UPDATES:
                return
            made += 1
            yield inputs[rows], targets[rows]


def _validate(
    model: nn.Module,
    val: tuple[Tensor, Tensor],
    log: Log,
    graphs: list[Tensor],
    bugs: frozenset[str],
) -> int:
    """Measure the accuracy; bytes that a kept validation loss holds from now on."""
    inputs, targets = val
    model.eval()
    held = 0
    if "kept" in bugs:

        def forward() -> None:
            graphs.append(F.cross_entropy(model(inputs), targets))

        held = saved_bytes(forward, without=[*model.parameters(), *model.buffers(), inputs])
    with torch.no_grad():
        log.accuracies.append(_accuracy(model(inputs), targets))
    if "asleep" not in bugs:
        model.train()
    return held


def _accuracy(logits: Tensor, targets: Tensor) -> float:
    return (logits.argmax(dim=1) == targets).float().mean().item()


def _weights_and_gradients(model: nn.Module) -> int:
    """Bytes of the weights, and of their gradients as they lie there."""
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    return sum(tensor.nbytes for tensor in (*model.parameters(), *grads))
