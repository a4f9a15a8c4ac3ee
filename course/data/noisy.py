"""Noise drawn by the data set: from a generator of its own, from the worker's, or by a key.

A worker gets a copy of the data set, generator and all. So workers with a generator in the data set
draw the same numbers as each other, and the same again in each epoch, which makes new copies. The
worker's own generators differ by worker and by epoch, and repeat with the loader's seed; with
another number of workers other examples meet other numbers. A generator that is seeded by seed,
epoch and example gives each example the same noise in whichever worker.

Source: Annotated-loop essay, "The data"; ledger B33, C15, F94, F95.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset


class NoisyInputs(Dataset):
    """Inputs with Gaussian noise that is drawn when an example is asked for.

    Args:
        inputs: [N, ...], float32.
        sd: Standard deviation of the noise.
        own_seed: Draw from a NumPy generator that the data set holds, seeded with this. Without
            it, draw from torch's global generator, which each worker has seeded for itself.

    Source: Annotated-loop essay, "The data"; ledger B33.
    """

    def __init__(self, inputs: Tensor, *, sd: float = 1.0, own_seed: int | None = None) -> None:
        self.inputs, self.sd = inputs, sd
        self.own = None if own_seed is None else np.random.default_rng(own_seed)

    def __getitem__(self, index: int) -> Tensor:
        clean = self.inputs[index]
        if self.own is None:
            return clean + self.sd * torch.randn(clean.shape)
        drawn = self.own.standard_normal(clean.shape, dtype=np.float32)
        return clean + self.sd * torch.from_numpy(drawn)

    def __len__(self) -> int:
        return len(self.inputs)


class KeyedNoise(Dataset):
    """Inputs with Gaussian noise that depends on the seed, the epoch and the index alone.

    Workers get a copy of the data set when an epoch begins, so call `set_epoch` before that. With
    `persistent_workers` the copies stay, and do not hear of a later epoch.

    Args:
        inputs: [N, ...], floating point.
        seed: 0 or more; another one gives other noise.
        sd: Standard deviation of the noise.

    Source: Annotated-loop essay, "The data"; ledger B33, F95.
    """

    def __init__(self, inputs: Tensor, seed: int, *, sd: float = 1.0) -> None:
        self.inputs, self.seed, self.sd, self.epoch = inputs, seed, sd, 0

    def set_epoch(self, epoch: int) -> None:
        """Draw the noise of this epoch from now on."""
        self.epoch = epoch

    def __getitem__(self, index: int) -> Tensor:
        clean = self.inputs[index]
        own = np.random.default_rng([self.seed, self.epoch, index])
        drawn = torch.as_tensor(own.standard_normal(tuple(clean.shape)))
        return clean + self.sd * drawn.to(clean)

    def __len__(self) -> int:
        return len(self.inputs)
