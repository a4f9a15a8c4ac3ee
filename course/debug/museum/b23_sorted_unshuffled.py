"""B23: sorted data, no shuffle: each batch holds one class, and the loss has a saw-tooth shape."""

from torch.utils.data import DataLoader, TensorDataset

from course.debug.museum.exhibit import Exhibit, ExhibitRun, digits


def make(bug):
    setup = digits()
    if bug:
        inputs, targets = setup["train_loader"].dataset.tensors
        order = targets.argsort()
        setup["train_loader"] = DataLoader(TensorDataset(inputs[order], targets[order]), 64)
    return setup


def worst_late(run: ExhibitRun) -> float:
    return max(run.losses[-40:])


EXHIBIT = Exhibit(
    id="B23", title="sorted data, not shuffled", names=("single-class-batches",), make=make,
    symptom="largest loss of the last 40 steps", measure=worst_late, shows=lambda x: x > 2.5,
)  # fmt: skip
