"""03a.arena: digits at 95 % in as few updates as possible."""

import torch
from torch import nn

from autograde.kinds import Tune
from course.data import InMemoryLoader, load

OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


def train(settings, seed):
    """One run on the digits; the accuracy on validation after every update."""
    data = load("digits")
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).double()
    inputs, targets = data.train_inputs.double(), data.train_targets
    loader = InMemoryLoader(inputs, targets, batch_size=64, shuffle=True, seed=seed)
    val_inputs = data.val_inputs.double()
    more = {"momentum": settings["momentum"]} if settings["optimizer"] == "sgd" else {}
    optimizer = OPTIMIZERS[settings["optimizer"]](model.parameters(), settings["lr"], **more)
    while True:
        for inputs, targets in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
            with torch.no_grad():
                right = model(val_inputs).argmax(dim=1) == data.val_targets
            yield right.double().mean().item()


EXERCISE = Tune(
    id="03a.arena", title="95 % in as few updates as you can",
    source='Chapter 3, "Arena"', ledger=("S09", "F84"),
    minutes=10, difficulty=2, read=("course.lr_finder.lr_find", "T17"),
    hints=(
        "Begin with the rate: the largest one at which the loss does not explode is near the "
        "fastest.",
        "A loss that jumps about means the rate is too large; one that creeps, that it is about "
        "ten times too small.",
        "Try Adam with a rate ten times its usual 1e-3, then a little less and a little more.",
    ),
    question="Train a 64-64-10 network on the digits, in batches of 64. `momentum` is for sgd "
    "only; for sgd without it give 0, and with adam and adamw it may stay None.",
    settings={"optimizer": [*OPTIMIZERS], "lr": (1e-6, 10.0), "momentum": (0.0, 0.99)},
    only_with={"momentum": ("optimizer", "sgd")},
    train=train, quality=0.95, unit="validation accuracy of 95 %", most=180,
    thresholds=((180, 1), (80, 1), (32, 1)),
    good={"optimizer": "adam", "lr": 0.02, "momentum": 0.0},
)  # fmt: skip
