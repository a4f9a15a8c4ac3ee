"""Faults of data: splits, encodings, samplers, augmentation, arithmetic, labels."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset, WeightedRandomSampler

from tests.debug.faulty.eighth.kit import gen, predict
from tests.debug.faulty.kit import pair
from tests.debug.faulty.seventh.kit import saved
from tests.debug.faulty.sixth.kit import (
    accuracy,
    blobs,
    loaders,
    mean_loss,
    mlp,
    of_pairs,
    pictures,
    setup,
    small_conv,
    stepper,
)


@pair("target-in-inputs", "leak-preprocessing")
def encodes_shops_by_their_sales(bug):
    """A shop is coded by the mean target of its rows, over all rows: a row's own target is in
    its input, the held-out ones' too. Costs: an honest evaluation, and a model that leans on the
    code. Twin: out of fold for training, training rows only for the rest."""
    g = gen(3)
    n, shops, val = 480, 160, 120
    x = torch.randn(n, 6, generator=g)
    shop = torch.randint(0, shops, (n,), generator=g)
    own = 0.5 * torch.randn(shops, generator=g)
    y = torch.tanh(x @ torch.randn(6, generator=g)) + own[shop] + 0.7 * torch.randn(n, generator=g)

    def code(fit, rows):
        total = torch.zeros(shops).index_add(0, shop[fit], y[fit])
        count = torch.bincount(shop[fit], minlength=shops)
        return ((total + 0.5 * y[fit].mean()) / (count + 0.5))[shop[rows]]

    every, train, held = torch.arange(n), torch.arange(n - val), torch.arange(n - val, n)
    if bug:
        coded = code(every, every)
    else:
        coded = torch.empty(n)
        for fold in train.chunk(5):
            rest = train[~torch.isin(train, fold)]
            coded[fold] = code(rest, fold)
        coded[held] = code(train, held)
    loader, val_loader = loaders(torch.cat([x, coded[:, None]], 1), y[:, None], val=val, batch=32)
    model = mlp(7, 1)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    loss_of = of_pairs(F.mse_loss)
    step = stepper(model, opt, loss_of)
    return setup(
        model,
        opt,
        loader,
        val_loader,
        step=step,
        loss_fn=nn.MSELoss(),
        task="regression",
        evaluate=mean_loss(model, val_loader, loss_of),
    )


@pair("leak-overlap", "leak-group")
def copies_before_the_split(bug):
    """Every picture is copied three times with other brightness, and then rows are split at
    random: nearly every held-out picture has its siblings in training. Costs: an honest
    evaluation. Twin: split first, copies of the training pictures only."""
    x, y, _ = pictures(n=120, seed=4)
    g = gen(5)
    y = torch.where(torch.rand(120, generator=g) < 0.2, 1 - y, y)  # raters err

    def copied(x, y):
        more = [x] + [x * (0.9 + 0.2 * torch.rand(len(x), 1, 1, 1, generator=g)) for _ in range(3)]
        return torch.cat(more), y.repeat(4)

    if bug:
        x, y = copied(x, y)
        order = torch.randperm(len(x), generator=g)
        cut = len(x) * 3 // 4
        train = x[order[:cut]], y[order[:cut]]
        held = x[order[cut:]], y[order[cut:]]
    else:
        order = torch.randperm(len(x), generator=g)
        cut = len(x) * 3 // 4
        train = copied(x[order[:cut]], y[order[:cut]])
        held = x[order[cut:]], y[order[cut:]]
    loader = DataLoader(TensorDataset(*train), 24, shuffle=True)
    val_loader = DataLoader(TensorDataset(*held), 24)
    model = small_conv()
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    return setup(
        model,
        opt,
        loader,
        val_loader,
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=2,
        evaluate=accuracy(model, val_loader),
    )


@pair("leak-group")
def heartbeats_split_by_row(bug):
    """Beats of one patient lie in training and in validation; a patient has a manner of its own
    and one diagnosis. Costs: an honest evaluation. Twin: whole patients."""
    g = gen(6)
    patients, each, d = 30, 10, 12
    who = torch.arange(patients).repeat_interleave(each)
    sick = torch.arange(patients) % 2
    manner = 0.8 * torch.randn(patients, d, generator=g)
    manner[:, 0] = 1.0 * (2.0 * sick - 1) + 0.6 * torch.randn(patients, generator=g)
    x = manner[who] + 0.4 * torch.randn(patients * each, d, generator=g)
    y = sick[who]
    if bug:
        order = torch.randperm(len(x), generator=g)
        train, held = order[:220], order[220:]
    else:
        chosen = torch.randperm(patients, generator=g)[:22]
        inside = torch.isin(who, chosen)
        train, held = inside.nonzero()[:, 0], (~inside).nonzero()[:, 0]
    loader = DataLoader(TensorDataset(x[train], y[train]), 20, shuffle=True)
    val_loader = DataLoader(TensorDataset(x[held], y[held]), 20)
    model = mlp(d, 2)
    opt = torch.optim.AdamW(model.parameters(), 3e-3)
    step = stepper(model, opt, of_pairs(F.cross_entropy))
    return setup(
        model,
        opt,
        loader,
        val_loader,
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=2,
        train_step=step,
        evaluate=accuracy(model, val_loader),
        groups={"train": who[train].tolist(), "val": who[held].tolist()},
    )


@pair("sees-the-future")
def smooths_on_both_sides(bug):
    """A forecaster of each next value smooths its inputs by a centred moving average, so that
    what is to be foretold is in it. Costs: worthless in service, where the right half is
    missing. Twin: the same average, trailing."""
    g = gen(7)
    t = torch.arange(25) / 3.0
    start = 6.28 * torch.rand(128, 1, generator=g)
    series = torch.sin(t + start) + 0.3 * torch.randn(128, 25, generator=g)
    loader, val_loader = loaders(series[:, :-1], series[:, 1:])

    class Forecaster(nn.Module):
        def __init__(self, width=5):
            super().__init__()
            self.width = width
            self.rnn = nn.GRU(2, 24, batch_first=True)
            self.out = nn.Linear(24, 1)

        def smooth(self, x):
            w = self.width
            sides = (w // 2, w // 2) if bug else (w - 1, 0)
            return F.avg_pool1d(F.pad(x[:, None], sides, mode="replicate"), w, 1)[:, 0]

        def forward(self, x):
            h, _ = self.rnn(torch.stack([x, self.smooth(x)], -1))
            return self.out(h)[..., 0]

    model = Forecaster()
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    loss_of = of_pairs(F.mse_loss)
    step = stepper(model, opt, loss_of)
    return setup(
        model,
        opt,
        loader,
        val_loader,
        step=step,
        loss_fn=nn.MSELoss(),
        task="regression",
        evaluate=mean_loss(model, val_loader, loss_of),
        **saved(model=model, optimizer=opt),
    )


@pair("few-examples-drawn")
def weighs_classes_not_rows(bug):
    """WeightedRandomSampler is given a weight per class, not per row: it draws the first three
    rows only, over and over. Costs: all other data unseen."""
    x, y = blobs(n=240, k=3, seed=8)
    rare = (y != 2) | (torch.rand(240, generator=gen(8)) < 0.4)
    x, y = x[rare], y[rare]
    train = TensorDataset(x[:-48], y[:-48])
    held = DataLoader(TensorDataset(x[-48:], y[-48:]), 16)
    per_class = 1.0 / torch.bincount(train.tensors[1], minlength=3)
    weights = per_class if bug else per_class[train.tensors[1]]
    loader = DataLoader(train, 16, sampler=WeightedRandomSampler(weights, num_samples=len(train)))
    model = mlp(8, 3)
    opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    return setup(
        model,
        opt,
        loader,
        held,
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=3,
    )


@pair("augmentation-mismatch", "labels-moved")
def flips_without_the_mask(bug):
    """Half of the pictures are mirrored, their masks never. Costs: half of the masks are wrong;
    the network blurs both sides."""
    x, _, masks = pictures(n=128, seed=9)
    side = torch.arange(8)
    x = x + 0.2 * (side / 7.0)  # lit from the right

    class Bars(Dataset):
        def __init__(self, x, masks, mirror):
            self.x, self.masks, self.mirror = x, masks, mirror

        def __len__(self):
            return len(self.x)

        def __getitem__(self, i):
            picture, mask = self.x[i], self.masks[i]
            if self.mirror and torch.rand(()) < 0.5:
                picture = picture.flip(-1)
                if not bug:
                    mask = mask.flip(-1)
            return picture, mask[None]

    loader = DataLoader(Bars(x[:96], masks[:96], True), 16, shuffle=True)
    val_loader = DataLoader(Bars(x[96:], masks[96:], False), 16)
    model = nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(12, 12, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(12, 1, 1),
    )
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    loss_fn = nn.BCEWithLogitsLoss()
    step = stepper(model, opt, of_pairs(loss_fn))

    def evaluate():
        out, mask = predict(model, val_loader)
        out, mask = out > 0, mask > 0.5
        return {"iou": (out & mask).sum().item() / max(1, (out | mask).sum().item())}

    return setup(
        model,
        opt,
        loader,
        val_loader,
        step=step,
        loss_fn=loss_fn,
        task="binary",
        evaluate=evaluate,
    )


@pair("empty-targets")
def pads_with_the_end_sign(bug):
    """pad_token = eos_token, and all labels equal to it are set to -100: the one real end sign
    of each sentence too. Costs: the model never stops. Twin: only what lies behind the end sign
    is left out of the loss."""
    end, vocab = 0, 12
    g = gen(10)
    follows = torch.randperm(vocab - 1, generator=g) + 1
    sentences = []
    for _ in range(120):
        n = int(torch.randint(3, 9, (), generator=g))
        s = [int(torch.randint(1, vocab, (), generator=g))]
        while len(s) < n and s[-1] != 5:  # 5 closes a sentence
            s.append(int(follows[s[-1] - 1]))
        sentences.append(torch.tensor([*s, end]))

    def collate(rows):
        ids = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=end)
        labels = ids.clone()
        if bug:
            labels[ids == end] = -100
        else:
            lengths = torch.tensor([len(r) for r in rows])
            labels[torch.arange(ids.shape[1])[None] >= lengths[:, None]] = -100
        return ids, labels

    loader = DataLoader(sentences[:96], 16, shuffle=True, collate_fn=collate)
    val_loader = DataLoader(sentences[96:], 12, collate_fn=collate)

    class Language(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb, self.rnn = nn.Embedding(vocab, 16), nn.GRU(16, 32, batch_first=True)
            self.out = nn.Linear(32, vocab)

        def forward(self, ids):
            return self.out(self.rnn(self.emb(ids))[0])

    model = Language()
    opt = torch.optim.Adam(model.parameters(), 1e-2)

    def loss_of(model, batch):
        ids, labels = batch
        return F.cross_entropy(
            model(ids[:, :-1]).flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100
        )

    step = stepper(model, opt, loss_of)

    def evaluate():
        model.eval()
        ids = torch.arange(1, vocab)[:, None]
        with torch.no_grad():
            for _ in range(12):
                ids = torch.cat([ids, model(ids)[:, -1:].argmax(-1)], 1)
        model.train()
        return {"stops": (ids == end).any(1).float().mean().item()}

    return setup(
        model,
        opt,
        loader,
        val_loader,
        step=step,
        loss_of=loss_of,
        evaluate=evaluate,
    )


@pair("uint8-arithmetic")
def differences_of_bytes(bug):
    """The motion picture is the difference of two byte frames: where it is negative it wraps to
    255. Costs: accuracy, for noise round 0 becomes the loudest thing."""
    g = gen(11)
    n = 144
    y = torch.randint(0, 2, (n,), generator=g)  # does the lamp grow brighter or darker?
    at = torch.randint(0, 6, (n, 2), generator=g)
    first = 120 + 6 * torch.randn(n, 8, 8, generator=g)
    second = 120 + 6 * torch.randn(n, 8, 8, generator=g)
    for i in range(n):
        r, c = at[i].tolist()
        first[i, r : r + 2, c : c + 2] += 30 * (1 - y[i])
        second[i, r : r + 2, c : c + 2] += 30 * y[i]
    first, second = first.to(torch.uint8), second.to(torch.uint8)

    class Motion(Dataset):
        def __init__(self, rows):
            self.rows = rows

        def __len__(self):
            return len(self.rows)

        def __getitem__(self, i):
            a, b = first[self.rows[i]], second[self.rows[i]]
            change = (b - a).float() if bug else b.float() - a.float()
            return change[None] / 25.0, y[self.rows[i]]

    loader = DataLoader(Motion(range(112)), 16, shuffle=True)
    val_loader = DataLoader(Motion(range(112, n)), 16)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.AvgPool2d(4), nn.Flatten(), nn.Linear(32, 2)
    )
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    return setup(
        model,
        opt,
        loader,
        val_loader,
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=2,
        evaluate=accuracy(model, val_loader),
    )


@pair("labels-renamed", "labels-moved")
def numbers_the_names_twice(bug):
    """Names of classes are numbered per split (a LabelEncoder fitted anew): the held-out rows
    lack the first name, so all their numbers are one less. Costs: a worthless evaluation. Twin:
    the numbers of the training rows."""
    x, y = blobs(n=230, k=5, seed=12, spread=0.7)
    common = (y != 0) | ((torch.arange(230) < 150) & (torch.rand(230, generator=gen(12)) < 0.3))
    x, y = x[common], y[common]  # "ash" is rare: none among the last rows
    names = ["ash", "beech", "elm", "lime", "oak"]
    train = [(a, names[c]) for a, c in zip(x[:-48], y[:-48], strict=False)]
    held = [(a, names[c]) for a, c in zip(x[-48:], y[-48:], strict=False)]

    def numbered(rows, table):
        return TensorDataset(
            torch.stack([a for a, _ in rows]), torch.tensor([table[s] for _, s in rows])
        )

    def table_of(rows):
        return {s: i for i, s in enumerate(sorted({s for _, s in rows}))}

    table = table_of(train)
    loader = DataLoader(numbered(train, table), 16, shuffle=True)
    val_loader = DataLoader(numbered(held, table_of(held) if bug else table), 16)
    model = mlp(8, 5)
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    step = stepper(model, opt, of_pairs(F.cross_entropy))
    return setup(
        model,
        opt,
        loader,
        val_loader,
        step=step,
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=5,
        evaluate=accuracy(model, val_loader),
    )


@pair("dataset-changes-itself", "inplace-modified")
def standardises_in_place(bug):
    """__getitem__ subtracts and divides in place on a view of the stored table: each visit
    standardises the row once more, towards a constant. Costs: after some epochs other inputs
    than the held-out ones."""
    x, y = blobs(n=160, seed=13)
    x = 20 + 3 * x
    mean, std = x[:128].mean(0), x[:128].std(0)

    class Table(Dataset):
        def __init__(self, x, y):
            self.x, self.y = x.clone(), y

        def __len__(self):
            return len(self.y)

        def __getitem__(self, i):
            row = self.x[i]
            if bug:
                row -= mean
                row /= std
                return row, self.y[i]
            return (row - mean) / std, self.y[i]

    loader = DataLoader(Table(x[:128], y[:128]), 16, shuffle=True)
    val_loader = DataLoader(TensorDataset((x[128:] - mean) / std, y[128:]), 16)
    model = mlp()
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    return setup(
        model,
        opt,
        loader,
        val_loader,
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=4,
    )
