"""B28: a checkpoint that holds anything but tensors and plain values is refused by safe loading."""

import io
import pickle
from pathlib import PurePosixPath

import torch

from course.debug.museum.exhibit import Exhibit, digits, healthy_step, steps_made

SAVED_AT = 75


def make(bug):
    setup = digits()
    inner, made = healthy_step(setup), []

    def save(path):
        folder = PurePosixPath("runs/first")
        state = {"model": setup["model"].state_dict(), "folder": folder if bug else str(folder)}
        torch.save(state, path)

    def load(path):
        setup["model"].load_state_dict(torch.load(path, weights_only=True)["model"])

    def train_step(batch):
        if len(made) == SAVED_AT:
            file = io.BytesIO()
            save(file)
            file.seek(0)
            load(file)
        made.append(1)
        return inner(batch)

    return setup | {"train_step": train_step, "save": save, "load": load}


EXHIBIT = Exhibit(
    id="B28", title="checkpoint that safe loading refuses", make=make,
    raises=pickle.UnpicklingError,
    names=("checkpoint-refused",),
    mend='state["folder"] = str(folder)  # plain values only; keep weights_only=True',
    symptom="steps of 150 made", measure=steps_made, shows=lambda x: x < 150,
)  # fmt: skip
