"""Bugs in the loss of counts, grades, survival times, sequences, actions."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Subset

from tests.debug.faulty.fourth.kit import Dicts, batches, markov, mlp
from tests.debug.faulty.kit import pair


@pair("targets-out-of-reach")
def poisson_exp_twice(bug):
    """PoissonNLLLoss takes the log rate, the model gives softplus of it: no rate under 1."""
    x = torch.randn(384, 6)
    rate = torch.exp(0.8 * x[:, 0] - 0.5 * x[:, 1] - 1.2)
    y = torch.poisson(rate)
    model = nn.Sequential(
        nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1), nn.Softplus(), nn.Flatten(0)
    )
    val = batches(x[256:], y[256:], shuffle=False)

    def evaluate():
        with torch.no_grad():
            p = torch.cat([model(a) for a, _ in val])
        return {
            "mean_rate": p.mean().item(),
            "mean_count": y[256:].mean().item(),
            "mae": (p - y[256:]).abs().mean().item(),
        }

    return dict(
        model=model,
        loss_fn=nn.PoissonNLLLoss(log_input=bug),
        optimizer=torch.optim.Adam(model.parameters(), 5e-3),
        train_loader=batches(x[:256], y[:256]),
        val_loader=val,
        evaluate=evaluate,
    )


@pair("labels-merged")
def ordinal_off_by_one(bug):
    """Levels are y >= k for k from 0: the first is always 1 and the last grade is lost."""
    x = torch.randn(384, 6)
    score = x[:, 0] + 0.7 * x[:, 1] + 0.2 * torch.randn(384)
    y = torch.bucketize(score, torch.tensor([-1.2, -0.4, 0.4, 1.2]))

    class Coral(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = mlp(6, 16, 1)
            self.cut = nn.Parameter(torch.tensor([1.0, 0.3, -0.3, -1.0]))

        def forward(self, x):
            return self.body(x) + self.cut

    def loss_fn(logits, y):
        k = torch.arange(4)
        levels = (y[:, None] >= k if bug else y[:, None] > k).float()
        return F.binary_cross_entropy_with_logits(logits, levels)

    model = Coral()
    val = batches(x[256:], y[256:], shuffle=False)

    def evaluate():
        with torch.no_grad():
            p = torch.cat([(model(a) > 0).sum(1) for a, _ in val])
        return {
            "accuracy": (p == y[256:]).float().mean().item(),
            "mae": (p - y[256:]).abs().float().mean().item(),
        }

    return dict(
        model=model,
        loss_fn=loss_fn,
        optimizer=torch.optim.Adam(model.parameters(), 1e-2),
        train_loader=batches(x[:256], y[:256]),
        val_loader=val,
        evaluate=evaluate,
    )


@pair("depends-on-order")
def cox_unsorted(bug):
    """Cox: the risk sets are cumulated in the batch's order and not by time."""
    x = torch.randn(320, 5)
    hazard = torch.exp(x[:, 0] - 0.8 * x[:, 1])
    time = -torch.log(torch.rand(320)) / hazard
    censor = -torch.log(torch.rand(320)) * 2
    event = (time <= censor).float()
    time = torch.minimum(time, censor)

    def loss_of(m, b):
        risk, event, time = m(b["x"]).squeeze(-1), b["event"], b["time"]
        if not bug:
            order = time.argsort(descending=True)
            risk, event = risk[order], event[order]
        return -((risk - risk.logcumsumexp(0)) * event).sum() / event.sum().clamp(min=1)

    model = mlp(5, 16, 1)
    data = Dicts(x=x, time=time, event=event)

    def evaluate():
        with torch.no_grad():
            r = model(x[256:]).squeeze(-1)
        t, e = time[256:], event[256:]
        pairs = (t[:, None] < t[None]) & (e[:, None] > 0)
        return {"concordance": ((r[:, None] > r[None]) & pairs).sum().item() / pairs.sum().item()}

    return dict(
        model=model,
        loss_of=loss_of,
        optimizer=torch.optim.Adam(model.parameters(), 5e-3),
        evaluate=evaluate,
        train_loader=DataLoader(Subset(data, range(256)), batch_size=32, shuffle=True),
        val_loader=DataLoader(Subset(data, range(256, 320)), batch_size=32),
    )


@pair("weighed-after-the-mean")
def focal_of_mean(bug):
    """Focal loss takes its weight from the batch's mean cross-entropy: one for all examples."""
    x = torch.randn(384, 8)
    y = (x @ torch.randn(8, 6) > 2.2).float()

    def focal(logits, y):
        bce = F.binary_cross_entropy_with_logits(logits, y, reduction="mean" if bug else "none")
        p = torch.exp(-bce)
        return ((1 - p) ** 2 * bce).mean()

    model = mlp(8, 24, 6)
    return dict(
        model=model,
        loss_fn=focal,
        optimizer=torch.optim.Adam(model.parameters(), 5e-3),
        train_loader=batches(x[:256], y[:256]),
        val_loader=batches(x[256:], y[256:], shuffle=False),
    )


@pair("missing-log-softmax")
def ctc_raw_scores(bug):
    """CTC is given raw scores where it wants log-probabilities."""
    proto = torch.randn(5, 8)
    frames, labels = [], []
    for _ in range(160):
        lab = torch.randint(1, 5, (4,))
        frames.append(proto[lab].repeat_interleave(4, 0) + 0.4 * torch.randn(16, 8))
        labels.append(lab)
    frames, labels = torch.stack(frames), torch.stack(labels)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.GRU(8, 24, batch_first=True, bidirectional=True)
            self.out = nn.Linear(48, 5)

        def forward(self, x):
            return self.out(self.rnn(x)[0])

    ctc = nn.CTCLoss(blank=0)

    def loss_of(m, b):
        scores = m(b["frames"]).transpose(0, 1)
        if not bug:
            scores = scores.log_softmax(-1)
        n = len(b["labels"])
        return ctc(scores, b["labels"], torch.full((n,), 16), torch.full((n,), 4))

    model = Net()
    data = Dicts(frames=frames, labels=labels)

    def evaluate():
        model.eval()
        right = 0
        with torch.no_grad():
            for out, lab in zip(model(frames[128:]).argmax(-1), labels[128:], strict=False):
                c = torch.unique_consecutive(out)
                right += c[c > 0].tolist() == lab.tolist()
        model.train()
        return {"exact_match": right / 32}

    return dict(
        model=model,
        loss_of=loss_of,
        optimizer=torch.optim.Adam(model.parameters(), 1e-2),
        evaluate=evaluate,
        train_loader=DataLoader(Subset(data, range(128)), batch_size=32, shuffle=True),
        val_loader=DataLoader(Subset(data, range(128, 160)), batch_size=32),
    )


class TinyGPT(nn.Module):
    def __init__(self, vocab=8, T=16, d=16):
        super().__init__()
        self.emb, self.pos = nn.Embedding(vocab, d), nn.Embedding(T, d)
        self.block = nn.TransformerEncoderLayer(
            d, 2, 32, dropout=0.0, batch_first=True, norm_first=True
        )
        self.out = nn.Linear(d, vocab)

    def forward(self, ids):
        T = ids.shape[1]
        h = self.emb(ids) + self.pos(torch.arange(T))
        mask = torch.triu(torch.ones(T, T, dtype=torch.bool), 1)
        return self.out(self.block(h, src_mask=mask))


@pair("labels-moved")
def labels_shifted_twice(bug):
    """The data set has shifted the labels already and the loss shifts them again."""
    ids = markov(256, 17)
    x, y = ids[:, :-1], ids[:, 1:]

    def loss_of(m, b):
        logits, labels = m(b[0]), b[1]
        if bug:
            logits, labels = logits[:, :-1], labels[:, 1:]
        return F.cross_entropy(logits.reshape(-1, 8), labels.reshape(-1))

    model = TinyGPT()
    val = batches(x[192:], y[192:], shuffle=False)

    def evaluate():
        model.eval()
        with torch.no_grad():
            right = torch.cat([(model(a).argmax(-1) == b).float().flatten() for a, b in val])
        model.train()
        return {"next_token_accuracy": right.mean().item()}

    return dict(
        model=model,
        loss_of=loss_of,
        optimizer=torch.optim.AdamW(model.parameters(), 5e-3),
        num_classes=8,
        train_loader=batches(x[:192], y[:192], bs=16),
        val_loader=val,
        evaluate=evaluate,
    )


@pair("broadcast-loss")
def advantage_broadcast(bug):
    """Actor-critic: rewards [B] minus values [B, 1] make advantages [B, B]."""
    states = torch.randn(256, 4)
    best = torch.randn(4, 3)

    class Agent(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(4, 24), nn.Tanh())
            self.pi, self.v = nn.Linear(24, 3), nn.Linear(24, 1)

        def forward(self, s):
            h = self.body(s)
            return self.pi(h), self.v(h)

    def loss_of(m, b):
        (s,) = b
        logits, value = m(s)
        dist = torch.distributions.Categorical(logits=logits)
        a = dist.sample()
        reward = ((s @ best).argmax(1) == a).float()
        advantage = reward - (value if bug else value.squeeze(1))
        actor = -(dist.log_prob(a) * advantage.detach()).mean()
        return actor + 0.5 * advantage.pow(2).mean() - 0.01 * dist.entropy().mean()

    model = Agent()

    def evaluate():
        with torch.no_grad():
            a = model(states)[0].argmax(1)
        return {"reward": ((states @ best).argmax(1) == a).float().mean().item()}

    return dict(
        model=model,
        loss_of=loss_of,
        optimizer=torch.optim.Adam(model.parameters(), 5e-3),
        train_loader=batches(states),
        evaluate=evaluate,
    )
