"""What the programs of the fifth set share: small data, networks, a trainer, an average."""

import copy
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


def table(n=96, d=8, noise=0.1, seed=0):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=g)
    w = torch.randn(d, 1, generator=g)
    return x, torch.tanh(x @ w) * 2 + noise * torch.randn(n, 1, generator=g)


def classes(n=96, d=8, k=4, seed=0, spread=1.0):
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % k
    centres = 2 * torch.randn(k, d, generator=g)
    order = torch.randperm(n, generator=g)
    x = centres[y] + spread * torch.randn(n, d, generator=g)
    return x[order], y[order]


def halves(*tensors, val=32):
    return TensorDataset(*(t[:-val] for t in tensors)), TensorDataset(*(t[-val:] for t in tensors))


def loaders(*tensors, val=32, batch=16, shuffle=True):
    train, held = halves(*tensors, val=val)
    return DataLoader(train, batch, shuffle=shuffle), DataLoader(held, batch)


def mlp(d=8, k=4, h=32):
    return nn.Sequential(nn.Linear(d, h), nn.ReLU(), nn.Linear(h, k))


def words(n=96, length=10, vocab=12, seed=0):
    """Sequences with padding 0: [n, length], true lengths."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randint(1, vocab, (n, length), generator=g)
    lengths = torch.randint(3, length + 1, (n,), generator=g)
    x[torch.arange(length)[None] >= lengths[:, None]] = 0
    return x, lengths


class TwoTasks(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(8, 32), nn.ReLU())
        self.kind, self.size = nn.Linear(32, 4), nn.Linear(32, 1)

    def forward(self, x):
        h = self.trunk(x)
        return {"kind": self.kind(h), "size": self.size(h).squeeze(1)}


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor, self.critic = mlp(6, 3), mlp(6, 1)

    def forward(self, s):
        return self.actor(s), self.critic(s).squeeze(1)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.dec = mlp(8, 6), mlp(3, 8)

    def forward(self, x):
        mu, logvar = self.enc(x).chunk(2, 1)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.dec(z), mu, logvar


class Tagger(nn.Module):
    def __init__(self, vocab=12, tags=3):
        super().__init__()
        self.emb = nn.Embedding(vocab, 16, padding_idx=0)
        self.rnn = nn.GRU(16, 16, batch_first=True)
        self.out = nn.Linear(16, tags)

    def forward(self, x):
        return self.out(self.rnn(self.emb(x))[0])


def pictures(n=64, size=8, seed=0):
    g = torch.Generator().manual_seed(seed)
    mask = torch.zeros(n, 1, size, size)
    for i in range(n):
        r, c = torch.randint(0, size - 3, (2,), generator=g).tolist()
        mask[i, 0, r : r + 3, c : c + 4] = 1
    return mask * 1.5 + 0.6 * torch.randn(n, 1, size, size, generator=g), mask


def segmenter():
    return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 16, 3, 1, 1), nn.ReLU()
        )
        self.score, self.box = nn.Conv2d(16, 1, 1), nn.Conv2d(16, 4, 1)

    def forward(self, x):
        h = self.body(x)
        return self.score(h).flatten(1), self.box(h).flatten(2).transpose(1, 2)


class Encoder(nn.Module):
    def __init__(self, inverted=False, positions=True, classes=3, vocab=12, length=10):
        super().__init__()
        self.emb = nn.Embedding(vocab, 16)
        self.pos = nn.Parameter(0.1 * torch.randn(length, 16)) if positions else None
        self.block = nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True)
        self.out, self.inverted = nn.Linear(16, classes), inverted

    def forward(self, x):
        pad = x == 0
        h = self.emb(x)
        if self.pos is not None:
            h = h + self.pos[: x.shape[1]]
        h = self.block(h, src_key_padding_mask=~pad if self.inverted else pad)
        keep = (~pad).float()[..., None]
        return self.out((h * keep).sum(1) / keep.sum(1))


class Backboned(nn.Module):
    def __init__(self, keep_eval):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU())
        self.head, self.keep_eval = nn.Linear(16, 4), keep_eval

    def train(self, mode=True):
        super().train(mode)
        if self.keep_eval:
            self.backbone.eval()
        return self

    def forward(self, x):
        return self.head(self.backbone(x))


class Flipped(torch.utils.data.Dataset):
    def __init__(self, img, mask, both):
        self.img, self.mask, self.both = img, mask, both

    def __len__(self):
        return len(self.img)

    def __getitem__(self, i):
        img, mask = self.img[i], self.mask[i]
        if torch.rand(()) < 0.5:
            img = img.flip(-1)
            if self.both:
                mask = mask.flip(-1)
        return {"image": img, "mask": mask}


class LastOf(nn.Module):
    def __init__(self, k=3):
        super().__init__()
        self.emb, self.rnn, self.out = (
            nn.Embedding(12, 16),
            nn.GRU(16, 24, batch_first=True),
            nn.Linear(24, k),
        )

    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(self.emb(x), lengths, batch_first=True)
        return self.out(self.rnn(packed)[1][0])


class TinyLM(nn.Module):
    def __init__(self, vocab=12, length=10):
        super().__init__()
        self.emb, self.pos = nn.Embedding(vocab, 16), nn.Parameter(0.1 * torch.randn(length, 16))
        self.block, self.out = (
            nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True),
            nn.Linear(16, vocab),
        )

    def forward(self, x):
        t = x.shape[1]
        causal = torch.triu(torch.full((t, t), -math.inf), 1)
        return self.out(self.block(self.emb(x) + self.pos[:t], src_mask=causal, is_causal=True))


def counting(n=96, length=10, vocab=12):
    start, stride = torch.randint(0, vocab, (n, 1)), torch.randint(1, 4, (n, 1))
    return (start + stride * torch.arange(length + 1)) % vocab


class Stateful(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out, self.h = nn.GRU(1, 16, batch_first=True), nn.Linear(16, 1), None

    def forward(self, x):
        h = self.h if self.h is not None and self.h.shape[1] == len(x) else None
        out, h = self.rnn(x, h)
        self.h = h.detach()
        return self.out(out)


class Trainer:
    """A class-based trainer, as people write it."""

    def __init__(self, model, opt, tl, vl, loss_fn=F.cross_entropy, faulty=""):
        self.model, self.opt, self.tl, self.vl, self.loss_fn, self.faulty = (
            model,
            opt,
            tl,
            vl,
            loss_fn,
            faulty,
        )
        self.best, self.best_state, self.bad = math.inf, None, 0

    def step(self, batch):
        if self.faulty != "eval_left_on":
            self.model.train()
        loss = self.loss_fn(self.model(batch[0]), batch[1])
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()

    def train(self, steps):
        losses = []
        while len(losses) < steps:
            for batch in self.tl:
                losses.append(self.step(batch))
                if len(losses) == steps:
                    break
        return losses

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        right = count = total = 0
        for x, y in self.vl:
            out = self.model(x)
            if self.faulty == "last_batch_only":
                right, count, total = 0, 0, 0
            right += (out.argmax(1) == y).sum().item()
            total += self.loss_fn(out, y).item() * len(y)
            count += len(y)
        if self.faulty not in ("eval_left_on",):
            self.model.train()
        return {"accuracy": right / count, "loss": total / count}

    def setup(self, **more):
        """What a diagnosis is given, with more or other parts."""
        return (
            dict(
                model=self.model,
                optimizer=self.opt,
                train_loader=self.tl,
                val_loader=self.vl,
                loss_fn=nn.CrossEntropyLoss(),
                train=self.train,
                evaluate=self.evaluate,
                num_classes=4,
            )
            | more
        )


class EMA:
    def __init__(self, model, buffers, decay=0.9):
        self.model, self.buffers, self.decay = (
            copy.deepcopy(model).eval().requires_grad_(False),
            buffers,
            decay,
        )

    @torch.no_grad()
    def update(self, model):
        for a, b in zip(self.model.parameters(), model.parameters(), strict=True):
            a.lerp_(b, 1 - self.decay)
        if self.buffers:
            for a, b in zip(self.model.buffers(), model.buffers(), strict=True):
                a.copy_(b)


def average_with_batch_norm(buffers):
    """Its average is scored; with its buffers it is whole. Returns the set-up and the average."""
    x, y = classes()
    tl, vl = loaders(x * 4 + 5, y)
    model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    ema, t = EMA(model, buffers), Trainer(model, opt, tl, vl)

    def train_step(batch):
        loss = t.step(batch)
        ema.update(model)
        return loss

    @torch.no_grad()
    def evaluate():
        right = torch.cat([ema.model(x).argmax(1) == y for x, y in vl])
        return {"accuracy": right.float().mean().item()}

    found = t.setup(train_step=train_step, evaluate=evaluate, extra={"ema": ema.model})
    del found["train"]
    return found, ema.model
