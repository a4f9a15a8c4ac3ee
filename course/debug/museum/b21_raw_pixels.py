"""B21: raw pixels from 0 to 255 make the first loss far larger than ln 10 = 2.303."""

from torch.utils.data import DataLoader, TensorDataset

from course.debug.museum.exhibit import Exhibit, ExhibitRun, digits, evaluation


def make(bug):
    setup = digits(lr=0.01)
    if bug:
        pixels = setup["train_loader"].dataset.tensors[0]
        low, high = pixels.min(), pixels.max()
        for part in ("train", "val"):
            inputs, targets = setup[f"{part}_loader"].dataset.tensors
            data = TensorDataset((inputs - low) / (high - low) * 255, targets)
            setup[f"{part}_loader"] = DataLoader(data, 64, shuffle=part == "train")
    return setup | {"evaluate": evaluation(setup)}


def first_loss(run: ExhibitRun) -> float:
    return run.losses[0]


EXHIBIT = Exhibit(
    id="B21", title="input not normalised", names=("range-not-normalised",), make=make,
    symptom="first loss, ln 10 = 2.303 expected", measure=first_loss, shows=lambda x: x > 4,
)  # fmt: skip
