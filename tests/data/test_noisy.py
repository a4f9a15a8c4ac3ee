"""A generator in the data set is copied into every worker; the workers' own generators differ."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from course.data.noisy import KeyedNoise, NoisyInputs


def batches(own_seed, *, seed=3, epochs=2):
    noisy = NoisyInputs(torch.zeros(8, 1), own_seed=own_seed)
    own = torch.Generator().manual_seed(seed)
    loader = DataLoader(noisy, 2, num_workers=2, generator=own)
    return [tuple(batch.flatten().tolist()) for _ in range(epochs) for batch in loader]


def test_workers_and_epochs_share_the_noise_of_a_generator_in_the_data_set():
    seen = batches(own_seed=3)
    assert len(seen) == 8 and len(set(seen)) == 2
    assert seen[0] == seen[1] == seen[4] and seen[2] == seen[3] == seen[6]


def test_the_workers_own_generators_differ_and_repeat_with_the_loaders_seed():
    seen = batches(own_seed=None)
    assert len(set(seen)) == 8
    assert batches(own_seed=None) == seen != batches(own_seed=None, seed=4)


@pytest.mark.parametrize("own_seed", [3, None])
def test_noise_is_added_to_the_inputs_with_the_spread_asked_for(own_seed):
    torch.manual_seed(0)
    noisy = NoisyInputs(torch.full((50, 100), 7.0), sd=0.5, own_seed=own_seed)
    drawn = torch.stack([noisy[index] for index in range(len(noisy))])
    assert drawn.dtype == torch.float32 and drawn.shape == (50, 100)
    assert drawn.mean() == pytest.approx(7, abs=0.03) and drawn.std() == pytest.approx(
        0.5, abs=0.02
    )
    assert not torch.equal(noisy[0], noisy[0])


def keyed(index, *, seed=3, epoch=0):
    noisy = KeyedNoise(torch.zeros(4, 2), seed)
    noisy.set_epoch(epoch)
    return noisy[index]


def test_keyed_noise_is_that_of_the_key_in_whatever_order_it_is_asked_for():
    expected = torch.from_numpy(np.random.default_rng([3, 1, 2]).standard_normal(2)).float()
    assert torch.equal(keyed(2, epoch=1), expected)
    noisy = KeyedNoise(torch.zeros(4, 2), 3)
    forwards = [noisy[i] for i in range(4)]
    assert all(torch.equal(noisy[i], forwards[i]) for i in reversed(range(4)))


def test_keyed_noise_differs_by_seed_epoch_and_example_and_not_by_their_sum():
    keys = [(seed, epoch, i) for seed in (0, 1) for epoch in (0, 1) for i in range(3)]
    drawn = {tuple(keyed(i, seed=seed, epoch=epoch).tolist()) for seed, epoch, i in keys}
    assert len(drawn) == len(keys)


def test_workers_give_each_example_its_keyed_noise():
    noisy = KeyedNoise(torch.zeros(4, 2), 3)
    alone = [noisy[i] for i in range(4)]
    fetched = [batch[0] for batch in DataLoader(noisy, 1, num_workers=2)]
    assert all(torch.equal(a, b) for a, b in zip(alone, fetched, strict=True))
