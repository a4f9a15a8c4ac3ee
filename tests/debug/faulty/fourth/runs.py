"""Bugs in evaluation and checkpoints: averaged weights, counts, names."""

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn

from tests.debug.faulty.fourth.kit import accuracy, batches, blobs, markov, mlp
from tests.debug.faulty.kit import pair


def ema_program():
    x, y = blobs(384, c=4)
    model = mlp(10, 32, 4)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    ema = copy.deepcopy(model).requires_grad_(False)
    val = batches(x[256:], y[256:], shuffle=False)

    def train_step(batch):
        model.train()
        opt.zero_grad()
        loss = F.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        opt.step()
        with torch.no_grad():
            for e, p in zip(ema.parameters(), model.parameters(), strict=True):
                e.lerp_(p, 0.05)
        return loss.item()

    return x, y, model, opt, ema, val, train_step


@pair("evaluate-changes-model")
def ema_left_in(bug):
    """evaluate() puts the averaged weights in the model and leaves them there."""
    x, y, model, opt, ema, val, train_step = ema_program()

    def evaluate():
        backup = copy.deepcopy(model.state_dict())
        model.load_state_dict(ema.state_dict())
        result = accuracy(model, val)()
        if not bug:
            model.load_state_dict(backup)
        return result

    return dict(
        model=model,
        optimizer=opt,
        train_step=train_step,
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=4,
        train_loader=batches(x[:256], y[:256]),
        val_loader=val,
        evaluate=evaluate,
    )


@pair("metric-wrong")
def shuffled_against_stored(bug):
    """Predictions from a shuffled loader are held against labels in stored order."""
    x, y = blobs(384, c=4)
    model = mlp(10, 32, 4)
    val = batches(x[256:], y[256:], shuffle=True)

    def evaluate():
        model.eval()
        preds, labels = [], []
        with torch.no_grad():
            for a, b in val:
                preds.append(model(a).argmax(1))
                labels.append(b)
        model.train()
        truth = y[256:] if bug else torch.cat(labels)
        return {"accuracy": (torch.cat(preds) == truth).float().mean().item()}

    return dict(
        model=model,
        optimizer=torch.optim.Adam(model.parameters(), 5e-3),
        loss_fn=nn.CrossEntropyLoss(),
        train_loader=batches(x[:256], y[:256]),
        val_loader=val,
        evaluate=evaluate,
        num_classes=4,
    )


@pair("metric-wrong")
def perplexity_counts_padding(bug):
    """Perplexity: the sum leaves padding out, the count does not."""
    ids = markov(320, 17)
    length = torch.randint(5, 18, (320,))
    ids[torch.arange(17)[None] >= length[:, None]] = 0
    x, y = ids[:, :-1], ids[:, 1:]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(8, 16, padding_idx=0)
            self.rnn = nn.GRU(16, 24, batch_first=True)
            self.out = nn.Linear(24, 8)

        def forward(self, ids):
            return self.out(self.rnn(self.emb(ids))[0])

    model = Net()
    val = batches(x[256:], y[256:], shuffle=False)

    def loss_fn(logits, labels):
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=0)

    def evaluate():
        model.eval()
        total = count = 0
        with torch.no_grad():
            for a, b in val:
                total += F.cross_entropy(
                    model(a).flatten(0, 1), b.flatten(), ignore_index=0, reduction="sum"
                ).item()
                count += b.numel() if bug else (b != 0).sum().item()
        model.train()
        return {"loss": total / count, "perplexity": math.exp(total / count)}

    return dict(
        model=model,
        optimizer=torch.optim.Adam(model.parameters(), 5e-3),
        loss_fn=loss_fn,
        train_loader=batches(x[:256], y[:256]),
        val_loader=val,
        evaluate=evaluate,
        num_classes=8,
    )


@pair("checkpoint-incomplete")
def module_prefix(bug):
    """Saved with 'module.' before each name, loaded with strict=False: nothing comes back."""
    x, y = blobs(384, c=4)

    class Trainer:
        def __init__(self):
            self.net = mlp(10, 32, 4)
            self.wrapped = nn.DataParallel(self.net)
            self.optimizer = torch.optim.Adam(self.net.parameters(), 5e-3)

        def step(self, batch):
            self.net.train()
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.wrapped(batch[0]), batch[1])
            loss.backward()
            self.optimizer.step()
            return loss.item()

        def save(self, path):
            source = self.wrapped if bug else self.wrapped.module
            torch.save(
                {"model": source.state_dict(), "optimizer": self.optimizer.state_dict()}, path
            )

        def load(self, path):
            kept = torch.load(path)
            self.net.load_state_dict(kept["model"], strict=False)
            self.optimizer.load_state_dict(kept["optimizer"])

    t = Trainer()
    val = batches(x[256:], y[256:], shuffle=False)
    return dict(
        model=t.net,
        optimizer=t.optimizer,
        loss_fn=nn.CrossEntropyLoss(),
        train_loader=batches(x[:256], y[:256]),
        val_loader=val,
        train_step=t.step,
        save=t.save,
        load=t.load,
        num_classes=4,
        evaluate=accuracy(t.net, val),
    )


@pair("buffer-not-registered")
def normaliser_not_saved(bug):
    """Running mean and variance of the inputs are plain attributes: not in state_dict."""
    x, y = blobs(384)
    x = x * 20 + 50

    class Normalise(nn.Module):
        def __init__(self, d):
            super().__init__()
            for name, v in (
                ("mean", torch.zeros(d)),
                ("var", torch.ones(d)),
                ("count", torch.tensor(1e-4)),
            ):
                if bug:
                    setattr(self, name, v)
                else:
                    self.register_buffer(name, v)

        def forward(self, x):
            if self.training:
                with torch.no_grad():
                    n, m, v = len(x), x.mean(0), x.var(0, unbiased=False)
                    total = self.count + n
                    d = m - self.mean
                    var = (self.var * self.count + v * n + d**2 * self.count * n / total) / total
                    self.mean = self.mean + d * n / total
                    self.var, self.count = var, total
            return (x - self.mean) / (self.var + 1e-5).sqrt()

    model = nn.Sequential(Normalise(10), mlp(10, 24, 3))
    opt = torch.optim.Adam(model.parameters(), 5e-3)

    def save():
        return copy.deepcopy({"model": model.state_dict(), "optimizer": opt.state_dict()})

    def load(kept):
        model.load_state_dict(kept["model"])
        opt.load_state_dict(kept["optimizer"])

    val = batches(x[256:], y[256:], shuffle=False)
    return dict(
        model=model,
        optimizer=opt,
        loss_fn=nn.CrossEntropyLoss(),
        train_loader=batches(x[:256], y[:256]),
        val_loader=val,
        save=save,
        load=load,
        num_classes=3,
        evaluate=accuracy(model, val),
    )


@pair("checkpoint-incomplete")
def ema_not_saved(bug):
    """The averaged weights, which are evaluated, are not in the checkpoint."""
    x, y, model, opt, ema, val, train_step = ema_program()

    def save(path):
        kept = {"model": model.state_dict(), "optimizer": opt.state_dict()}
        if not bug:
            kept["ema"] = ema.state_dict()
        torch.save(kept, path)

    def load(path):
        kept = torch.load(path)
        model.load_state_dict(kept["model"])
        opt.load_state_dict(kept["optimizer"])
        if not bug:
            ema.load_state_dict(kept["ema"])

    return dict(
        model=model,
        optimizer=opt,
        train_step=train_step,
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=4,
        train_loader=batches(x[:256], y[:256]),
        val_loader=val,
        evaluate=accuracy(ema, val),
        save=save,
        load=load,
    )
