"""B33: noise seeded only by the example, not also by the epoch, is the same in every epoch."""

import torch
from torch.utils.data import DataLoader, Dataset

from course.debug.museum.exhibit import Exhibit, ExhibitRun, digits


class Noisy(Dataset):
    def __init__(self, data, bug):
        self.data, self.bug, self.reads = data, bug, 0

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        inputs, target = self.data[index]
        epoch = 0 if self.bug else self.reads // len(self)
        self.reads += 1
        draw = torch.Generator().manual_seed(index + epoch * len(self))
        return inputs + 0.3 * torch.randn(inputs.shape, generator=draw), target


def make(bug):
    setup = digits()
    data = torch.utils.data.Subset(setup["train_loader"].dataset, range(256))
    setup["train_loader"] = DataLoader(Noisy(data, bug), 64, shuffle=True)
    return setup


def difference(run: ExhibitRun) -> float:
    """Largest difference between the first example in two epochs."""
    noisy = run.setup["train_loader"].dataset
    first = noisy[0][0]
    noisy.reads += len(noisy)
    return float((noisy[0][0] - first).abs().max())


EXHIBIT = Exhibit(
    id="B33", title="the same augmentation each epoch", make=make,
    why_not="a data set that generates its examples from their index also draws the same numbers, "
    "and rightly so, so this is a note and not an alarm; a data set's own generator in workers is "
    "an alarm.",
    mend="seed = base_seed + epoch * len(dataset) + index  # and the worker's id, if there are "
         "workers",
    symptom="largest difference of one example between two epochs", measure=difference,
    shows=lambda x: x == 0,
)  # fmt: skip
