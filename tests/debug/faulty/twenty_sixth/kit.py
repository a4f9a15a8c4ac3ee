"""What the programs of the twenty-sixth set share beside the kits of the sets before."""

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.sixteenth.kit import by_epochs
from tests.debug.faulty.twenty_fifth.kit import (
    BarNet,
    Flat,
    averaged,
    bars,
    blobs,
    by_cost,
    by_pairs,
    class_sums,
    evaluating,
    feed,
    fit,
    gen,
    halves,
    house,
    loaders,
    mlp,
    plain_step,
    right,
    row_squares,
    seed,
    set_up,
    sup_step,
    tones,
    words,
)


def sheet(n, s, d=14):
    """Rows near a curved sheet of two dimensions: [n, d]."""
    g = gen(s)
    z = torch.randn(n, 2, generator=g)
    a, b = torch.randn(2, d, generator=gen(401)), torch.randn(2, d, generator=gen(402))
    return torch.tanh(z @ a) + 0.5 * torch.cos(z @ b) + 0.05 * torch.randn(n, d, generator=g)


def sayings(n, s, T=14, k=3, V=16):
    """Tokens [n, T] from 1, with 0 behind each row's own length, and the kind [n]: a kind has
    words of its own."""
    g = gen(s)
    y = torch.randint(0, k, (n,), generator=g)
    length = torch.randint(3, T + 1, (n,), generator=g)
    any_word = torch.randint(1, V, (n, T), generator=g)
    own = 1 + (torch.randint(0, 5, (n, T), generator=g) * k + y[:, None]) % (V - 1)
    x = torch.where(torch.rand(n, T, generator=g) < 0.45, own, any_word)
    return x * (torch.arange(T) < length[:, None]), y


def next_sums(model, x):
    """The summed loss and the hits of next tokens, for `averaged`."""
    out, y = model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten()
    return {"val_loss": (F.cross_entropy(out, y, reduction="sum"), len(y))} | right(out, y)


__all__ = [
    "BarNet",
    "Flat",
    "averaged",
    "bars",
    "blobs",
    "by_cost",
    "by_epochs",
    "by_pairs",
    "class_sums",
    "evaluating",
    "feed",
    "fit",
    "gen",
    "halves",
    "house",
    "loaders",
    "mlp",
    "nn",
    "plain_step",
    "right",
    "row_squares",
    "seed",
    "set_up",
    "sup_step",
    "tones",
    "words",
]
