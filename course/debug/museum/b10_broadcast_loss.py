"""B10: outputs [B, 1] against targets [B] broadcast to [B, B]; predicting the mean is then best.

The task is to predict a digit's ink from its pixels: a sum, which a linear model learns at once.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from course.debug.museum.exhibit import Exhibit, ExhibitRun, digits, healthy_step


def ink(loader: DataLoader, column: bool) -> DataLoader:
    """The same images with their standardised sum as target."""
    inputs = loader.dataset.tensors[0]
    total = inputs.flatten(1).sum(dim=1)
    total = (total - total.mean()) / total.std()
    return DataLoader(TensorDataset(inputs, total[:, None] if column else total), 64, shuffle=True)


def make(bug):
    setup = digits(nn.Sequential(nn.Flatten(), nn.Linear(64, 1)), lr=0.01)
    setup |= {"loss_fn": nn.MSELoss(), "num_classes": None, "task": "regression"}
    for part in ("train_loader", "val_loader"):
        setup[part] = ink(setup[part], column=not bug)
    del setup["evaluate"]
    return setup | {"train_step": healthy_step(setup)}


def error_of_mean(run: ExhibitRun) -> float:
    """Mean squared error over the validation examples, each against its own target."""
    inputs, targets = run.setup["train_loader"].dataset.tensors
    with torch.no_grad():
        return float((run.setup["model"](inputs).flatten() - targets.flatten()).pow(2).mean())


EXHIBIT = Exhibit(
    id="B10", title="outputs [B, 1] against targets [B]", names=("broadcast-loss",), make=make,
    symptom="squared error after 150 steps; predicting the mean gives 1", measure=error_of_mean,
    shows=lambda x: x > 0.8,
)  # fmt: skip
