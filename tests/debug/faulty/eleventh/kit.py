"""What the programs of the eleventh set share beside the kits of the sets before."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from tests.debug.faulty.eighth.kit import gen
from tests.debug.faulty.sixth.kit import of_pairs


class Columns(Dataset):
    """Rows as dictionaries, made of columns by their names."""

    def __init__(self, **columns):
        self.columns = columns

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def __getitem__(self, i):
        return {name: column[i] for name, column in self.columns.items()}


def rows(*columns, batch=32, shuffle=True):
    return DataLoader(TensorDataset(*columns), batch, shuffle=shuffle, generator=gen(1))


def groups(n, k=4, d=8, noise=1.0, seed=0, centres=99, spread=1.5):
    """Classes round centres of a seed of their own: [n, d], [n]."""
    c = torch.randn(k, d, generator=gen(centres)) * spread
    g = gen(seed)
    y = torch.randint(k, (n,), generator=g)
    return c[y] + noise * torch.randn(n, d, generator=g), y


def grouped(n, held, batch=32, **more):
    """Loaders of groups to train on and of others round the same centres."""
    train = groups(n, seed=1, **more)
    return rows(*train, batch=batch), rows(*groups(held, seed=2, **more), shuffle=False)


def markov(n, length, vocab, seed=0, sharp=2.0):
    """Sequences of tokens [n, length] of which each follows from the one before."""
    law = torch.softmax(sharp * torch.randn(vocab, vocab, generator=gen(7)), -1)
    g = gen(seed)
    tokens = [torch.randint(vocab, (n,), generator=g)]
    for _ in range(length - 1):
        tokens.append(torch.multinomial(law[tokens[-1]], 1, generator=g).squeeze(1))
    return torch.stack(tokens, 1)


def deep(d, k, h=32):
    return nn.Sequential(
        nn.Linear(d, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, k)
    )  # fmt: skip


criterion = nn.CrossEntropyLoss()
of_classes = of_pairs(criterion)


def share_right(model, loader):
    """The accuracy; the model stays in evaluation mode."""
    model.eval()
    hits = count = 0
    with torch.no_grad():
        for x, y in loader:
            hits += (model(x).argmax(-1) == y).sum().item()
            count += y.numel()
    return hits / count


def mean_cost(model, loader, loss_of):
    """The mean over rows; the model stays in evaluation mode."""
    model.eval()
    total = count = 0
    with torch.no_grad():
        for batch in loader:
            total += loss_of(model, batch).item() * len(batch[-1])
            count += len(batch[-1])
    return total / count


def scored(model, held, *names):
    """evaluate() of classes: val_acc, val_loss, or both."""
    known = {
        "val_acc": lambda: share_right(model, held),
        "val_loss": lambda: mean_cost(model, held, of_classes),
    }
    return lambda: {name: known[name]() for name in names}
