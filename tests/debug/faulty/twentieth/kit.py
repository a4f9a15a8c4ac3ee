"""What the programs of the twentieth set share beside the kits of the sets before."""

import torch
from torch import nn

from tests.debug.faulty.eleventh.kit import groups
from tests.debug.faulty.fourteenth.kit import acc, knn, mean_eval, mlp
from tests.debug.faulty.nineteenth.kit import feed as fed
from tests.debug.faulty.nineteenth.kit import language, markov, squared, windows
from tests.debug.faulty.sixteenth.kit import (
    Chained,
    averaged,
    by_cost,
    by_pairs,
    same_draws,
)
from tests.debug.faulty.thirteenth.kit import evaluating, gen, set_up, sup_step
from tests.debug.faulty.twelfth.kit import plain_step, seed


def feed(data, bs=16, shuffle=True, **more):
    """Batches of a tensor's rows, of pairs, of columns by their names or of a data set."""
    return fed(data, bs, shuffle, number=0, **more)


def loaders(train, held, bs=16, vbs=None, **more):
    return feed(train, bs, **more), feed(held, vbs or bs, shuffle=False, **more)


def rights(model, held):
    """evaluate(): the accuracy alone."""
    return mean_eval(model, held, {"val_acc": acc})


def by_classes(m, opt, tl, vl, k, crit=None, step=None, **more):
    """Pairs of rows and classes in training, scored by the accuracy alone."""
    known = {"evaluate": rights(m, vl), "num_classes": k}
    return by_pairs(m, opt, tl, vl, crit, step, **known | more)


def by_errors(m, opt, tl, vl, step=None, **more):
    """A regression in training, scored by its mean squared error."""
    known = {"evaluate": squared(m, vl)}
    return by_pairs(m, opt, tl, vl, nn.MSELoss(), step, **known | more)


def nearest(m, known, held):
    """evaluate(): the share of held rows whose nearest known one has their class."""
    (x, y), (vx, vy) = known, held

    def evaluate():
        with evaluating(m):
            return {"knn_acc": knn(m(x), y, m(vx), vy, k=1)}

    return evaluate


def chain(n, length, v, s):
    """Tokens [n, length] of which each follows from the one before."""
    return markov(n, length, v, gen(s), sharp=2.5, key=1234)


def phrases(n, g):
    """3 to 12 words from 1 to 14 and their kind of three, each kind with words of its own."""
    rows = []
    for _ in range(n):
        kind = int(torch.randint(3, (1,), generator=g))
        length = int(torch.randint(3, 13, (1,), generator=g))
        any_words = torch.randint(1, 15, (length,), generator=g)
        is_own = torch.rand(length, generator=g) < 0.5
        own = 1 + kind + 3 * torch.randint(4, (length,), generator=g)
        rows.append((torch.where(is_own, own, any_words), kind))
    return rows


def curves(n, s, d=12):
    """Rows on a curved sheet of two dimensions: [n, d]."""
    z = torch.randn(n, 2, generator=gen(s))
    A = torch.randn(2, d, generator=gen(31))
    B = torch.randn(2, d, generator=gen(32))
    return torch.tanh(z @ A) + 0.5 * torch.sin(z @ B)


class TinyGPT(nn.Module):
    """One block of a transformer over tokens, with a causal mask or without."""

    def __init__(self, V, T, causal, d=32):
        super().__init__()
        self.tok = nn.Embedding(V, d)
        self.pos = nn.Parameter(0.02 * torch.randn(T, d))
        layer = nn.TransformerEncoderLayer(d, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(d, V)
        self.causal = causal

    def forward(self, ids):
        T = ids.shape[1]
        h = self.tok(ids) + self.pos[:T]
        mask = torch.full((T, T), float("-inf")).triu(1) if self.causal else None
        return self.head(self.body(h, mask=mask))


__all__ = [
    "Chained",
    "averaged",
    "by_cost",
    "by_pairs",
    "evaluating",
    "gen",
    "groups",
    "language",
    "mlp",
    "plain_step",
    "same_draws",
    "seed",
    "set_up",
    "squared",
    "sup_step",
    "windows",
]
