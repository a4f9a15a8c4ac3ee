"""B14: forward creates a tensor without asking which device its input is on.

The other device is the GPU if there is one, else torch's "meta" device, which holds no numbers and
fails in the same way.
"""

import torch
from torch import nn

from course.debug.museum.exhibit import Exhibit, digits, steps_made

OTHER = "cuda" if torch.cuda.is_available() else "meta"


class Noisy(nn.Module):
    """One layer, with noise on the inputs as augmentation during training."""

    def __init__(self, bug):
        super().__init__()
        self.bug = bug
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

    def forward(self, inputs):
        if self.training:
            device = OTHER if self.bug else inputs.device
            inputs = inputs + 0.1 * torch.randn(inputs.shape, device=device)
        return self.body(inputs)


def make(bug):
    return digits(Noisy(bug))


EXHIBIT = Exhibit(
    id="B14", title="tensor created on another device in forward", make=make,
    names=("wrong-device", "raises"), raises=RuntimeError,
    mend="noise = torch.randn_like(inputs)  # device and type of the input",
    symptom="steps of 150 made", measure=steps_made, shows=lambda x: x == 0,
)  # fmt: skip
