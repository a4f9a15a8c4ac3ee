"""Faults of what a loop is fed with: iterators, copies of rows, weights of a sampler."""

import math

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

from tests.debug.faulty.eighteenth.kit import (
    accuracy,
    averaged,
    begun,
    by_pairs,
    evaluating,
    gen,
    loader,
    loaders,
    mlp,
    squares,
    sup_step,
)
from tests.debug.faulty.kit import pair


@pair("loader-exhausted")
def batches_from_one_generator(bug):
    """The batches are a generator that is made once: from the second epoch on there are none. After
    400 steps asked for mse is 0.39 instead of 0.005."""
    g = begun(65)
    t = torch.arange(900) / 5.0
    s = torch.sin(t) + 0.3 * torch.sin(2.7 * t) + 0.05 * torch.randn(900, generator=g)
    rows = s.unfold(0, 13, 1)[:880]
    train, held = rows[:640], rows[660:]

    class Batches:
        def __len__(self):
            return 20

        def __iter__(self):
            for chosen in torch.randperm(640, generator=g).split(32):
                yield train[chosen, :12], train[chosen, 12:]

    def batches():
        yield from Batches()

    tl = batches() if bug else Batches()
    vl = loader((held[:, :12], held[:, 12:]), 64, shuffle=False)
    m = mlp(12, 32, 1)
    opt = torch.optim.Adam(m.parameters(), 1e-3)
    crit = nn.MSELoss()
    step = sup_step(m, opt, crit)

    def fit(n):
        losses = []
        for _ in range(math.ceil(n / 20)):
            for b in tl:
                losses.append(step(b))
                if len(losses) == n:
                    return losses
        return losses

    return by_pairs(m, opt, tl, vl, crit, step, train=fit, evaluate=averaged(m, vl, squares))


@pair("leak-overlap")
def oversample_before_split(bug):
    """The rare rows are repeated before the split, so that copies are on both sides. After 400
    steps rare_recall is 1 instead of 0.125."""
    g = begun(66)
    n = 300
    x = torch.randn(n, 20, generator=g)
    y = torch.zeros(n).long()
    y[:30] = 1
    x[:30, 0] += 0.8

    def repeated(x, y):
        rare = (y == 1).nonzero().squeeze(1).repeat(8)
        rows = torch.cat([torch.arange(len(y)), rare])
        return x[rows], y[rows]

    if bug:
        x, y = repeated(x, y)
    order = torch.randperm(len(x), generator=g)
    cut = int(0.7 * len(x))
    train, held = ((x[rows], y[rows]) for rows in (order[:cut], order[cut:]))
    if not bug:
        train = repeated(*train)
    tl, vl = loaders(train, held)
    m = mlp(20, 64, 2)

    def evaluate():
        found = accuracy(m, vl)
        with evaluating(m):
            said = m(held[0]).argmax(1)[held[1] == 1]
        return found | {"rare_recall": said.float().mean().item()}

    opt = torch.optim.Adam(m.parameters(), 3e-3)
    return by_pairs(m, opt, tl, vl, num_classes=2, evaluate=evaluate)


@pair("few-examples-drawn")
def sampler_class_weights(bug):
    """The sampler takes three weights of classes for those of the first three rows: no other is
    drawn. After 400 steps balanced_acc is 0.688 instead of 0.762."""
    g = begun(68)
    centres = torch.randn(3, 8, generator=g)

    def data(n):
        y = torch.multinomial(torch.tensor([0.85, 0.1, 0.05]), n, True, generator=g)
        return centres[y] + 1.2 * torch.randn(n, 8, generator=g), y

    x, y = data(512)
    y[:3] = torch.arange(3)
    x[:3] = centres + 0.8 * torch.randn(3, 8, generator=g)
    weights = 1 / torch.bincount(y, minlength=3).float()
    if not bug:
        weights = weights[y]
    sampler = WeightedRandomSampler(weights, 512, generator=gen(1))
    tl = DataLoader(TensorDataset(x, y), 16, sampler=sampler)
    vl = loader(data(300), 64, shuffle=False)
    m = mlp(8, 32, 3)

    def evaluate():
        with evaluating(m):
            said = torch.cat([m(x).argmax(1) for x, _ in vl])
        true = torch.cat([y for _, y in vl])
        recalls = [(said[true == k] == k).float().mean().item() for k in range(3)]
        hits = (said == true).float()
        return {"val_acc": hits.mean().item(), "balanced_acc": sum(recalls) / 3}

    opt = torch.optim.Adam(m.parameters(), 3e-3)
    return by_pairs(m, opt, tl, vl, num_classes=3, evaluate=evaluate)
