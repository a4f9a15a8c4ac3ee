"""B15: the batch is on a different device from the model; torch raises, it does not copy silently.

The other device is the GPU if there is one, else torch's "meta" device, which holds no numbers and
fails in the same way.
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
