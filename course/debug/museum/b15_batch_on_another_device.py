"""B15: the batch lies on another device than the model; torch refuses, it does not copy slowly.

The other device is the GPU where there is one, else torch's "meta" device, which holds no numbers
and so is refused in the same way.
"""

import torch

from course.debug.museum.exhibit import Exhibit, digits, healthy_step, steps_made

OTHER = "cuda" if torch.cuda.is_available() else "meta"


def make(bug):
    setup = digits()
    inner = healthy_step(setup)

    def train_step(batch):
        inputs, targets = batch
        return inner((inputs.to(OTHER if bug else "cpu"), targets))

    return setup | {"train_step": train_step}


EXHIBIT = Exhibit(
    id="B15", title="model and batch on different devices", make=make,
    names=("wrong-device", "raises"), raises=RuntimeError,
    mend="inputs, targets = inputs.to(device), targets.to(device)",
    symptom="steps of 150 made", measure=steps_made, shows=lambda x: x == 0,
)  # fmt: skip
