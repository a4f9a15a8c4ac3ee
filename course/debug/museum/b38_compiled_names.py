"""B38: a compiled model's state_dict has different names, which a plain model does not know."""

import copy

import torch

from course.debug.museum.exhibit import Exhibit, digits, healthy_step, steps_made

SAVED_AT = 75


def make(bug):
    setup = digits()
    inner, made = healthy_step(setup), []

    def save():
        model = setup["model"]
        trained = torch.compile(model) if bug else model  # no code is made before it is called
        return copy.deepcopy(trained.state_dict())

    def train_step(batch):
        if len(made) == SAVED_AT:
            setup["model"].load_state_dict(save())
        made.append(1)
        return inner(batch)

    load = setup["model"].load_state_dict
    return setup | {"train_step": train_step, "save": save, "load": load}


EXHIBIT = Exhibit(
    id="B38", title="state_dict of the compiled model", make=make, raises=RuntimeError,
    names=("checkpoint-refused",),
    mend="model.compile()  # in place, keeps the names; or save the model that was compiled",
    symptom="steps of 150 made", measure=steps_made, shows=lambda x: x < 150,
)  # fmt: skip
