"""B28: a checkpoint with other than plain values in it is refused by the safe way of loading."""

import io
import pickle
from pathlib import PurePosixPath

import torch

from course.debug.museum.exhibit import Exhibit, digits, healthy_step, steps_made

SAVED_AT = 75


def make(bug):
    setup = digits()
    inner, made = healthy_step(setup), []

    def train_step(batch):
        if len(made) == SAVED_AT:
            folder, file = PurePosixPath("runs/first"), io.BytesIO()
            state = {"model": setup["model"].state_dict(), "folder": folder if bug else str(folder)}
            torch.save(state, file)
            file.seek(0)
            loaded = torch.load(file, weights_only=True)
            setup["model"].load_state_dict(loaded["model"])
        made.append(1)
        return inner(batch)

    return setup | {"train_step": train_step}


EXHIBIT = Exhibit(
    id="B28", title="checkpoint that safe loading refuses", make=make,
    raises=pickle.UnpicklingError,
    why_not="it comes to light at the first resume; the error says which type is refused.",
    mend='state["folder"] = str(folder)  # plain values only; keep weights_only=True',
    symptom="steps of 150 made", measure=steps_made, shows=lambda x: x < 150,
)  # fmt: skip
