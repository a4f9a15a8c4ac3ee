"""B35: from_numpy shares the array's memory; refilling the array changes the tensor too.

All batches are read through one array, which saves memory, and kept in a list. With from_numpy each
of them is that array, so all hold the images read last, but with their own labels.
"""

import numpy as np
import torch

from course.debug.museum.exhibit import Exhibit, digits, final_loss


def make(bug):
    setup = digits()
    array = np.empty((64, 1, 8, 8), np.float32)
    batches = []
    for inputs, targets in setup["train_loader"]:
        if len(targets) == len(array):
            array[:] = inputs.numpy()
            batches.append((torch.from_numpy(array) if bug else torch.tensor(array), targets))
    return setup | {"train_loader": batches}


EXHIBIT = Exhibit(
    id="B35", title="memory shared with numpy", names=("memory-shared",), make=make,
    symptom="loss of the last 20 steps; guessing gives ln 10 = 2.303", measure=final_loss,
    shows=lambda x: x > 2,
)  # fmt: skip
