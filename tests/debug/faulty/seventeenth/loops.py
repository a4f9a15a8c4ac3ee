"""Faults of loops: frozen parts, heads, averages, micro-batches, precision, modes, mixing."""

import contextlib

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.debug.faulty.kit import pair
from tests.debug.faulty.seventeenth.kit import (
    Columns,
    accuracy,
    averaged,
    begun,
    blobs,
    by_cost,
    by_pairs,
    costed,
    evaluating,
    loader,
    loaders,
    mlp,
    plain_step,
    set_up,
)


@pair("frozen-params-drift")
def frozen_backbone_bn_moves(bug):
    """The backbone is frozen, but in train mode its batch norm goes on averaging. After 300 steps
    old_task_acc is 0.75 instead of 0.9."""
    g = begun(41)
    backbone = nn.Sequential(
        nn.Linear(10, 32),
        nn.BatchNorm1d(32),
        nn.ReLU(),
        nn.Linear(32, 16),
        nn.BatchNorm1d(16),
        nn.ReLU(),
    )
    x, y = blobs(g, 512, 10, 6)
    old = nn.Sequential(backbone, nn.Linear(16, 6))
    fits = torch.optim.Adam(old.parameters(), 1e-2)
    for _ in range(60):
        fits.zero_grad()
        F.cross_entropy(old(x), y).backward()
        fits.step()
    fits.zero_grad(set_to_none=True)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.backbone = backbone.requires_grad_(False)
            self.old_head = old[1].requires_grad_(False)
            self.head = nn.Linear(16, 2)

        def forward(self, x):
            return self.head(self.backbone(x))

        def train(self, mode=True):
            super().train(mode)
            if not bug:
                self.backbone.eval()
            return self

    m = Net().train()

    def shifted(n):
        x, y = blobs(g, n, 10, 6)
        return 1.6 * x + 1.0, y % 2

    tl, vl = loaders(shifted(256), shifted(120), 16)
    x, y = blobs(g, 200, 10, 6)

    def evaluate():
        """The new task, and the old one, which the frozen part still serves."""
        found = accuracy(m, vl)
        with evaluating(m):
            hits = m.old_head(m.backbone(x)).argmax(1) == y
        return found | {"old_task_acc": hits.float().mean().item()}

    frozen = [name for name, _ in m.named_parameters() if not name.startswith("head")]
    opt = torch.optim.Adam(m.head.parameters(), 5e-3)
    return by_pairs(m, opt, tl, vl, num_classes=2, evaluate=evaluate, declared={"frozen": frozen})


@pair("optimizer-stale-params")
def new_head_after_the_optimizer(bug):
    """The new head is put in after the optimizer was made, which holds the old one. After 300 steps
    val_acc is 0.59 instead of 0.865."""
    g = begun(42)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(10, 12), nn.ReLU())
            self.fc = nn.Linear(12, 10)

        def forward(self, x):
            return self.fc(self.body(x))

    m = Net()
    if not bug:
        m.fc = nn.Linear(12, 8)
    opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)
    if bug:
        m.fc = nn.Linear(12, 8)
    return by_pairs(m, opt, *loaders(blobs(g, 600, k=8), blobs(g, 200, k=8)), num_classes=8)


class Average:
    """Follows the weights of a model; `copied` says whether it has numbers of its own."""

    def __init__(self, model, copied, decay=0.97):
        self.model, self.decay = model, decay
        self.shadow = {
            name: p.data.clone() if copied else p.data for name, p in model.named_parameters()
        }

    def update(self):
        for name, p in self.model.named_parameters():
            self.shadow[name].mul_(self.decay).add_(p.data, alpha=1 - self.decay)

    @contextlib.contextmanager
    def applied(self):
        kept = {name: p.data.clone() for name, p in self.model.named_parameters()}
        for name, p in self.model.named_parameters():
            p.data.copy_(self.shadow[name])
        yield
        for name, p in self.model.named_parameters():
            p.data.copy_(kept[name])


@pair("checkpoint-by-reference")
def ema_shadow_is_alias(bug):
    """The averaged weights are p.data without a copy: they are the live ones. After 300 steps
    ema_mse is 0.715 instead of 0.669."""
    g = begun(43)

    def data(n):
        x = torch.randn(n, 4, generator=g)
        y = torch.sin(x[:, :1] * 2) + 0.5 * x[:, 1:2]
        return Columns(x=x, y=y + 0.7 * torch.randn(n, 1, generator=g))

    m = mlp(4, 32, 32, 1, act=nn.Tanh)
    opt = torch.optim.Adam(m.parameters(), 3e-2)
    tl, vl = loader(data(400), 8), loader(data(200), 32, shuffle=False)
    average = Average(m, copied=not bug)

    def loss_of(model, b):
        return F.mse_loss(model(b["x"]), b["y"])

    def step(b):
        opt.zero_grad()
        loss = loss_of(m, b)
        loss.backward()
        opt.step()
        average.update()
        return loss.item()

    score = averaged(m, vl, costed(loss_of, "x", "mse"))

    def evaluate():
        raw = score()["mse"]
        with average.applied():
            return {"raw_mse": raw, "ema_mse": score()["mse"]}

    def save():
        parts = {"model": m.state_dict(), "ema": average.shadow}
        return {k: {name: v.clone() for name, v in part.items()} for k, part in parts.items()}

    return by_cost(
        m,
        opt,
        tl,
        vl,
        loss_of,
        None,
        step=step,
        evaluate=evaluate,
        save=save,
        declared={"ema_decay": 0.97},
    )


@pair("grads-cleared-before-step")
def accumulation_cleared_each_micro(bug):
    """The gradients are cleared before each of four micro-batches: only the last counts. After 300
    steps loss is 0.36 instead of 0.074."""
    g = begun(44)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(16, 12)
            self.rnn = nn.RNN(12, 24, batch_first=True)
            self.out = nn.Linear(24, 3)

        def forward(self, b):
            return self.out(self.rnn(self.emb(b["ids"]))[0].mean(1))

    m = Net()
    opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)

    def data(n):
        x = torch.randint(0, 16, (n, 8), generator=g)
        return Columns(ids=x, label=((x < 8).sum(1) - 2).clamp(0, 4) // 2)

    tl, vl = loaders(data(512), data(150))

    def loss_of(model, b):
        return F.cross_entropy(model(b), b["label"])

    def step(b):
        m.train()
        n, total = len(b["label"]), 0.0
        opt.zero_grad()
        for i in range(0, n, 8):
            part = {name: column[i : i + 8] for name, column in b.items()}
            if bug:
                opt.zero_grad()
            loss = loss_of(m, part) * len(part["label"]) / n
            loss.backward()
            total += loss.item()
        opt.step()
        return total

    def sums_of(model, b):
        hits = model(b).argmax(1) == b["label"]
        return {"acc": (hits.sum(), len(hits)), **costed(loss_of, "label")(model, b)}

    declared = {"accumulate": 4}
    return by_cost(m, opt, tl, vl, loss_of, sums_of, step=step, num_classes=3, declared=declared)


@pair("metric-wrong")
def bf16_counter_saturates(bug):
    """Hits are counted in bfloat16, where 256 and 1 make 256: the count does not go on. After 300
    steps acc is 0.683 instead of 0.997."""
    g = begun(46)
    m = mlp(10, 32, 4)
    tl = loader(blobs(g, 512, sep=1.5), 32)
    vl = loader(blobs(g, 1500, sep=1.5), 4, shuffle=False)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    crit = nn.CrossEntropyLoss()

    def answers(x):
        with torch.autocast("cpu", torch.bfloat16):
            return m(x)

    def step(b):
        m.train()
        opt.zero_grad()
        loss = crit(answers(b[0]).float(), b[1])
        loss.backward()
        opt.step()
        return loss.item()

    def evaluate():
        kind = torch.bfloat16 if bug else torch.float64
        hits, total, n = torch.zeros((), dtype=kind), torch.zeros((), dtype=kind), 0
        with evaluating(m):
            for x, y in vl:
                out = answers(x)
                hits += (out.argmax(1) == y).sum()
                total += (crit(out.float(), y) * len(y)).to(kind)
                n += len(y)
        return {"acc": hits.item() / n, "loss": total.item() / n}

    return by_pairs(
        m, opt, tl, vl, crit, step, num_classes=4, evaluate=evaluate, declared={"amp": "bf16"}
    )


@pair("eval-mode-in-training")
def eval_mode_after_first_validation(bug):
    """model.train() is called once, before the epochs, and the validation after each leaves the
    model in eval mode. After 300 steps loss is 1.33 instead of 0.813."""
    g = begun(47)

    class Trainer:
        def __init__(self):
            self.model = nn.Sequential(
                nn.Linear(10, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 4)
            )
            self.opt = torch.optim.AdamW(self.model.parameters(), 5e-3)
            self.tl = loader(blobs(g, 96, sep=0.5), 16)
            self.vl = DataLoader(TensorDataset(*blobs(g, 150, sep=0.5)), 32)
            self.crit, self.history = nn.CrossEntropyLoss(), []

        def step(self, b):
            self.opt.zero_grad()
            loss = self.crit(self.model(b[0]), b[1])
            loss.backward()
            self.opt.step()
            return loss.item()

        def validate(self):
            self.model.eval()
            n = hits = total = 0
            with torch.no_grad():
                for x, y in self.vl:
                    out = self.model(x)
                    n += len(y)
                    hits += (out.argmax(1) == y).sum().item()
                    total += self.crit(out, y).item() * len(y)
            if not bug:
                self.model.train()
            return {"acc": hits / n, "loss": total / n}

        def fit(self, n):
            losses = []
            self.model.train()
            while len(losses) < n:
                for b in self.tl:
                    losses.append(self.step(b))
                    if len(losses) == n:
                        break
                else:
                    self.history.append(self.validate())
            return losses

    t = Trainer()
    found = set_up(t.model, t.opt, t.tl, t.step, val_loader=t.vl, loss_fn=t.crit, num_classes=4)
    return found | {"train": t.fit, "evaluate": t.validate}


@pair("labels-shuffled")
def mixup_labels_other_permutation(bug):
    """The labels are mixed by another permutation than the rows. After 300 steps val_loss is 0.738
    instead of 0.425."""
    g = begun(50)
    m = mlp(10, 32, 4)
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    tl, vl = loaders(blobs(g, 512, sep=0.7), blobs(g, 150, sep=0.7))

    def loss_of(model, b):
        x, y = b
        share = torch.distributions.Beta(1.0, 1.0).sample()
        p = torch.randperm(len(x))
        q = torch.randperm(len(x)) if bug else p
        out = model(share * x + (1 - share) * x[p])
        return share * F.cross_entropy(out, y) + (1 - share) * F.cross_entropy(out, y[q])

    return set_up(
        m,
        opt,
        tl,
        plain_step(m, opt, loss_of),
        val_loader=vl,
        loss_of=loss_of,
        num_classes=4,
        evaluate=lambda: accuracy(m, vl),
    )
