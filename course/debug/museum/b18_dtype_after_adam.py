"""B18: the model changes its dtype after Adam has stepped; Adam's moments keep the old one."""

import torch

from course.debug.museum.exhibit import Exhibit, digits, healthy_step, steps_made


def make(bug):
    setup = digits()
    model = setup["model"]
    if not bug:
        model.double()
    setup["optimizer"] = torch.optim.Adam(model.parameters(), 1e-3, foreach=False)
    inner = healthy_step(setup)
    made = []

    def train_step(batch):
        inputs, targets = batch
        if bug and len(made) == 20:
            model.double()
        made.append(1)
        return inner((inputs.to(next(model.parameters()).dtype), targets))

    del setup["evaluate"]
    return setup | {"train_step": train_step}


EXHIBIT = Exhibit(
    id="B18", title="dtype changed after Adam has stepped", names=("raises",), make=make,
    raises=RuntimeError, symptom="steps of 150 made", measure=steps_made, shows=lambda x: x < 150,
    mend="model.double()\noptimizer = torch.optim.Adam(model.parameters())  # after, not before",
)  # fmt: skip
