"""B17: the head is replaced after the optimizer was built, and the new one is never trained."""

import torch
from torch import nn

from course.debug.museum.exhibit import Exhibit, digits, head_moved, healthy_step


def make(bug):
    setup = digits()
    setup["model"][-1] = nn.Linear(64, 10)
    if not bug:
        setup["optimizer"] = torch.optim.SGD(setup["model"].parameters(), 0.1)
    return setup | {
        "train_step": healthy_step(setup),
        "head_at_start": setup["model"][-1].weight.detach().clone(),
    }


EXHIBIT = Exhibit(
    id="B17", title="layer replaced after the optimizer was built",
    names=("optimizer-stale-params",), make=make, symptom="largest change of a weight of the head",
    measure=head_moved, shows=lambda x: x == 0,
)  # fmt: skip
