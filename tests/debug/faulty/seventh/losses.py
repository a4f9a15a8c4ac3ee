"""Pairs whose fault lies in the loss."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

from tests.debug.faulty.kit import pair
from tests.debug.faulty.seventh.kit import saved, texts
from tests.debug.faulty.sixth.kit import (
    blobs,
    loaders,
    mlp,
    numbers,
    of_pairs,
    pictures,
    setup,
    stepper,
)


@dataclass
class Work:
    model: Any
    optimizer: Any
    train_loader: Any
    loss_fn: Any = None
    loss_of: Any = None
    val_loader: Any = None
    train_step: Any = None
    evaluate: Any = None
    task: Any = None


@pair("weighed-after-the-mean")
def thin_strokes(bug):
    """The focal factor (1 - p)^2 is taken of the mean cross-entropy of all pixels instead of each
    pixel's. Costs no pixel is favoured, the loss only dies away once the many easy background
    pixels are right; fewer strokes found."""
    x, _y, masks = pictures(n=128)
    loader, held = loaders(x, masks.long())
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 2, 1),
    )
    opt = torch.optim.SGD(model.parameters(), 0.2, momentum=0.9)

    def focal(logits, target):
        ce = F.cross_entropy(logits, target, reduction="mean" if bug else "none")
        return ((1 - torch.exp(-ce)) ** 2 * ce).mean()

    def evaluate():
        model.eval()
        both = either = 0
        with torch.no_grad():
            for a, b in held:
                found = model(a).argmax(1)
                both += ((found == 1) & (b == 1)).sum().item()
                either += ((found == 1) | (b == 1)).sum().item()
        model.train()
        return {"iou": both / max(either, 1)}

    step = stepper(model, opt, of_pairs(focal))
    return setup(
        model,
        opt,
        loader,
        held,
        step=step,
        loss_fn=focal,
        num_classes=2,
        evaluate=evaluate,
        **saved(model=model, optimizer=opt),
    )


@pair("missing-log-softmax")
def pupil_and_teacher(bug):
    """KLDivLoss gets the pupil's probabilities where it wants their logarithms. Costs it no longer
    is a divergence: it has no minimum at the teacher's distribution, the pupil turns over-sure."""
    x, y = blobs(n=224, spread=2.5)
    loader, held = loaders(x, y)
    teacher, model = mlp(h=64), mlp(h=8)
    tuned = torch.optim.Adam(teacher.parameters(), 1e-2)
    for _ in range(60):
        tuned.zero_grad()
        F.cross_entropy(teacher(x[:-32]), y[:-32]).backward()
        tuned.step()
    teacher.eval().requires_grad_(False)
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    kl, heat = nn.KLDivLoss(reduction="batchmean"), 2.0

    def loss_of(m, batch):
        with torch.no_grad():
            wanted = F.softmax(teacher(batch[0]) / heat, -1)
        logits = m(batch[0]) / heat
        given = F.softmax(logits, -1) if bug else F.log_softmax(logits, -1)
        return heat**2 * kl(given, wanted)

    def evaluate():
        with torch.no_grad():
            far = right = n = 0
            for a, b in held:
                t, s = teacher(a).log_softmax(-1), model(a).log_softmax(-1)
                far += (t.exp() * (t - s)).sum().item()
                right += (s.argmax(-1) == b).sum().item()
                n += len(b)
        return {"divergence": far / n, "accuracy": right / n}

    step = stepper(model, opt, loss_of)
    return setup(
        model,
        opt,
        loader,
        held,
        loss_of=loss_of,
        train_step=step,
        evaluate=evaluate,
        extra={"teacher": teacher},
    )


@pair("classes-compete")
def tagged_articles(bug):
    """cross_entropy is fed the multi-hot tags: tags fight for one probability mass, rows with no
    tag count nothing. Costs the threshold at 0 means nothing, fewer tag sets are right (the loss
    cannot fall below log of the tags)."""
    g = torch.Generator().manual_seed(2)
    x = torch.randn(224, 8, generator=g)
    y = (x @ torch.randn(8, 5, generator=g) + 0.3 * torch.randn(224, 5, generator=g) > 0.5).float()
    loader, held = loaders(x, y)
    model = mlp(k=5)
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    loss_fn = nn.CrossEntropyLoss() if bug else nn.BCEWithLogitsLoss()

    def evaluate():
        with torch.no_grad():
            ok = [((model(a) > 0) == (b > 0.5)).float() for a, b in held]
        ok = torch.cat(ok)
        return {"tag_accuracy": ok.mean().item(), "exact": ok.prod(-1).mean().item()}

    return setup(model, opt, loader, held, loss_fn=loss_fn, task="multilabel", evaluate=evaluate)


@pair("quantiles-swapped")
def delivery_times(bug):
    """The pinball loss takes (prediction - target) for (target - prediction): each head learns the
    opposite quantile. Costs the "10 %" head is the 90 % quantile, the interval covers nothing."""
    g = torch.Generator().manual_seed(6)
    x = torch.rand(288, 3, generator=g)
    y = 2 * x[:, :1] + (0.3 + x[:, 1:2]) * torch.randn(288, 1, generator=g)
    loader, held = loaders(x, y, val=64)
    model = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 3))
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    taus = torch.tensor([0.1, 0.5, 0.9])

    def pinball(out, target):
        error = out - target if bug else target - out
        return torch.maximum(taus * error, (taus - 1) * error).mean()

    def evaluate():
        with torch.no_grad():
            out = torch.cat([model(a) for a, _ in held])
            t = torch.cat([b for _, b in held])
        inside = (t >= out[:, :1]) & (t <= out[:, 2:])
        return {
            "coverage_80": inside.float().mean().item(),
            "below": [round(v, 2) for v in (t <= out).float().mean(0).tolist()],
        }

    step = stepper(model, opt, of_pairs(pinball))
    return setup(
        model,
        opt,
        loader,
        held,
        step=step,
        loss_fn=pinball,
        task="regression",
        evaluate=evaluate,
        extra={"quantiles": [0.1, 0.5, 0.9]},
        **saved(model=model, optimizer=opt),
    )


@pair("loss-negated")
def patients_survive(bug):
    """Cox's partial likelihood sorts by rising time before the cumulative sum, so the risk set of
    an event holds those gone before instead of those still there. Costs high risk is learnt as low,
    concordance under one half."""
    g = torch.Generator().manual_seed(7)
    n = 256
    x = torch.randn(n, 5, generator=g)
    risk = 1.2 * x[:, 0] - x[:, 1]
    died = -torch.log(torch.rand(n, generator=g)) * torch.exp(-risk)
    left = -torch.log(torch.rand(n, generator=g)) * 3
    time, event = torch.minimum(died, left), (died <= left).float()
    loader, held = loaders(x, time, event, val=64, batch=32)
    model = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1))
    opt = torch.optim.Adam(model.parameters(), 1e-2)

    def loss_of(m, batch):
        a, t, e = batch
        order = torch.argsort(t, descending=not bug)
        score, e = m(a)[order, 0], e[order]
        return -((score - torch.logcumsumexp(score, 0)) * e).sum() / e.sum().clamp(min=1)

    def evaluate():
        with torch.no_grad():
            s = torch.cat([model(b[0])[:, 0] for b in held])
        t, e = torch.cat([b[1] for b in held]), torch.cat([b[2] for b in held])
        able = (e[:, None] == 1) & (t[:, None] < t[None])
        return {"concordance": (s[:, None] > s[None])[able].float().mean().item()}

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


class TwoViews(Dataset):
    def __init__(self, x, once):
        self.x, self.once = x, once

    def __len__(self):
        return len(self.x)

    def augment(self, row):
        row = row.clone()
        row[8:] = row[8:] + 2.5 * torch.randn(len(row) - 8)
        return row * (1 + 0.2 * torch.randn(()))

    def __getitem__(self, i):
        views = (
            [self.augment(self.x[i])] * 2
            if self.once
            else [self.augment(self.x[i]) for _ in range(2)]
        )
        return views[0], views[1]


@pair("compared-with-itself", "same-draws")
def views_of_a_row(bug):
    """The two views for the contrastive loss are `[augment(x)] * 2`: one draw, twice. Costs
    positives are equal by construction, no invariance is learnt; neighbours by the embedding are
    worse."""
    x, y = blobs(n=224, d=8, k=4, spread=1.2, seed=9)
    g = torch.Generator().manual_seed(1)
    x = torch.cat([x, 2.5 * torch.randn(len(x), 8, generator=g)], 1)
    loader = DataLoader(TwoViews(x[:160], bug), 32, shuffle=True, drop_last=True)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
    opt = torch.optim.Adam(model.parameters(), 5e-3)

    def loss_of(m, batch):
        z = F.normalize(torch.cat([m(batch[0]), m(batch[1])]), dim=-1)
        near = (z @ z.T / 0.3).masked_fill(torch.eye(len(z), dtype=torch.bool), -1e9)
        n = len(batch[0])
        return F.cross_entropy(near, torch.arange(2 * n).roll(n))

    def evaluate():
        with torch.no_grad():
            known, asked = (F.normalize(model(part), dim=-1) for part in (x[:160], x[160:]))
            votes = F.one_hot(y[:160][(asked @ known.T).topk(7).indices], 4).sum(1).argmax(-1)
        return {"knn_accuracy": (votes == y[160:]).float().mean().item()}

    step = stepper(model, opt, loss_of)
    return setup(model, opt, loader, step=step, loss_of=loss_of, evaluate=evaluate)


@pair("non-finite-values", "non-finite-loss")
def faces_in_triplets(bug):
    """Distances are sqrt of a sum of squares that is 0 when the sampler, drawing with replacement,
    takes one row twice: sqrt has an infinite slope there, 0 * inf is nan. Costs from that batch on
    all weights are nan."""
    x, y = blobs(n=160, k=4, spread=1.5, seed=4)
    rows = [torch.nonzero(y[:128] == k)[:, 0] for k in range(4)]

    class FourOfEach:
        def __len__(self):
            return 8

        def __iter__(self):
            for _ in range(8):
                yield torch.cat([r[torch.randint(0, len(r), (4,))] for r in rows]).tolist()

    loader = DataLoader(TensorDataset(x[:128], y[:128]), batch_sampler=FourOfEach())
    held = DataLoader(TensorDataset(x[128:], y[128:]), 32)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 6))
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    eps = 0.0 if bug else 1e-9

    def loss_fn(z, target):
        same = target[:, None] == target[None]
        far = ((z[:, None] - z[None]).pow(2).sum(-1) + eps + 1e-9 * torch.eye(len(z))).sqrt()
        worst = torch.where(same, far, torch.zeros_like(far)).amax(1)
        nearest = torch.where(same, torch.full_like(far, 1e4), far).amin(1)
        return F.relu(worst - nearest + 1).mean()

    def evaluate():
        with torch.no_grad():
            known, asked = model(x[:128]), model(x[128:])
        guess = y[:128][torch.cdist(asked, known).argmin(1)]
        return {"nearest_accuracy": (guess == y[128:]).float().mean().item()}

    return setup(
        model,
        opt,
        loader,
        held,
        loss_fn=loss_fn,
        evaluate=evaluate,
        train_step=stepper(model, opt, of_pairs(loss_fn)),
    )


class Speaker(nn.Module):
    def __init__(self, vocab=12, d=24):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.lstm = nn.LSTM(d, d, batch_first=True)
        self.head = nn.Linear(d, vocab)

    def forward(self, x):
        return self.head(self.lstm(self.emb(x))[0])


@pair("labels-moved")
def next_word(bug):
    """The dataset already gives the following token as target, and the loss shifts once more:
    position t is taught token t + 2. Costs what is used to continue a text predicts the word after
    the next one."""
    text = texts(192)
    x, y = text[:, :-1], text[:, 1:]
    loader, held = loaders(x, y)
    model = Speaker()
    opt = torch.optim.Adam(model.parameters(), 1e-2)

    def loss_fn(logits, target):
        if bug:
            logits, target = logits[:, :-1], target[:, 1:]
        return F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=0)

    def evaluate():
        model.eval()
        right = n = 0
        with torch.no_grad():
            for a, b in held:
                real = b > 0
                right += (model(a).argmax(-1) == b)[real].sum().item()
                n += real.sum().item()
        model.train()
        return {"next_token_accuracy": right / n}

    step = stepper(model, opt, of_pairs(loss_fn))
    return setup(
        model,
        opt,
        loader,
        held,
        step=step,
        loss_fn=loss_fn,
        evaluate=evaluate,
        **saved(model=model, optimizer=opt),
    )


@pair("double-softmax")
def pain_scale(bug):
    """The cumulative head of an ordinal model ends in Sigmoid and its outputs go to
    binary_cross_entropy_with_logits. Costs probabilities cannot leave [0.5, 0.73], every case is
    rated the highest grade."""
    x, raw = numbers(n=224, seed=3)
    grade = torch.bucketize(raw[:, 0], torch.tensor([-0.7, 0.0, 0.7]))
    levels = (grade[:, None] > torch.arange(3)).float()
    loader, held = loaders(x, levels)
    layers = [nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3)]
    model = nn.Sequential(*layers, nn.Sigmoid()) if bug else nn.Sequential(*layers)
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    loss_fn = nn.BCEWithLogitsLoss()

    def evaluate():
        with torch.no_grad():
            off = [((model(a).sigmoid() > 0.5).sum(-1) - b.sum(-1)).abs() for a, b in held]
        return {"grades_off": torch.cat(off).float().mean().item()}

    return Work(
        model,
        opt,
        loader,
        loss_fn=loss_fn,
        val_loader=held,
        evaluate=evaluate,
        train_step=stepper(model, opt, of_pairs(loss_fn)),
    )
