"""Faults of series, of recordings of people, and of predicted deviations."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from tests.debug.faulty.kit import pair
from tests.debug.faulty.sixteenth.kit import (
    averaged,
    by_cost,
    by_pairs,
    gen,
    loaders,
    mlp,
    named,
    seed,
)


@pair("target-in-inputs")
def forecast_target_in_window(bug):
    """The target is series[i + w - 1], the last number of its own window. After 300 steps val_mae
    is 0.0291 instead of 0.419."""
    seed(52)
    n, w = 900, 12
    t = torch.arange(n).float()
    noise = 0.4 * torch.randn(n, generator=gen(52))
    s = torch.sin(t / 7) + 0.5 * torch.sin(t / 2.3) + noise

    def windows(a):
        starts = range(len(a) - w)
        y = torch.stack([a[i + w - 1] if bug else a[i + w] for i in starts])
        return TensorDataset(torch.stack([a[i : i + w] for i in starts]), y)

    mean, std = s[:700].mean(), s[:700].std()
    tl, vl = loaders(windows((s[:700] - mean) / std), windows((s[700:] - mean) / std), 32)
    m = nn.Sequential(nn.Linear(w, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    loss_fn = nn.L1Loss()

    def sums_of(model, b):
        return {"val_mae": ((model(b[0]) - b[1]).abs().sum() * std, len(b[1]))}

    return by_pairs(m, opt, tl, vl, loss_fn, evaluate=averaged(m, vl, sums_of))


@pair("leak-group")
def split_by_window_not_by_patient(bug):
    """Windows of recordings are split at random, and the diagnosis belongs to the patient. After
    300 steps val_acc is 0.916 instead of 0.468."""
    seed(53)
    g = gen(53)
    P, W, D = 40, 25, 16
    diagnosis = torch.arange(P) % 2
    # each patient has a signature, in which the diagnosis is a weak cue
    style = 1.5 * torch.randn(P, D, generator=g)
    style[:, 0] += 0.8 * diagnosis
    who = torch.arange(P).repeat_interleave(W)
    x = style[who] + torch.randn(P * W, D, generator=g)
    y = diagnosis[who]
    if bug:
        order = torch.randperm(P * W, generator=g)
        tr, va = order[:750], order[750:]
    else:
        kept = torch.isin(who, torch.randperm(P, generator=g)[:30])
        tr, va = torch.where(kept)[0], torch.where(~kept)[0]
    x = (x - x[tr].mean(0)) / x[tr].std(0)
    tl, vl = loaders((x[tr], y[tr]), (x[va], y[va]), 32)
    m = mlp(D, 48, 48, 2)
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    groups = {"train": who[tr].tolist(), "val": who[va].tolist()}
    return by_pairs(m, opt, tl, vl, num_classes=2, groups=groups)


class Deviating(nn.Module):
    """Predicts a mean and a standard deviation."""

    def __init__(self, d):
        super().__init__()
        self.net = mlp(d, 32, 32, 2)

    def forward(self, x):
        out = self.net(x)
        return out[:, 0], F.softplus(out[:, 1]) + 1e-3


@pair("wrong-formula")
def gaussian_nll_std_as_var(bug):
    """GaussianNLLLoss is given the standard deviation where it wants the variance. After 300 steps
    coverage_of_68pct_interval is 0.245 instead of 0.675."""
    seed(54)
    g = gen(54)
    x = torch.randn(1000, 5, generator=g)
    sigma = 0.15 + 0.25 * torch.sigmoid(3 * x[:, 1])
    y = torch.sin(x[:, 0]) + 0.5 * x[:, 2] + sigma * torch.randn(1000, generator=g)
    tl, vl = loaders(*named(800, x=x, y=y), 32)
    m = Deviating(5)
    opt = torch.optim.Adam(m.parameters(), 4e-3)
    nll = nn.GaussianNLLLoss()

    def loss_of(model, b):
        mean, std = model(b["x"])
        return nll(mean, b["y"], std if bug else std**2)

    def sums_of(model, b):
        mean, std = model(b["x"])
        z = (b["y"] - mean) / std
        return {
            "coverage_of_68pct_interval": ((z.abs() < 1).sum(), len(z)),
            "val_nll": ((0.5 * z**2 + std.log()).sum(), len(z)),
        }

    return by_cost(m, opt, tl, vl, loss_of, sums_of)
