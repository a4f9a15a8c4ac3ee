"""B32: each example is transformed on its own, again in every epoch, and the step waits for it.

With the data transformed once and batches sliced from memory, the batches and the curve are the
same; training is only faster. On a GPU, whose step is shorter, the share of waiting is larger.
"""

import time
from statistics import median

import torch.nn.functional as F
from torch.utils.data import Dataset

from course.data.loading import InMemoryLoader, make_loader
from course.debug.museum.exhibit import Exhibit, ExhibitRun, digits, healthy_step


def smooth(images):
    """Images [N, 1, 8, 8] enlarged, blurred and reduced again."""
    large = F.avg_pool2d(F.interpolate(images, scale_factor=4, mode="bilinear"), 5, 1, 2)
    return F.avg_pool2d(large, 4)


class Smoothed(Dataset):
    """Transforms an example each time it is read."""

    def __init__(self, images, labels):
        self.images, self.labels = images, labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return smooth(self.images[index : index + 1])[0], self.labels[index]


class Timed:
    """A loader that records how long the loop waited for each batch."""

    def __init__(self, loader):
        self.loader, self.waited = loader, []

    def __iter__(self):
        asked = time.perf_counter()
        for batch in self.loader:
            self.waited.append(time.perf_counter() - asked)
            yield batch
            asked = time.perf_counter()

    def __len__(self):
        return len(self.loader)


def make(bug):
    setup = digits()
    images, labels = setup["train_loader"].dataset.tensors
    if bug:
        loader = make_loader(Smoothed(images, labels), 64, shuffle=True)
    else:
        loader = InMemoryLoader(smooth(images), labels, 64, shuffle=True)
    setup["train_loader"] = timed = Timed(loader)
    inner, worked = healthy_step(setup), []

    def train_step(batch):
        started = time.perf_counter()
        loss = inner(batch)
        worked.append(time.perf_counter() - started)
        return loss

    return setup | {"train_step": train_step, "waited": timed.waited, "worked": worked}


def share_waited(run: ExhibitRun) -> float:
    waited, worked = median(run.setup["waited"]), median(run.setup["worked"])
    return waited / (waited + worked)


EXHIBIT = Exhibit(
    id="B32", title="the step waits for the loader", make=make,
    why_not="only the time is wrong, and a set-up does not say how long a step may take; "
    "course.data.throughput.is_waiting(train_loader, train_step) measures it.",
    mend="inputs = smooth(inputs)  # once, before the first epoch\n"
    "train_loader = InMemoryLoader(inputs, targets, 64, shuffle=True)\n"
    "# or DataLoader(..., num_workers=4, persistent_workers=True)",
    symptom="share of the time in which the step waits", measure=share_waited,
    shows=lambda x: x > 0.5,
    trace=lambda run: [1e3 * s for s in run.setup["waited"]], trace_label="milliseconds waited",
)  # fmt: skip
