"""B40: a learning-rate sweep moves the model itself, and training starts from ruined weights."""

import copy

import torch

from course.debug.museum.exhibit import Exhibit, ExhibitRun, digits, healthy_step


def sweep(setup):
    """One step at each rate from 1e-3 to 100, as the range test makes them."""
    batch = next(iter(setup["train_loader"]))
    for lr in torch.logspace(-3, 2, 40).tolist():
        optimizer = torch.optim.SGD(setup["model"].parameters(), lr)
        healthy_step(setup | {"optimizer": optimizer})(batch)


def make(bug):
    setup = digits()
    before = copy.deepcopy(setup["model"].state_dict())
    sweep(setup)
    if not bug:
        setup["model"].load_state_dict(before)
    return setup


def first_loss(run: ExhibitRun) -> float:
    return run.losses[0]


EXHIBIT = Exhibit(
    id="B40", title="learning rates swept, weights not restored", make=make,
    names=("bad-start",),
    mend="before = copy.deepcopy(model.state_dict())\n...  # the sweep\n"
    "model.load_state_dict(before)",
    symptom="first loss, ln 10 = 2.303 expected", measure=first_loss, shows=lambda x: x > 5,
)  # fmt: skip
