"""Faults of data: files listed in another order, lengths, vocabularies, copied prices."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import BatchSampler, DataLoader, Dataset, Sampler, TensorDataset

from tests.debug.faulty.eighth.kit import gen
from tests.debug.faulty.kit import pair
from tests.debug.faulty.sixth.kit import (
    blobs,
    loaders,
    mlp,
    numbers,
    pictures,
    trained,
    trained_pairs,
)


class Folder(Dataset):
    """Files by name, and a list of labels in the order of their numbers."""

    def __init__(self, rows, labels, names):
        self.rows, self.labels, self.names = rows, labels, names

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.rows[int(self.names[i].partition("_")[2])], self.labels[i]


def as_text(n):
    return sorted(f"img_{i}" for i in range(n))


def by_number(n):
    return [f"img_{i}" for i in range(n)]


@pair("labels-shuffled", "targets-unrelated")
def folder_listed_as_text(bug):
    """Pictures are listed as text (img_10 before img_2), their labels lie in order of the numbers:
    most pictures have another one's label. The twin sorts by number."""
    x, y, _ = pictures(n=320, seed=101)
    names = as_text if bug else by_number
    train, val = Folder(x[:256], y[:256], names(256)), Folder(x[256:], y[256:], names(64))
    model = nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 16, 3, padding=1), nn.ReLU(),
        nn.AdaptiveMaxPool2d(2), nn.Flatten(), nn.Linear(64, 2),
    )  # fmt: skip
    held = DataLoader(val, 32)
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    both = DataLoader(train, 32, shuffle=True), held
    return trained_pairs(model, opt, both, nn.CrossEntropyLoss(), num_classes=2)


@pair("labels-shuffled", "targets-unrelated")
def measured_spectra_listed_as_text(bug):
    """The same of spectra with a measured number each."""
    x, y = numbers(n=300, d=12, seed=103)
    names = as_text if bug else by_number
    train = Folder(x[:240], y[:240], names(240))
    held = DataLoader(TensorDataset(x[240:], y[240:]), 30)
    model = mlp(12, 1)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    return trained_pairs(model, opt, (DataLoader(train, 24, shuffle=True), held), nn.MSELoss())


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


WORDS = [f"w{i}" for i in range(40)]


def texts(n, g):
    """Ten words each; good or bad by the mean of its words' values."""
    value = torch.randn(40, generator=gen(7))
    ids = torch.randint(0, 40, (n, 10), generator=g)
    return [[WORDS[i] for i in row] for row in ids.tolist()], (value[ids].sum(1) > 0).long()


def vocabulary(rows):
    found = {}
    for row in rows:
        for word in row:
            found.setdefault(word, len(found))
    return found


def encoded(rows, known):
    return torch.tensor([[known.get(word, 0) for word in row] for row in rows])


class Bag(nn.Module):
    def __init__(self, words=40, k=2):
        super().__init__()
        self.table, self.out = nn.Embedding(words, 16), nn.Linear(16, k)

    def forward(self, ids):
        return self.out(self.table(ids).mean(1))


@pair("labels-renamed", "covariate-shift")
def vocabulary_made_per_split(bug):
    """Words are numbered as they come, on each side by itself: a number is another word in
    validation. The twin numbers them once."""
    (rows, y), (new, w) = texts(480, gen(109)), texts(120, gen(110))
    known = vocabulary(rows)
    x, v = encoded(rows, known), encoded(new, vocabulary(new) if bug else known)
    model = Bag()
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    both = DataLoader(TensorDataset(x, y), 24, shuffle=True), DataLoader(TensorDataset(v, w), 24)
    return trained_pairs(model, opt, both, nn.CrossEntropyLoss(), num_classes=2)


class Priced(nn.Module):
    """Three columns of categories and two of numbers."""

    def __init__(self, sizes=(8, 12, 6)):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(n, 6) for n in sizes)
        self.net = mlp(6 * len(sizes) + 2, 1)

    def forward(self, codes, rest):
        parts = [table(codes[:, n]) for n, table in enumerate(self.tables)]
        return self.net(torch.cat([*parts, rest], 1))[:, 0]


def in_order_met(column):
    return {v: n for n, v in enumerate(dict.fromkeys(column.tolist()))}


@pair("labels-renamed", "covariate-shift")
def categories_coded_per_split(bug):
    """Codes of categories in the order met, fitted on training and on validation apart."""
    g, sizes = gen(111), (8, 12, 6)
    raw = torch.stack([torch.randint(0, n, (600,), generator=g) for n in sizes], 1)
    worth = [1.5 * torch.randn(n, generator=g) for n in sizes]
    rest = torch.randn(600, 2, generator=g)
    y = sum(w[raw[:, n]] for n, w in enumerate(worth)) + 0.5 * rest[:, 0]
    y = y + 0.2 * torch.randn(600, generator=g)

    def codes(rows, fitted_on):
        columns = [in_order_met(raw[fitted_on, n]) for n in range(3)]
        return torch.tensor([[columns[n][int(v)] for n, v in enumerate(row)] for row in raw[rows]])

    tr, va = slice(0, 480), slice(480, 600)
    train = TensorDataset(codes(tr, tr), rest[tr], y[tr])
    held = TensorDataset(codes(va, va if bug else tr), rest[va], y[va])
    model = Priced(sizes)
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    both = DataLoader(train, 24, shuffle=True), DataLoader(held, 24)
    loss_of = lambda m, b: F.mse_loss(m(b[0], b[1]), b[2])  # noqa: E731
    return trained(model, opt, both, loss_of)


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
