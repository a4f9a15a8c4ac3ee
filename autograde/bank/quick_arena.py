"""03h.arena: three spirals at 90 % in as few updates as possible."""

import torch
from torch.nn import functional as F

from autograde.kinds import Tune
from course.claims.lab import spirals
from course.widgets.simulator.state import network

OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


def train(settings, seed):
    """One run on 500 points of the spirals; the accuracy on 150 others after every update."""
    inputs, targets, val_inputs, val_targets = spirals(seed, 500, 150)
    inputs, val_inputs, model = inputs.double(), val_inputs.double(), network(seed).double()
    more = {"momentum": settings["momentum"]} if settings["optimizer"] == "sgd" else {}
    optimizer = OPTIMIZERS[settings["optimizer"]](model.parameters(), settings["lr"], **more)
    order = torch.Generator().manual_seed(seed)
    while True:
        rows_of_epoch = torch.randperm(len(targets), generator=order)
        for rows in rows_of_epoch.split(settings["batch_size"]):
            optimizer.zero_grad()
            F.cross_entropy(model(inputs[rows]), targets[rows]).backward()
            optimizer.step()
            with torch.no_grad():
                right = model(val_inputs).argmax(dim=1) == val_targets
            yield right.double().mean().item()


EXERCISE = Tune(
    id="03h.arena", title="90 % in as few updates as you can",
    source="Training-loop chapter, c8", ledger=("X44", "S09", "F84"),
    minutes=12, difficulty=2, read=("course.lr_finder.lr_find", "F84", "F73"),
    hints=(
        "Here you may change the batch size too, and only updates count: what does a larger batch "
        "cost?",
        "Adam at 0.01 with batches of 32 needs a little over 50 updates: the first threshold, and "
        "nearly the second. Change one thing, then another.",
        "All 500 points in one batch, Adam, and a learning rate between 0.02 and 0.1.",
    ),
    question="A 2-64-64-3 network trains on 500 points of three spirals; accuracy is measured on "
    "150 others. `momentum` is for sgd only; else it may stay None. For sgd without momentum "
    "give 0. The chapter's baseline, SGD at 0.01 with batches of 32, does not reach the goal "
    "within 400 updates.",
    settings={"optimizer": [*OPTIMIZERS], "lr": (1e-5, 10.0), "momentum": (0.0, 0.99),
              "batch_size": [16, 32, 64, 128, 250, 500]},
    only_with={"momentum": ("optimizer", "sgd")},
    train=train, quality=0.9, unit="validation accuracy of 90 %", most=200, seeds=(0, 1, 2, 3, 4),
    thresholds=((200, 1), (49, 1), (20, 1)),
    good={"optimizer": "adam", "lr": 0.04, "momentum": 0.0, "batch_size": 500},
)  # fmt: skip
