"""B30: the last batch holds one example, and batch norm has nothing to compute a variance from."""

from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from course.debug.museum.exhibit import Exhibit, digits, steps_made


def make(bug):
    setup = digits(
        nn.Sequential(
            nn.Flatten(), nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10)
        )
    )
    inputs, targets = setup["train_loader"].dataset.tensors
    data = TensorDataset(inputs[: 10 * 64 + 1], targets[: 10 * 64 + 1])
    setup["train_loader"] = DataLoader(data, 64, shuffle=True, drop_last=not bug)
    return setup


EXHIBIT = Exhibit(
    id="B30", title="batch norm and a last batch of one", names=("batch-of-one",), make=make,
    raises=ValueError, mend="DataLoader(dataset, 64, shuffle=True, drop_last=True)",
    symptom="steps of 150 made", measure=steps_made, shows=lambda x: x == 10,
)  # fmt: skip
