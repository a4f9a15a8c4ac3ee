"""B22: scans of the same page are on both sides of the split, and the score is too good.

Each page is scanned four times with a little noise. Its label is drawn at random: nothing can be
learned that holds for other pages, so an honest accuracy is at chance, one in ten.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from course.debug.museum.exhibit import Exhibit, accuracy, digits, evaluation, healthy_step

PAGES, SCANS = 100, 4


def make(bug):
    setup = digits(nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)))
    pages = setup["train_loader"].dataset.tensors[0][:PAGES]
    page = torch.arange(PAGES).repeat_interleave(SCANS)
    inputs = pages[page] + 0.1 * torch.randn(PAGES * SCANS, *pages.shape[1:])
    targets = torch.randint(10, (PAGES,))[page]
    held_out = torch.arange(PAGES * SCANS) % SCANS == 0 if bug else page % SCANS == 0
    parts = {"train": ~held_out, "val": held_out}
    for name, rows in parts.items():
        data = TensorDataset(inputs[rows], targets[rows])
        setup[f"{name}_loader"] = DataLoader(data, 50, shuffle=name == "train")
    setup["groups"] = {name: page[rows].tolist() for name, rows in parts.items()}
    return setup | {"train_step": healthy_step(setup), "evaluate": evaluation(setup)}


EXHIBIT = Exhibit(
    id="B22", title="one group on both sides of the split", names=("leak-group",), make=make,
    symptom="validation accuracy, labels drawn at random", measure=accuracy,
    shows=lambda x: x > 0.3,
)  # fmt: skip
