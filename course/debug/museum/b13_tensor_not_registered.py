"""B13: a plain tensor with a gradient is used, but no optimizer or checkpoint contains it."""

import torch
from torch import nn

from course.debug.museum.exhibit import Exhibit, ExhibitRun, digits


class Scaled(nn.Module):
    def __init__(self, bug):
        super().__init__()
        scale = torch.ones(64, requires_grad=True)
        self.scale = scale if bug else nn.Parameter(scale.detach())
        self.body = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, inputs):
        return self.body(inputs.flatten(1) * self.scale)


def make(bug):
    return digits(Scaled(bug))


def scale_moved(run: ExhibitRun) -> float:
    return float((run.setup["model"].scale.detach() - 1).abs().max())


EXHIBIT = Exhibit(
    id="B13", title="tensor not registered", names=("tensor-not-parameter",), make=make,
    symptom="largest change of the scale after 150 steps", measure=scale_moved,
    shows=lambda x: x == 0,
)  # fmt: skip
