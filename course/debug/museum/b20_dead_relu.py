"""B20: biases far below zero switch a whole layer off; the layers before it get no gradient."""

import torch

from course.debug.museum.exhibit import Exhibit, ExhibitRun, digits


def make(bug):
    setup = digits()
    with torch.no_grad():
        setup["model"][1].bias.sub_(60.0 if bug else 0.0)
    return setup


def first_gradient(run: ExhibitRun) -> float:
    return float(run.setup["model"][1].weight.grad.abs().max())


EXHIBIT = Exhibit(
    id="B20", title="dead ReLU", names=("dead-relu",), make=make,
    symptom="largest gradient of the first layer", measure=first_gradient,
    shows=lambda x: x == 0,
)  # fmt: skip
