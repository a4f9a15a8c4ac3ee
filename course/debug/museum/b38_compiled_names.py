"""B38: a compiled model's state_dict has other names, and a plain model does not know them."""

import torch

from course.debug.museum.exhibit import Exhibit, digits, healthy_step, steps_made

SAVED_AT = 75


def make(bug):
    setup = digits()
    inner, made = healthy_step(setup), []

    def train_step(batch):
        if len(made) == SAVED_AT:
            model = setup["model"]
            trained = torch.compile(model) if bug else model  # no code is made before it is called
            model.load_state_dict(trained.state_dict())
        made.append(1)
        return inner(batch)

    return setup | {"train_step": train_step}


EXHIBIT = Exhibit(
    id="B38", title="state_dict of the compiled model", make=make, raises=RuntimeError,
    why_not="it comes to light at the first resume; the error lists names that begin "
    "with _orig_mod.",
    mend="model.compile()  # in place, keeps the names; or save the model that was compiled",
    symptom="steps of 150 made", measure=steps_made, shows=lambda x: x < 150,
)  # fmt: skip
