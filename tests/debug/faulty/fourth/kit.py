"""What the programs of the fourth set share: small data, loaders, an accuracy."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset


def blobs(n, d=10, c=3, noise=1.0):
    centres = torch.randn(c, d, generator=torch.Generator().manual_seed(99)) * 1.5
    y = torch.randint(c, (n,))
    return centres[y] + noise * torch.randn(n, d), y


def mlp(i, h, o, *extra):
    return nn.Sequential(nn.Linear(i, h), nn.ReLU(), *extra, nn.Linear(h, o))


def batches(*tensors, bs=32, shuffle=True, **kw):
    return DataLoader(TensorDataset(*tensors), batch_size=bs, shuffle=shuffle, **kw)


def accuracy(model, loader):
    def evaluate():
        model.eval()
        right = n = 0
        with torch.no_grad():
            for x, y in loader:
                right += (model(x).argmax(1) == y).sum().item()
                n += len(y)
        model.train()
        return {"accuracy": right / n}

    return evaluate


def sentences(n, T=14, vocab=12, low=4, high=14):
    length = torch.randint(low, high + 1, (n,))
    ids = torch.randint(1, vocab, (n, T))
    ids[torch.arange(T)[None] >= length[:, None]] = 0
    return ids, length


class Dicts(Dataset):
    def __init__(self, **columns):
        self.columns = columns

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def __getitem__(self, i):
        return {k: v[i] for k, v in self.columns.items()}


def markov(n, T, vocab=8, sharp=0.85):
    nxt = torch.randperm(vocab - 1, generator=torch.Generator().manual_seed(4)) + 1
    ids = torch.randint(1, vocab, (n, 1))
    for _ in range(T - 1):
        new = nxt[ids[:, -1] - 1]
        new = torch.where(torch.rand(n) < sharp, new, torch.randint(1, vocab, (n,)))
        ids = torch.cat([ids, new[:, None]], 1)
    return ids
