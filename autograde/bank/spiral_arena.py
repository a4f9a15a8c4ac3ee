"""04a.arena: three spirals down to a loss of 0.1 in as few updates as possible."""

import torch
from torch import nn

from autograde.kinds import Tune
from course.analysis.race import losses_of
from course.data import load
from course.engine.schedules import warmup_cosine_factor

OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
MOST = 400
"""Updates of a run."""


def train(settings, seed):
    """One run on the spirals; minus the loss over all training points, after every update."""
    kind, momentum = OPTIMIZERS[settings["optimizer"]], settings["momentum"]
    sgd = settings["optimizer"] == "sgd"
    more = {"momentum": momentum, "nesterov": momentum > 0} if sgd else {}

    def make_model():
        wide = nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()
        return nn.Sequential(*wide, nn.Linear(64, 3))

    def make_optimizer(model):
        return kind(model.parameters(), settings["lr"], **more)

    losses = losses_of(load("spirals"), make_model, make_optimizer, seed=seed,
                       factor=lambda update: factor(update, settings))  # fmt: skip
    return (-loss for loss in losses)


def factor(update, settings):
    """Of the rate: a rise over `warmup` updates, then constant, or a cosine down to 0."""
    if settings["schedule"] == "constant":
        return min((update + 1) / max(settings["warmup"], 1), 1.0)
    return warmup_cosine_factor(update, warmup=settings["warmup"], total=end_of_cosine(settings))


def end_of_cosine(settings):
    """Updates after which the rate is 0; a warm-up is followed by one update at least."""
    return max(settings["length"], settings["warmup"] + 1)


def stands_still(settings):
    """Of a cosine that ends before the run does."""
    end = end_of_cosine(settings)
    if settings["schedule"] == "constant" or end >= MOST:
        return ""
    return f"The cosine ends after {end} updates: from then on the rate is 0 and no weight moves."


EXERCISE = Tune(
    id="04a.arena", title="three spirals in as few updates as you can",
    source='Chapter 6, experiments 1, 2 and 5; annotated-loop essay, "The efficient loop"',
    ledger=("X56", "X39", "X40", "X43", "T17"),
    minutes=12, difficulty=2, read=("F72", "F73", "F76", "course.lr_finder.lr_find"),
    hints=(
        "Try one optimizer at a time, and first tune its rate, with a constant schedule and no "
        "warm-up.",
        "Adam's usual 1e-3 is far too small here. Try ten times that, then three times more or "
        "less.",
        "Adam between 0.02 and 0.04, with a short warm-up; a cosine must not end before the goal.",
    ),
    question="A network of 2-64-64-3 on three spirals, batches of 64. `momentum` is for SGD, with "
             "Nesterov; else it may stay None. For sgd without momentum give 0. `warmup` counts "
             "the updates in which the rate rises. A cosine is at 0 after `length` updates, the "
             "warm-up among them, and stays there; a constant schedule needs no `length`. The loss "
             "is that over all training points.",
    settings={"optimizer": [*OPTIMIZERS], "lr": (1e-5, 10.0), "momentum": (0.0, 0.99),
              "schedule": ["constant", "cosine"], "warmup": (0, 50), "length": (20, 400)},
    only_with={"momentum": ("optimizer", "sgd"), "length": ("schedule", "cosine")},
    train=train, quality=-0.1, unit="training loss of 0.1", most=MOST, remark=stands_still,
    thresholds=((400, 1), (200, 1), (135, 1)),
    good={"optimizer": "adam", "lr": 0.03, "momentum": 0.0, "schedule": "constant", "warmup": 15,
          "length": 400},
)  # fmt: skip
