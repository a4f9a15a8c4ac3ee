"""Faults of data: files listed in another order, lengths, vocabularies, copied prices."""

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, Sampler, TensorDataset

from tests.debug.faulty.eighth.kit import gen
from tests.debug.faulty.kit import pair
from tests.debug.faulty.sixth.kit import (
    blobs,
    loaders,
    mlp,
    numbers,
    trained_pairs,
)


class Windows(Dataset):
    """Rows; its length is that of the rows, or the number of batches they make."""

    def __init__(self, x, y, length):
        self.x, self.y, self.length = x, y, length

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        return self.x[i], self.y[i]


@pair("few-examples-drawn")
def length_counted_in_batches(bug):
    """__len__ gives the number of batches, so that only the first rows are drawn."""
    x, y = blobs(n=576, d=10, seed=105)
    train = Windows(x[:512], y[:512], 512 // 16 if bug else 512)
    held = DataLoader(Windows(x[512:], y[512:], 64), 16)
    model = mlp(10, 4)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    both = DataLoader(train, 16, shuffle=True), held
    return trained_pairs(model, opt, both, nn.CrossEntropyLoss(), num_classes=4)


class Shuffled(Sampler):
    """An order of the rows, of as many as the author says."""

    def __init__(self, number):
        self.number = number

    def __len__(self):
        return self.number

    def __iter__(self):
        return iter(torch.randperm(self.number).tolist())


@pair("few-examples-drawn")
def sampler_counts_batches(bug):
    """A sampler of the author's is handed the number of batches and orders as many rows."""
    x, y = numbers(n=480, seed=107)
    data = TensorDataset(x[:400], y[:400])
    sampler = BatchSampler(Shuffled(400 // 8 if bug else 400), 8, drop_last=False)
    model = mlp(8, 1)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    held = DataLoader(TensorDataset(x[400:], y[400:]), 40)
    return trained_pairs(model, opt, (DataLoader(data, batch_sampler=sampler), held), nn.MSELoss())


@pair("target-in-inputs")
def price_left_among_the_features(bug):
    """The target is the logarithm of a price that is still a column."""
    g = gen(113)
    x = torch.randn(400, 6, generator=g)
    log_price = x @ torch.randn(6, generator=g) / 2 + 0.3 * torch.randn(400, generator=g)
    last = log_price.exp() if bug else torch.randn(400, generator=g).exp()
    x = torch.cat([x, ((last - last.mean()) / last.std())[:, None]], 1)
    model = mlp(7, 1)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    return trained_pairs(model, opt, loaders(x, log_price[:, None], val=80), nn.MSELoss())


@pair("target-in-inputs")
def rank_made_of_a_column_that_stays(bug):
    """The target is the share of customers that spend less; what they spend is still a column."""
    g = gen(115)
    x = torch.randn(360, 5, generator=g)
    spent = (x @ torch.randn(5, generator=g) + torch.randn(360, generator=g)).mul(0.8).exp()
    rank = spent.argsort().argsort().float()[:, None] / 360
    other = (x[:, :1] + torch.randn(360, 1, generator=g)).exp()
    x = torch.cat([x, (spent[:, None] if bug else other).clamp(max=8)], 1)
    model = mlp(6, 1)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    return trained_pairs(model, opt, loaders(x, rank, val=80), nn.L1Loss())
