"""B27: a run resumed from its weights alone starts Adam from scratch: another run (F69).

A second run continues without interruption next to it. If the optimizer's state is loaded too, the
resumed run keeps the same weights bit for bit.
"""

import copy

import torch
from torch import nn

from course.debug.museum.exhibit import Exhibit, ExhibitRun, digits, healthy_step

SAVED_AT = 75


def make(bug):
    setup = digits(nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)))
    setup["optimizer"] = adam(setup["model"])
    whole = {name: setup[name] for name in ("model", "optimizer", "loss_fn")}
    whole = copy.deepcopy(whole)
    uninterrupted, apart = healthy_step(whole), []

    def save():
        names = ("model",) if bug else ("model", "optimizer")
        return copy.deepcopy({name: setup[name].state_dict() for name in names})

    def load(checkpoint):
        setup["optimizer"] = adam(setup["model"])
        for name, state in checkpoint.items():
            setup[name].load_state_dict(state)

    def train_step(batch):
        if len(apart) == SAVED_AT:
            load(save())
        loss = healthy_step(setup)(batch)
        uninterrupted(batch)
        pairs = zip(setup["model"].parameters(), whole["model"].parameters(), strict=True)
        apart.append(max(float((a - b).detach().abs().max()) for a, b in pairs))
        return loss

    return setup | {"train_step": train_step, "apart": apart, "save": save, "load": load}


def adam(model):
    return torch.optim.Adam(model.parameters(), 0.01)


def last_distance(run: ExhibitRun) -> float:
    return run.setup["apart"][-1]


EXHIBIT = Exhibit(
    id="B27", title="resumed from the weights alone", make=make,
    names=("checkpoint-incomplete",),
    mend='checkpoint = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), ...}\n'
    'optimizer.load_state_dict(checkpoint["optimizer"])',
    symptom="largest difference of a weight from the uninterrupted run", measure=last_distance,
    shows=lambda x: x > 1e-3,
    trace=lambda run: run.setup["apart"], trace_label="difference from the uninterrupted run",
)  # fmt: skip
