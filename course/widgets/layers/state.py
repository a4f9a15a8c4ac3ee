"""One training run done twice: with all five layers as recorded, and with some of them lost.

A layer that was not recorded comes back slightly different, as in practice: no seed was set, a
label was corrected later, weight decay was typed on the command line, the loss was tidied up in the
working tree, another machine's kernel sums in another order. Both runs are trained, and their
losses compared bit by bit.

Source: Lecture 3, "Five layers of reproducibility"; ledger S21, T26.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course.data import load
from course.engine.identity import data_identity, hardware, versions
from course.widgets.base.settings import Checked, slider, steps, toggle
from course.worked.seeded import seeded

LAYERS = ("environment", "seed", "data", "config", "code")
UPDATES = 60
BATCH_SIZE, HIDDEN, LR, MOMENTUM = 32, 32, 0.05, 0.9
DECAY = 1e-4
"""Weight decay that the second run has if its configuration was not recorded."""
CORRECTED = 123
"""The training image whose label was corrected later, if the data were not recorded."""
LINES = {
    True: "loss = F.cross_entropy(logits, targets)",
    False: "loss = -logits.softmax(1).log()[rows, targets].mean()",
}
"""The loss as committed, and as tidied up afterwards: mathematically the same."""
KERNELS = {True: "sums 64 inputs in one go", False: "sums 64 inputs in two halves"}


@dataclass(frozen=True, kw_only=True)
class Settings(Checked):
    """Which layers were recorded, the first run's seed, and the update whose loss is shown."""

    environment: bool = toggle(True, "environment recorded", hint="versions, machine, kernels")
    seed: bool = toggle(True, "seed recorded")
    data: bool = toggle(False, "data recorded", hint="hash, split, preprocessing")
    config: bool = toggle(True, "configuration recorded")
    code: bool = toggle(True, "code committed", hint="a clean working tree")
    first_seed: int = slider(0, steps(0, 4, 1), "seed of the first run")
    at: int = slider(30, steps(1, UPDATES, 1), "look at update")

    @property
    def recorded(self) -> tuple[bool, ...]:
        """Layer by layer."""
        return tuple(getattr(self, name) for name in LAYERS)


@dataclass(frozen=True)
class Trained:
    """A run: its inputs and its results."""

    layers: dict[str, str]
    losses: Tensor
    """Loss of each update's batch, float32, [UPDATES]."""
    weights: Tensor
    """All weights after each update, float32, [UPDATES, W]."""
    accuracy: float
    """Accuracy on the validation images after the last update."""


def frame(settings: Settings) -> dict[str, Any]:
    """Both runs' losses, their distance in bits, where they diverge, and what each layer was."""
    first = train(tuple(True for _ in LAYERS), settings.first_seed)
    second = train(settings.recorded, settings.first_seed)
    apart = bits_apart(first.losses, second.losses)
    moved = (first.weights != second.weights).sum(dim=1)
    place = settings.at - 1
    return {
        "layers": [
            {"name": name, "recorded": on, "first": first.layers[name],
             "second": second.layers[name]}
            for name, on in zip(LAYERS, settings.recorded, strict=True)
        ],
        "runs": [
            {"id": run_id(run), "losses": run.losses, "loss": f"{run.losses[place].item():.9g}",
             "hex": run.losses[place].item().hex(), "bits": bits(run.losses[place]),
             "accuracy": run.accuracy}
            for run in (first, second)
        ],
        "apart": apart,
        "parts_at": _first(apart > 0),
        "weights_part_after": _first(moved > 0),
        "weights_apart": moved[place].item(),
        "num_weights": first.weights.shape[1],
    }  # fmt: skip


@cache
def train(recorded: tuple[bool, ...], first_seed: int) -> Trained:
    """Train once; a layer that was not recorded is the second run's."""
    kept = dict(zip(LAYERS, recorded, strict=True))
    seed = first_seed if kept["seed"] else first_seed + 1_000
    decay = 0.0 if kept["config"] else DECAY
    inputs, targets, val_inputs, val_targets = _digits(kept["data"])
    with seeded(seed):
        model = nn.Sequential(nn.Linear(64, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 10))
        order = torch.cat([torch.randperm(len(inputs)) for _ in range(2)])
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM, weight_decay=decay)
    losses, weights = [], []
    for rows in order.split(BATCH_SIZE)[:UPDATES]:
        loss = _loss(_logits(model, inputs[rows], kept["environment"]), targets[rows], kept["code"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        weights.append(nn.utils.parameters_to_vector(model.parameters()).detach())
    with torch.no_grad():
        right = _logits(model, val_inputs, kept["environment"]).argmax(dim=1) == val_targets
    layers = _words(kept, seed, decay, inputs, targets)
    accuracy = right.float().mean().item()
    return Trained(layers, torch.stack(losses), torch.stack(weights), accuracy)


def _logits(model: nn.Sequential, inputs: Tensor, one_go: bool) -> Tensor:
    """The network's outputs; another machine's kernel sums the first layer in two halves."""
    first, relu, last = model
    if one_go:
        return model(inputs)
    half = inputs.shape[1] // 2
    summed = F.linear(inputs[:, :half], first.weight[:, :half])
    summed = summed + F.linear(inputs[:, half:], first.weight[:, half:])
    return last(relu(summed + first.bias))


def _loss(logits: Tensor, targets: Tensor, committed: bool) -> Tensor:
    """The line of `LINES`."""
    if committed:
        return F.cross_entropy(logits, targets)
    rows = torch.arange(len(targets))
    return -logits.softmax(1).log()[rows, targets].mean()


@cache
def _digits(recorded: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    data = load("digits", seed=0)
    targets = data.train_targets.clone()
    if not recorded:
        targets[CORRECTED] = (targets[CORRECTED] + 1) % 10
    inputs, val_inputs = data.train_inputs.flatten(1), data.val_inputs.flatten(1)
    return inputs, targets, val_inputs, data.val_targets


def _words(
    kept: dict[str, bool], seed: int, decay: float, inputs: Tensor, targets: Tensor
) -> dict[str, str]:
    """What a record would hold about each layer."""
    known, machine = versions(), hardware(torch.device("cpu"))
    line = LINES[kept["code"]]
    identity = data_identity(torch.utils.data.TensorDataset(inputs, targets))
    return {
        "environment": f"Python {known['python']}, torch {known['torch']}, {machine['device']}, "
        f"a kernel that {KERNELS[kept['environment']]}",
        "seed": f"seed {seed}",
        "data": f"{identity['num_examples']:,} examples, hash {identity['hash']}",
        "config": f"lr {LR:g}, momentum {MOMENTUM:g}, batch {BATCH_SIZE}, weight decay {decay:g}",
        "code": f"{hashlib.sha256(line.encode()).hexdigest()[:7]}: {line}",
    }


def run_id(run: Trained) -> str:
    """A name that two runs share only if all five layers are the same."""
    return hashlib.sha256("\n".join(run.layers.values()).encode()).hexdigest()[:8]


def bits_apart(first: Tensor, second: Tensor) -> Tensor:
    """How many float32 numbers two losses are apart: 0 for equal bits, 1 for neighbours."""
    return (first.view(torch.int32).long() - second.view(torch.int32).long()).abs()


def bits(number: Tensor) -> str:
    """The 32 bits as stored, sign first."""
    return f"{number.view(torch.int32).item() & 0xFFFFFFFF:032b}"


def _first(flags: Tensor) -> int | None:
    """The first update for which it holds, counted from 1; None if it never does."""
    places = flags.nonzero()
    return places[0].item() + 1 if len(places) else None


def says(settings: Settings, frame: dict[str, Any]) -> str:
    """Where the runs diverge, and the loss at the update shown."""
    lost = [name for name, on in zip(LAYERS, settings.recorded, strict=True) if not on]
    first, second = (one["hex"] for one in frame["runs"])
    if frame["weights_part_after"] is None:
        same = f"all {UPDATES} losses and all weights have the same bits"
        return (
            f"{_listed(lost)} not recorded, and {same}." if lost else f"All five recorded: {same}."
        )
    return (
        f"{_listed(lost)} not recorded: the losses differ from update {frame['parts_at']} on; at "
        f"update {settings.at}: {first} and {second}."
    )


def _listed(lost: list[str]) -> str:
    return " and ".join(lost).capitalize()
