"""Faults of data: splits, encodings, loaders, augmentation, collation."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset, random_split

from tests.debug.faulty.eighth.kit import gen, predict
from tests.debug.faulty.kit import pair
from tests.debug.faulty.sixth.kit import (
    accuracy,
    blobs,
    loaders,
    mean_loss,
    mlp,
    of_pairs,
    pictures,
    setup,
    stepper,
    trained,
    trained_pairs,
)


class Shots(Dataset):
    def __init__(self, images, labels, transform=None):
        self.images, self.labels, self.transform = images, labels, transform

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        image = self.images[i]
        if self.transform is not None:
            image = self.transform(image)
        return image, self.labels[i]


def distort(image):
    """Training augmentation: grain, gain and a hole somewhere."""
    image = image * (0.5 + torch.rand(())) + 0.5 * torch.randn_like(image)
    top, left = torch.randint(0, image.shape[-1] - 3, (2,)).tolist()
    image[:, top : top + 4, left : left + 4] = 0
    return image


@pair("augmented-validation")
def one_transform_for_both_parts(bug):
    """random_split() is called on the one data set that carries the training augmentation, so the
    validation pictures are distorted anew at each reading: the score is too low and differs from
    one evaluation to the next. The twin splits indices and wraps the same pictures twice, the
    validation part without a transform."""
    x, y, _ = pictures(n=320, seed=3)
    full = Shots(x, y, distort)
    parts = random_split(full, [256, 64], generator=gen(1))
    if bug:
        train, val = parts
    else:
        train = parts[0]
        val = Subset(Shots(x, y), parts[1].indices)
    loader, held = DataLoader(train, 32, shuffle=True), DataLoader(val, 32)
    model = nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(12, 16, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveMaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 2),
    )
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    return trained_pairs(model, opt, (loader, held), nn.CrossEntropyLoss(), num_classes=2)


class Compose:
    def __init__(self, *steps):
        self.steps = steps

    def __call__(self, x):
        for s in self.steps:
            x = s(x)
        return x


def to_tensor(a):
    return torch.from_numpy(a).float()[None] / 255


def pil_to_tensor(a):
    return torch.from_numpy(a).float()[None]


def normalise(x):
    return (x - 0.25) / 0.3


@pair("covariate-shift", "range-not-normalised")
def two_transform_tables(bug):
    """The validation transform was written with pil_to_tensor (0 to 255) where the training one
    has to_tensor (0 to 1); both then subtract the same mean. The validation pictures lie hundreds
    of times farther out than anything the model has seen, and its guesses there are chance; the
    twin uses to_tensor in both."""
    x, y, _ = pictures(n=288, seed=5)
    raw = (x[:, 0].clamp(-0.5, 1.5) + 0.5).mul(127).byte().numpy()
    tables = {
        "train": Compose(to_tensor, normalise),
        "val": Compose(pil_to_tensor if bug else to_tensor, normalise),
    }
    order = torch.randperm(len(y), generator=gen(2)).numpy()
    where = {"train": order[:224], "val": order[224:]}
    sets = {k: Shots(raw[where[k]], y[torch.from_numpy(where[k])], tables[k]) for k in where}
    loader, held = DataLoader(sets["train"], 16, shuffle=True), DataLoader(sets["val"], 16)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.Tanh(),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.Tanh(),
        nn.AdaptiveMaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32, 2),
    )
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    loss_of = of_pairs(F.cross_entropy)
    step = stepper(model, opt, loss_of)

    def evaluate():
        return {**accuracy(model, held)(), **mean_loss(model, held, loss_of)()}

    return setup(
        model,
        opt,
        loader,
        held,
        step=step,
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=2,
        evaluate=evaluate,
    )


@pair("leak-group", "leak-overlap")
def enlarged_on_disk_before_the_split(bug):
    """Each sample was stored with three lightly jittered copies ("offline augmentation") and only
    then were rows split at random, so nearly every validation row has a copy of itself in
    training and the score is that of memory. The twin splits the originals, enlarges the
    training part and keeps bare originals for validation."""
    n, copies = 120, 4
    x, _ = blobs(n=n, d=16, k=4, seed=11, spread=1.0)
    g = gen(12)
    w = torch.randn(16, 3, generator=g)
    y = (x @ w + 4 * torch.randn(n, 3, generator=g)).argmax(1)
    big = x.repeat_interleave(copies, 0)
    jitter = 0.15 * torch.randn(big.shape, generator=g)
    jitter[::copies] = 0
    big, by = big + jitter, y.repeat_interleave(copies)
    source = torch.arange(n).repeat_interleave(copies)
    if bug:
        order = torch.randperm(len(by), generator=g)
        tr, va = order[:-96], order[-96:]
    else:
        held_out = torch.randperm(n, generator=g)[:30]
        inside = torch.isin(source, held_out)
        tr = torch.where(~inside)[0]
        va = torch.where(inside & (torch.arange(len(by)) % copies == 0))[0]
    loader = DataLoader(TensorDataset(big[tr], by[tr]), 16, shuffle=True)
    held = DataLoader(TensorDataset(big[va], by[va]), 16)
    model = mlp(16, 3, 48)
    opt = torch.optim.AdamW(model.parameters(), 3e-3, weight_decay=1e-2)
    return trained_pairs(
        model,
        opt,
        (loader, held),
        nn.CrossEntropyLoss(),
        num_classes=3,
        groups={"train": source[tr].tolist(), "val": source[va].tolist()},
    )


@pair("target-in-inputs", "leak-preprocessing")
def shop_mean_of_the_target(bug):
    """A column "mean churn of the shop" is computed over the whole table, the row's own answer
    included; with two or three rows per shop it gives the answer away, in training and in
    validation, and nothing is left of the score in use. The twin encodes training rows out of
    fold and validation rows by the training rows alone, shrunk towards the prior."""
    n, shops = 480, 190
    g = gen(21)
    x = torch.randn(n, 5, generator=g)
    shop = torch.randint(0, shops, (n,), generator=g)
    w = torch.tensor([1.2, -0.8, 0.5, 0.0, 0.0])
    effect = 0.8 * torch.randn(shops, generator=g)
    y = (x @ w + effect[shop] + 1.2 * torch.randn(n, generator=g) > 0).float()
    tr, va = torch.arange(n - 96), torch.arange(n - 96, n)

    def means(of, rows, strength):
        total = torch.zeros(shops).index_add(0, shop[rows], y[rows])
        count = torch.zeros(shops).index_add(0, shop[rows], torch.ones(len(rows)))
        prior = y[rows].mean()
        return ((total + strength * prior) / (count + strength).clamp(min=1e-6))[shop[of]]

    code = torch.zeros(n)
    if bug:
        code = means(torch.arange(n), torch.arange(n), 0.0)
    else:
        for k in range(5):
            code[tr[k::5]] = means(tr[k::5], tr[torch.arange(len(tr)) % 5 != k], 2.0)
        code[va] = means(va, tr, 2.0)
    table = torch.cat([x, 4 * (code[:, None] - 0.5)], 1)
    loader = DataLoader(TensorDataset(table[tr], y[tr, None]), 32, shuffle=True)
    held = DataLoader(TensorDataset(table[va], y[va, None]), 32)
    model = mlp(6, 1, 16)
    opt = torch.optim.AdamW(model.parameters(), 3e-3, weight_decay=1e-2)

    def evaluate():
        out, t = predict(model, held)
        return {"accuracy": ((out > 0) == (t > 0.5)).float().mean().item()}

    return trained_pairs(
        model, opt, (loader, held), nn.BCEWithLogitsLoss(), task="binary", evaluate=evaluate
    )


class Reviews(Dataset):
    """Token ids of different lengths; liked or not by which of two words is there."""

    def __init__(self, n, seed):
        g = gen(seed)
        self.rows, self.liked = [], []
        for _ in range(n):
            row = torch.randint(3, 20, (int(torch.randint(4, 13, (1,), generator=g)),), generator=g)
            liked = int(torch.randint(0, 2, (1,), generator=g))
            row[int(torch.randint(0, len(row), (1,), generator=g))] = 1 + liked
            self.rows.append(row)
            self.liked.append(liked)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return {"ids": self.rows[i], "liked": self.liked[i]}


class PackedReader(nn.Module):
    def __init__(self, vocab=20, d=16, h=24):
        super().__init__()
        self.embed = nn.Embedding(vocab, d, padding_idx=0)
        self.rnn = nn.GRU(d, h, batch_first=True)
        self.out = nn.Linear(h, 2)

    def forward(self, ids, lengths):
        packed = pack_padded_sequence(
            self.embed(ids), lengths, batch_first=True, enforce_sorted=True
        )
        return self.out(self.rnn(packed)[1][-1])


@pair("labels-shuffled", "rows-mixed", "labels-moved")
def collate_sorts_the_rows_only(bug):
    """The collate function sorts the sentences by length, as pack_padded_sequence wants, but
    stacks the labels in the order in which they came; most sentences get a neighbour's label and
    nothing can be learnt. The twin sorts the items before it takes both from them."""

    def collate(items):
        ordered = sorted(items, key=lambda e: -len(e["ids"]))
        ids = nn.utils.rnn.pad_sequence([e["ids"] for e in ordered], batch_first=True)
        return {
            "ids": ids,
            "lengths": torch.tensor([len(e["ids"]) for e in ordered]),
            "liked": torch.tensor([e["liked"] for e in (items if bug else ordered)]),
        }

    loader = DataLoader(Reviews(320, 31), 16, shuffle=True, collate_fn=collate)
    held = DataLoader(Reviews(80, 32), 16, collate_fn=collate)
    model = PackedReader()
    opt = torch.optim.Adam(model.parameters(), 1e-2)

    def loss_of(model, batch):
        return F.cross_entropy(model(batch["ids"], batch["lengths"]), batch["liked"])

    step = stepper(model, opt, loss_of)

    def evaluate():
        model.eval()
        with torch.no_grad():
            hits = [model(b["ids"], b["lengths"]).argmax(1) == b["liked"] for b in held]
        model.train()
        return {"accuracy": torch.cat(hits).float().mean().item()}

    return setup(
        model, opt, loader, held, step=step, loss_of=loss_of, num_classes=2, evaluate=evaluate
    )


class Spectra(Dataset):
    """Log power of short tones; the spectrum goes through one preallocated buffer."""

    def __init__(self, n, seed, copy_out):
        rng = np.random.default_rng(seed)
        self.label = rng.integers(0, 3, n)
        freq = np.array([3.0, 6.0, 10.0])[self.label] + rng.normal(0, 0.6, n)
        t = np.arange(48) / 48
        phase = rng.uniform(0, 6.28, (n, 1))
        self.waves = np.sin(2 * np.pi * freq[:, None] * t + phase) + 0.4 * rng.normal(size=(n, 48))
        self.buffer = np.empty(25, dtype=np.float32)
        self.copy_out = copy_out

    def __len__(self):
        return len(self.label)

    def __getitem__(self, i):
        np.log1p(np.abs(np.fft.rfft(self.waves[i])), out=self.buffer, casting="same_kind")
        self.buffer -= self.buffer.mean()
        out = self.buffer.copy() if self.copy_out else self.buffer
        return torch.from_numpy(out), int(self.label[i])


@pair("memory-shared")
def one_buffer_for_all_spectra(bug):
    """__getitem__ writes each spectrum into the same preallocated array and returns
    torch.from_numpy of it; when the items are stacked, all rows of the batch are the last one, with
    sixteen different labels, and nothing is learnt. The twin hands out a copy."""
    loader = DataLoader(Spectra(300, 41, not bug), 16, shuffle=True)
    held = DataLoader(Spectra(75, 42, not bug), 16)
    model = mlp(25, 3)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    return trained_pairs(model, opt, (loader, held), nn.CrossEntropyLoss(), num_classes=3)


class Purchases(Dataset):
    """(user, bought item, item not bought); the last drawn when asked for."""

    def __init__(self, pairs, bought, items, fixed_rng):
        self.pairs, self.bought, self.items, self.fixed_rng = pairs, bought, items, fixed_rng
        self.rng = np.random.default_rng(7)

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        user, item = self.pairs[i]
        rng = np.random.default_rng(7) if self.fixed_rng else self.rng
        other = int(rng.integers(self.items))
        while (user, other) in self.bought:
            other = int(rng.integers(self.items))
        return user, item, other


class Factors(nn.Module):
    def __init__(self, users, items, d=8):
        super().__init__()
        self.user, self.item = nn.Embedding(users, d), nn.Embedding(items, d)
        nn.init.normal_(self.user.weight, std=0.3)
        nn.init.normal_(self.item.weight, std=0.3)

    def forward(self, u, i):
        return (self.user(u) * self.item(i)).sum(-1)


@pair("same-draws", "rng-reseeded")
def negatives_from_a_fresh_generator(bug):
    """For "reproducibility" __getitem__ makes its random generator anew from the seed, so the item
    not bought is nearly always the same one and the rest are never pushed down: ranking on
    random negatives hardly improves. The twin keeps one generator in the data set."""
    users, items = 48, 36
    rng = np.random.default_rng(51)
    taste_u, taste_i = rng.integers(0, 4, users), np.arange(items) % 4
    bought = [
        (u, int(i))
        for u in range(users)
        for i in rng.choice(np.where(taste_i == taste_u[u])[0], 8, replace=False)
    ]
    rng.shuffle(bought)
    bought = [(int(u), int(i)) for u, i in bought]
    known = set(bought)
    train = Purchases(bought[:300], known, items, bug)
    test = []
    for u, i in bought[300:]:
        other = int(rng.integers(items))
        while (u, other) in known:
            other = int(rng.integers(items))
        test.append((u, i, other))
    held = DataLoader(TensorDataset(*torch.tensor(test).T), 28)
    loader = DataLoader(train, 30, shuffle=True)
    model = Factors(users, items)
    opt = torch.optim.Adam(model.parameters(), 2e-2)

    def bpr(model, batch):
        u, i, j = batch
        return -F.logsigmoid(model(u, i) - model(u, j)).mean()

    def evaluate():
        with torch.no_grad():
            won = torch.cat([(model(u, i) > model(u, j)).float() for u, i, j in held])
        return {"auc": won.mean().item()}

    return trained(model, opt, (loader, held), bpr, evaluate=evaluate)


class MotionNet(nn.Module):
    """Two grey frames as bytes, [n, 2, s, s]; looks at their difference."""

    def __init__(self, early_float):
        super().__init__()
        self.early_float = early_float
        self.net = nn.Sequential(
            nn.Conv2d(1, 12, (3, 5), padding=(1, 2)),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(48, 2),
        )

    def forward(self, frames):
        if self.early_float:
            frames = frames.float()
        moved = frames[:, 1:] - frames[:, :1]
        return self.net(moved.float() / 64)


@pair("uint8-arithmetic", "wrapped-bytes")
def frame_difference_of_bytes(bug):
    """The model subtracts the previous frame from the current one while both are still uint8, so
    what darkened comes out as bright as what brightened and the direction of the movement can
    hardly be told. The twin converts to float first."""
    n, s = 320, 10
    g = gen(61)
    frames = torch.randint(55, 66, (n, 2, s, s), generator=g)
    y = torch.randint(0, 2, (n,), generator=g)
    row = torch.randint(1, s - 2, (n,), generator=g)
    col = torch.randint(3, s - 4, (n,), generator=g)
    for i in range(n):
        to = col[i] + (1 if y[i] else -1)
        frames[i, 0, row[i] : row[i] + 2, col[i]] += 128
        frames[i, 1, row[i] : row[i] + 2, to] += 128
    loader, held = loaders(frames.byte(), y, val=64)
    model = MotionNet(not bug)
    opt = torch.optim.Adam(model.parameters(), 4e-3)
    return trained_pairs(model, opt, (loader, held), nn.CrossEntropyLoss(), num_classes=2)


class Scans(Dataset):
    def __init__(self, images, masks, together=True, augment=True):
        self.images, self.masks, self.together, self.augment = images, masks, together, augment

    def __len__(self):
        return len(self.images)

    def maybe_flip(self, picture, coin=None):
        coin = torch.rand(()) if coin is None else coin
        return picture.flip(-1).flip(-2) if coin < 0.5 else picture

    def __getitem__(self, i):
        image, mask = self.images[i], self.masks[i]
        if self.augment:
            if self.together:
                coin = torch.rand(())
                image, mask = self.maybe_flip(image, coin), self.maybe_flip(mask, coin)
            else:
                image, mask = self.maybe_flip(image), self.maybe_flip(mask)
        return {"image": image, "mask": mask}


@pair("augmentation-mismatch", "labels-moved")
def image_and_mask_each_flip_for_themselves(bug):
    """The random flip is applied to the image and to the mask in two calls that toss two coins, so
    for half of the scans the mask lies elsewhere than the object, and the network draws ghosts.
    The twin tosses once for both."""
    x, _, m = pictures(n=320, seed=71)
    train, val = (
        Scans(x[:256], m[:256, None], together=not bug),
        Scans(x[256:], m[256:, None], augment=False),
    )
    loader, held = DataLoader(train, 16, shuffle=True), DataLoader(val, 16)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 1, 1),
    )
    opt = torch.optim.Adam(model.parameters(), 5e-3)

    def loss_of(model, batch):
        return F.binary_cross_entropy_with_logits(model(batch["image"]), batch["mask"])

    def evaluate():
        model.eval()
        inter = union = 0.0
        with torch.no_grad():
            for b in held:
                p, t = model(b["image"]) > 0, b["mask"] > 0.5
                inter, union = inter + (p & t).sum().item(), union + (p | t).sum().item()
        model.train()
        return {"iou": inter / max(union, 1)}

    return trained(model, opt, (loader, held), loss_of, evaluate=evaluate)


class Sensors(Dataset):
    def __init__(self, table, target, mean, std, in_place):
        self.table, self.target, self.mean, self.std = table, target, mean, std
        self.in_place = in_place

    def __len__(self):
        return len(self.table)

    def __getitem__(self, i):
        row = self.table[i]
        if self.in_place:
            row -= self.mean
            row /= self.std
        else:
            row = (row - self.mean) / self.std
        return {"x": row, "y": self.target[i]}


@pair("dataset-changes-itself", "stored-data-changed")
def standardises_a_view_of_the_table(bug):
    """__getitem__ standardises `row` with -= and /=, and row is a view of the stored table: each
    pass standardises the data once more, until all rows are the same. The twin makes a new
    tensor."""
    g = gen(81)
    z = torch.randn(330, 6, generator=g)
    y = z @ torch.tensor([[1.0], [-0.7], [0.5], [0.0], [0.3], [0.0]]) + 0.1 * torch.randn(
        330, 1, generator=g
    )
    scale = torch.tensor([4.0, 2.0, 9.0, 3.0, 5.0, 6.0])
    table = 20 + scale * z
    train_rows, val_rows = table[:256].clone(), table[256:].clone()
    mean, std = train_rows.mean(0), train_rows.std(0)
    loader = DataLoader(Sensors(train_rows, y[:256], mean, std, bug), 16, shuffle=True)
    held = DataLoader(Sensors(val_rows, y[256:], mean, std, bug), 16)
    model = mlp(6, 1)
    opt = torch.optim.Adam(model.parameters(), 5e-3)

    def loss_of(model, batch):
        return F.mse_loss(model(batch["x"]), batch["y"])

    def evaluate():
        with torch.no_grad():
            err = torch.cat([(model(b["x"]) - b["y"]) ** 2 for b in held])
        return {"rmse": err.mean().sqrt().item()}

    return trained(model, opt, (loader, held), loss_of, evaluate=evaluate)


@pair("label-shift")
def last_fifth_of_the_class_folders(bug):
    """The files are listed folder by folder, that is class by class, and the last fifth becomes
    the validation part: it holds a single class, of which training has seen next to nothing.
    The twin shuffles the listing, with a seed, before it cuts."""
    x, y = blobs(n=320, k=4, seed=91, spread=1.3)
    listing = [i for c in range(4) for i in torch.where(y == c)[0].tolist()]
    if not bug:
        np.random.default_rng(0).shuffle(listing)
    cut = int(0.8 * len(listing))
    tr, va = torch.tensor(listing[:cut]), torch.tensor(listing[cut:])
    cfg = {"lr": 0.05, "batch": 16}
    loader = DataLoader(TensorDataset(x[tr], y[tr]), cfg["batch"], shuffle=True)
    held = DataLoader(TensorDataset(x[va], y[va]), cfg["batch"])
    model = mlp()
    opt = torch.optim.SGD(model.parameters(), cfg["lr"], momentum=0.9)
    return trained_pairs(model, opt, (loader, held), nn.CrossEntropyLoss(), num_classes=4)
