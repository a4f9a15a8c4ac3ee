"""Pairs whose fault lies in the data on their way to the model."""

from collections import defaultdict

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.data import DataLoader, Dataset, TensorDataset, WeightedRandomSampler, random_split

from tests.debug.faulty.kit import pair
from tests.debug.faulty.seventh.kit import saved, wave, windows
from tests.debug.faulty.sixth.kit import (
    accuracy,
    blobs,
    looped,
    mean_loss,
    mlp,
    of_pairs,
    sentences,
    setup,
    stepper,
)


@pair("few-examples-drawn", "same-batch-forever")
def rare_machine_faults(bug):
    """WeightedRandomSampler is given one weight per class where it wants one per example, so only
    rows 0..2 are ever drawn. Costs all but three examples; val accuracy."""
    x, y = blobs(n=420, k=3, spread=1.6)
    keep = (y == 0) | (torch.arange(len(y)) % 4 == 0)
    x, y = x[keep], y[keep]
    train, val = TensorDataset(x[:-40], y[:-40]), TensorDataset(x[-40:], y[-40:])
    counts = torch.bincount(y[:-40], minlength=3)
    per_class = 1.0 / counts
    weights = per_class if bug else per_class[y[:-40]]
    sampler = WeightedRandomSampler(weights, num_samples=len(train), replacement=True)
    loader, held = DataLoader(train, 16, sampler=sampler), DataLoader(val, 20)
    model = mlp(k=3)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    loss_fn = nn.CrossEntropyLoss()
    step = stepper(model, opt, of_pairs(loss_fn))
    return setup(
        model,
        opt,
        loader,
        held,
        step=step,
        loss_fn=loss_fn,
        num_classes=3,
        evaluate=accuracy(model, held),
        **saved(model=model, optimizer=opt),
    )


class Reviews(nn.Module):
    def __init__(self, vocab=12, d=16):
        super().__init__()
        self.emb = nn.Embedding(vocab, d, padding_idx=0)
        self.gru = nn.GRU(d, d, batch_first=True)
        self.head = nn.Linear(d, 2)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(self.emb(x), lengths, batch_first=True)
        return self.head(self.gru(packed)[1][-1])


@pair("rows-mixed", "labels-shuffled")
def reviews_packed(bug):
    """The collate function sorts the sentences by length for pack_padded_sequence and leaves the
    labels in the old order. Costs the labels are those of other rows, nothing can be learnt."""
    x, lengths = sentences(n=256)
    y = ((x > 0) & (x < 6)).sum(1) * 2 > lengths
    rows = [(x[i, : lengths[i]], int(y[i])) for i in range(len(x))]

    def collate(batch):
        seqs, labels = zip(*batch, strict=True)
        n = torch.tensor([len(s) for s in seqs])
        n, order = n.sort(descending=True)
        padded = nn.utils.rnn.pad_sequence([seqs[i] for i in order.tolist()], batch_first=True)
        labels = torch.tensor(labels)
        return padded, n, labels if bug else labels[order]

    loader = DataLoader(rows[:208], 16, shuffle=True, collate_fn=collate)
    held = DataLoader(rows[208:], 16, collate_fn=collate)
    model = Reviews()
    opt = torch.optim.Adam(model.parameters(), 1e-2)

    def loss_of(m, batch):
        return F.cross_entropy(m(batch[0], batch[1]), batch[2])

    def evaluate():
        model.eval()
        with torch.no_grad():
            hits = [(model(a, n).argmax(-1) == b).float() for a, n, b in held]
        model.train()
        return {"accuracy": torch.cat(hits).mean().item()}

    return setup(model, opt, loader, held, loss_of=loss_of, evaluate=evaluate, num_classes=2)


class Boxed(Dataset):
    """Pictures with one rectangle, hollow or filled; class and box (cx, cy, w, h in 0..1)."""

    def __init__(self, n, seed, flip, move_box, size=12):
        g = torch.Generator().manual_seed(seed)
        self.flip, self.move_box = flip, move_box
        self.images = 0.2 * torch.randn(n, 1, size, size, generator=g)
        self.kinds = torch.randint(0, 2, (n,), generator=g)
        boxes = []
        for i in range(n):
            w, h = torch.randint(3, 6, (2,), generator=g).tolist()
            left = torch.randint(0, size - w + 1, (1,), generator=g).item()
            top = torch.randint(0, size - h + 1, (1,), generator=g).item()
            self.images[i, 0, top : top + h, left : left + w] += 1
            if self.kinds[i]:
                self.images[i, 0, top + 1 : top + h - 1, left + 1 : left + w - 1] -= 1
            boxes.append([(left + w / 2) / size, (top + h / 2) / size, w / size, h / size])
        self.boxes = torch.tensor(boxes)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image, box = self.images[i], self.boxes[i].clone()
        if self.flip and torch.rand(()) < 0.5:
            image = image.flip(-1)
            if self.move_box:
                box[0] = 1 - box[0]
        return image, self.kinds[i], box


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(288, 48),
            nn.ReLU(),
        )
        self.kind, self.box = nn.Linear(48, 2), nn.Linear(48, 4)

    def forward(self, x):
        h = self.trunk(x)
        return self.kind(h), self.box(h).sigmoid()


@pair("labels-moved", "augmentation-mismatch")
def rectangles_found(bug):
    """The random horizontal flip turns the picture and leaves the box where it was. Costs half of
    the boxes lie on the wrong side, the horizontal place cannot be learnt."""
    train = Boxed(160, 1, flip=True, move_box=not bug)
    val = Boxed(48, 2, flip=False, move_box=True)
    loader, held = DataLoader(train, 16, shuffle=True), DataLoader(val, 16)
    model = Detector()
    opt = torch.optim.Adam(model.parameters(), 3e-3)

    def loss_of(m, batch):
        image, kind, box = batch
        logits, at = m(image)
        return F.cross_entropy(logits, kind) + 5 * F.l1_loss(at, box)

    def evaluate():
        model.eval()
        hits, off, n = 0, 0.0, 0
        with torch.no_grad():
            for image, kind, box in held:
                logits, at = model(image)
                hits += (logits.argmax(-1) == kind).sum().item()
                off += (at[:, :2] - box[:, :2]).abs().sum(-1).sum().item()
                n += len(kind)
        model.train()
        return {"accuracy": hits / n, "centre_error": off / n}

    step = stepper(model, opt, loss_of)
    return setup(
        model,
        opt,
        loader,
        held,
        step=step,
        loss_of=loss_of,
        evaluate=evaluate,
        **saved(model=model, optimizer=opt),
    )


@pair("leak-overlap")
def demand_windows(bug):
    """Overlapping windows of one series are split at random: every held-out window lies between
    training windows that hold its numbers and its target. Costs the validation error is too kind
    (and says nothing of the future)."""
    x, y = windows(wave(), width=12)
    data = TensorDataset(x, y)
    if bug:
        train, val = random_split(
            data, [len(data) - 60, 60], generator=torch.Generator().manual_seed(1)
        )
    else:
        train = TensorDataset(x[: -60 - 12], y[: -60 - 12])
        val = TensorDataset(x[-60:], y[-60:])
    loader, held = DataLoader(train, 16, shuffle=True), DataLoader(val, 20)
    model = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 1))
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    loss_fn = nn.MSELoss()
    return setup(
        model,
        opt,
        loader,
        held,
        loss_fn=loss_fn,
        task="regression",
        evaluate=mean_loss(model, held, of_pairs(loss_fn)),
    )


@pair("leak-preprocessing")
def plant_sensors(bug):
    """Mean and deviation for the scaling are taken over all rows, the later held-out ones too,
    inputs and target. Costs the drift of the later rows is partly scaled away beforehand, so that
    the validation error looks smaller than it will be in use."""
    g = torch.Generator().manual_seed(5)
    n, cut = 300, 220
    drift = torch.linspace(0, 1, n)[:, None] * torch.tensor([3.0, -2.0, 0.0, 1.0, 2.5, 0.0])
    x = torch.randn(n, 6, generator=g) * torch.tensor([1.0, 3, 0.5, 2, 1, 4]) + drift + 5
    y = 0.8 * x[:, :1] + x[:, 2:3] + 0.5 * torch.randn(n, 1, generator=g)
    table = torch.cat([x, y], 1)
    seen = table if bug else table[:cut]
    table = (table - seen.mean(0)) / seen.std(0)
    x, y = table[:, :6], table[:, 6:]
    loader = DataLoader(TensorDataset(x[:cut], y[:cut]), 20, shuffle=True)
    held = DataLoader(TensorDataset(x[cut:], y[cut:]), 20)
    model = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 1))
    opt = torch.optim.AdamW(model.parameters(), 5e-3)
    return setup(model, opt, loader, held, loss_fn=nn.MSELoss())


class Factors(nn.Module):
    def __init__(self, users, items, d=4):
        super().__init__()
        self.u, self.i = nn.Embedding(users, d), nn.Embedding(items, d)
        self.bias = nn.Embedding(items, 1)
        for e in (self.u, self.i, self.bias):
            nn.init.normal_(e.weight, std=0.1)

    def forward(self, pairs):
        u, i = pairs[:, 0].long(), pairs[:, 1].long()
        return ((self.u(u) * self.i(i)).sum(-1) + self.bias(i)[:, 0])[:, None]


@pair("uint8-arithmetic")
def films_rated(bug):
    """Ids are kept as uint8 "to save memory", but there are 400 films: film 256 becomes film 0, and
    so on. Costs 144 pairs of films share one embedding, the error is larger."""
    rng = np.random.default_rng(3)
    users, films, n = 60, 400, 5000
    u, i = np.divmod(rng.permutation(users * films)[:n], films)
    taste, kind, liked = (
        rng.normal(size=(users, 2)),
        rng.normal(size=(films, 2)),
        rng.normal(size=films),
    )
    stars = 0.3 * (taste[u] * kind[i]).sum(1) + liked[i] + 0.2 * rng.normal(size=n)
    store = np.stack([u, i], 1).astype(np.uint8 if bug else np.int64)
    x, y = torch.from_numpy(store), torch.from_numpy(stars).float()[:, None]
    loader = DataLoader(TensorDataset(x[:-400], y[:-400]), 100, shuffle=True)
    held = DataLoader(TensorDataset(x[-400:], y[-400:]), 100)
    model = Factors(users, films)
    opt = torch.optim.Adam(model.parameters(), 2e-2, weight_decay=1e-5)
    loss_fn = nn.MSELoss()
    loss_of = of_pairs(loss_fn)
    step = stepper(model, opt, loss_of)
    return setup(
        model,
        opt,
        loader,
        held,
        step=step,
        loss_fn=loss_fn,
        task="regression",
        evaluate=mean_loss(model, held, loss_of),
        **saved(model=model, optimizer=opt),
    )


@pair("labels-renamed", "label-shift")
def species_named(bug):
    """Names are turned into numbers by the sorted names of each split on its own, and the held-out
    split lacks one name: all names behind it get another number there. Costs validation accuracy is
    that of wrong labels."""
    names = ["adder", "badger", "crow", "deer", "eel"]
    x, y = blobs(n=260, k=5, seed=8, spread=0.8)
    cut = 200
    keep = torch.ones(len(y), dtype=torch.bool)
    keep[y == 1] = torch.arange(len(y))[y == 1] % 8 == 0
    keep[cut:] = y[cut:] != 1
    cut = int(keep[:cut].sum())
    words = [names[k] for k in y[keep].tolist()]
    x = x[keep]

    def fit(some):
        return {name: number for number, name in enumerate(sorted(set(some)))}

    number = fit(words[:cut])
    number_val = fit(words[cut:]) if bug else number
    y_train = torch.tensor([number[w] for w in words[:cut]])
    y_val = torch.tensor([number_val[w] for w in words[cut:]])
    loader = DataLoader(TensorDataset(x[:cut], y_train), 20, shuffle=True)
    held = DataLoader(TensorDataset(x[cut:], y_val), 20)
    model = mlp(k=5)
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    loss_fn = nn.CrossEntropyLoss()
    step = stepper(model, opt, of_pairs(loss_fn))
    return setup(
        model,
        opt,
        loader,
        held,
        loss_fn=loss_fn,
        num_classes=5,
        train=looped(loader, step),
        evaluate=accuracy(model, held),
    )


@pair("target-in-inputs", "leak-preprocessing")
def shop_mean_encoding(bug):
    """The column "mean outcome of this shop" of a training row is taken with the row's own outcome;
    shops have about two rows, so the column all but is the outcome. Costs the model leans on it,
    training looks near perfect and validation suffers."""
    g = torch.Generator().manual_seed(11)
    n, cut, shops = 320, 240, 110
    x = torch.randn(n, 4, generator=g)
    shop = torch.randint(0, shops, (n,), generator=g).tolist()
    y = (x[:, 0] - x[:, 1] + 0.8 * torch.randn(n, generator=g) > 0).float()

    def means(rows):
        seen = defaultdict(list)
        for r in rows:
            seen[shop[r]].append(y[r].item())
        return {s: (sum(v) + 0.5) / (len(v) + 1) for s, v in seen.items()}

    everyone = means(range(cut))
    column = torch.full((n,), 0.5)
    for fold in range(4):
        outside = everyone if bug else means([r for r in range(cut) if r % 4 != fold])
        for r in range(fold, cut, 4):
            column[r] = outside.get(shop[r], 0.5)
    for r in range(cut, n):
        column[r] = everyone.get(shop[r], 0.5)
    x = torch.cat([x, 4 * (column[:, None] - 0.5)], 1)
    y = y[:, None]
    loader = DataLoader(TensorDataset(x[:cut], y[:cut]), 16, shuffle=True)
    held = DataLoader(TensorDataset(x[cut:], y[cut:]), 16)
    model = mlp(5, 1)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    loss_fn = nn.BCEWithLogitsLoss()
    loss_of = of_pairs(loss_fn)
    return setup(
        model,
        opt,
        loader,
        held,
        loss_fn=loss_fn,
        task="binary",
        train_step=stepper(model, opt, loss_of),
        evaluate=mean_loss(model, held, loss_of),
    )
