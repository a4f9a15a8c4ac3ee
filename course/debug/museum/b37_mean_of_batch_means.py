"""B37: the mean of batch means gives each example of a short last batch more weight (N55).

Five batches of 71 and one of 4: each of those four weighs as much as 18 of the others.
"""

import torch
from torch.utils.data import DataLoader

from course.debug.museum.exhibit import Exhibit, ExhibitRun, digits


def make(bug):
    setup = digits()
    setup["val_loader"] = DataLoader(setup["val_loader"].dataset, 71)
    return setup | {"evaluate": lambda: {"val_accuracy": accuracy(setup, by_batch=bug)}}


def accuracy(setup, by_batch):
    model, hits, counts = setup["model"], 0.0, 0
    model.eval()
    with torch.no_grad():
        for inputs, targets in setup["val_loader"]:
            right = (model(inputs).argmax(1) == targets).float()
            hits += float(right.mean() if by_batch else right.sum())
            counts += 1 if by_batch else len(targets)
    model.train()
    return hits / counts


def off_by(run: ExhibitRun) -> float:
    """Difference from the accuracy over all validation examples at once."""
    inputs, targets = run.setup["val_loader"].dataset.tensors
    with torch.no_grad():
        right = run.setup["model"].eval()(inputs).argmax(1) == targets
    return abs(run.setup["evaluate"]()["val_accuracy"] - float(right.float().mean()))


EXHIBIT = Exhibit(
    id="B37", title="mean of batch means", names=("metric-batch-mean",), make=make,
    symptom="difference of the accuracy from that over all examples", measure=off_by,
    shows=lambda x: x > 1e-3,
)  # fmt: skip
