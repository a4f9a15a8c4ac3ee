"""Noise drawn by the data set: from its own generator, from the worker's, or by a key.

A worker gets a copy of the data set, including its generator. So all workers draw the same numbers
from it, and draw them again in each epoch, which makes new copies. The worker's own generators
differ between workers and epochs, and repeat with the loader's seed; but with a different number of
workers, examples get different numbers. A generator seeded by seed, epoch and example gives each
example the same noise in any worker.

Source: Annotated-loop essay, "The data"; ledger B33, C15, F94, F95.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset


class NoisyInputs(Dataset):
    """Inputs with Gaussian noise that is drawn when an example is read.

    Args:
        inputs: [N, ...], float32.
        sd: Standard deviation of the noise.
        own_seed: Draw from a NumPy generator that the data set holds, seeded with this. Without it,
            draw from torch's global generator, which is seeded separately in each worker.

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
    """Inputs with Gaussian noise that depends only on the seed, the epoch and the index.

    Workers get a copy of the data set when an epoch begins, so call `set_epoch` before that. With
    `persistent_workers` the copies stay, and do not learn of a later epoch.

    Args:
        inputs: [N, ...], floating point.
        seed: 0 or more; a different seed gives different noise.
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
