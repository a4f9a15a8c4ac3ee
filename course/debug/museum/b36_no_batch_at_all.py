"""B36: drop_last with fewer examples than a batch leaves no batch: training is over at once."""

from torch.utils.data import DataLoader, Subset

from course.debug.museum.exhibit import Exhibit, digits, steps_made


def make(bug):
    setup = digits()
    few = Subset(setup["train_loader"].dataset, range(40))
    return setup | {"train_loader": DataLoader(few, 64, shuffle=True, drop_last=bug)}


EXHIBIT = Exhibit(
    id="B36", title="drop_last with less than one batch", names=("empty-loader",), make=make,
    symptom="steps of 150 made", measure=steps_made, shows=lambda x: x == 0,
)  # fmt: skip
