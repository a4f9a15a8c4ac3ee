"""B29: a pickled model stores the name of its class; once that is renamed, loading fails."""

import io

import torch
from torch import nn

from course.debug.museum.exhibit import Exhibit, digits, healthy_step, steps_made

SAVED_AT = 75


class Net(nn.Sequential):
    """The class under its current name."""


def saved(model: nn.Module, whole: bool) -> io.BytesIO:
    """The file as it was written when the class was still called OldNet."""
    file = io.BytesIO()
    Net.__name__ = Net.__qualname__ = "OldNet"
    globals()["OldNet"] = Net
    try:
        torch.save(model if whole else model.state_dict(), file)
    finally:
        Net.__name__ = Net.__qualname__ = "Net"
        del globals()["OldNet"]
    file.seek(0)
    return file


def make(bug):
    setup = digits(Net(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)))
    inner, made = healthy_step(setup), []

    def train_step(batch):
        if len(made) == SAVED_AT:
            loaded = torch.load(saved(setup["model"], whole=bug), weights_only=not bug)
            setup["model"].load_state_dict(loaded.state_dict() if bug else loaded)
        made.append(1)
        return inner(batch)

    def save(path):
        torch.save(setup["model"] if bug else setup["model"].state_dict(), path)

    def load(path):
        loaded = torch.load(path, weights_only=not bug)
        setup["model"].load_state_dict(loaded.state_dict() if bug else loaded)

    return setup | {"train_step": train_step, "save": save, "load": load}


EXHIBIT = Exhibit(
    id="B29", title="whole model pickled, class renamed later", make=make, raises=AttributeError,
    names=("checkpoint-refused",),
    mend="torch.save(model.state_dict(), path)  # not torch.save(model, path)",
    symptom="steps of 150 made", measure=steps_made, shows=lambda x: x < 150,
)  # fmt: skip
