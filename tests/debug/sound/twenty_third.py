"""Ten of the twenty-third set, of unusual make, by someone who had not seen the doctor."""

import copy
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.twenty_third.kit import (
    begun,
    by_classes,
    by_cost,
    by_squares,
    chain,
    class_sums,
    clipped,
    clusters,
    evaluating,
    feed,
    follow,
    frozen,
    loaders,
    mlp,
    plain_step,
    then,
)
from tests.debug.sound.programs import sound
from tests.debug.sound.sixteenth_loops import Reversed


@sound
def mixup_soft_targets():
    """The loss is of mixed rows and mixed targets, and stays well above that of the evaluation."""
    g = begun(61)
    tl, vl = loaders(*clusters(g, 320, 110, 8, 3, 0.8), 32, 50)
    m = mlp(8, 32, 3)
    opt = torch.optim.AdamW(m.parameters(), 5e-3)
    beta = torch.distributions.Beta(0.4, 0.4)

    def loss_of(model, b):
        x, y = b
        share = beta.sample()
        order = torch.randperm(len(x))
        out = model(share * x + (1 - share) * x[order])
        return share * F.cross_entropy(out, y) + (1 - share) * F.cross_entropy(out, y[order])

    more = {"num_classes": 3, "declared": {"mixup_alpha": 0.4}}
    return by_cost(m, opt, tl, vl, loss_of, class_sums, **more)


class Adversarial(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = mlp(8, 32, 16)
        self.kind = nn.Linear(16, 2)
        self.domain = mlp(16, 16, 1)

    def forward(self, x):
        h = torch.relu(self.body(x))
        return self.kind(h), self.domain(Reversed.apply(h)).squeeze(1)


@sound
def gradient_reversal_domains():
    """A layer turns gradients round; the domain's head is to end near chance, and the classes of
    the other domain are not used."""
    g = begun(62)
    n = 400
    x = torch.randn(n, 8, generator=g)
    y = (x[:, 0] + x[:, 1] > 0).long()
    domain = (torch.arange(n) % 2).float()
    x[:, 7] += 2 * domain
    m = Adversarial()
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    columns = {"x": x, "y": y, "domain": domain}
    train = {name: column[:320] for name, column in columns.items()}
    held = {name: column[320:] for name, column in columns.items()}
    tl, vl = loaders(train, held, 40)

    def loss_of(model, b):
        kind, domain = model(b["x"])
        is_source = b["domain"] == 0
        costs = F.cross_entropy(kind, b["y"], reduction="none")
        of_kind = (costs * is_source).sum() / is_source.sum().clamp(min=1)
        return of_kind + F.binary_cross_entropy_with_logits(domain, b["domain"])

    def sums_of(model, b):
        is_target = b["domain"] == 1
        hits = (model(b["x"])[0].argmax(1) == b["y"]) & is_target
        return {"target_acc": (hits.sum(), is_target.sum())}

    more = {"num_classes": 2, "declared": {"gradient_reversal": 0.3}}
    return by_cost(m, opt, tl, vl, loss_of, sums_of, **more)


@sound
def random_features_frozen():
    """A wide random layer is frozen on purpose, and only what reads it is trained."""
    g = begun(63)
    x = torch.rand(300, 1, generator=g) * 6 - 3
    y = torch.sin(2 * x) + 0.05 * torch.randn(300, 1, generator=g)
    m = nn.Sequential(nn.Linear(1, 100), nn.Tanh(), nn.Linear(100, 1))
    with torch.no_grad():
        m[0].weight.mul_(3)
        m[0].bias.mul_(3)
    m[0].requires_grad_(False)
    opt = torch.optim.Adam(m[2].parameters(), 1e-2)
    tl, vl = loaders((x[:240], y[:240]), (x[240:], y[240:]), 32)
    return by_squares(m, opt, tl, vl, declared={"frozen": frozen(m)})


@sound
def spread_learned_with_the_mean():
    """A mean and a variance with a floor: the loss is a density's, and falls below zero."""
    g = begun(64)
    x = torch.rand(400, 1, generator=g) * 4 - 2
    noise = 0.05 * (1 + x.abs()) * torch.randn(400, 1, generator=g)
    y = torch.tanh(x) + noise
    m = mlp(1, 32, 2)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    tl, vl = loaders({"x": x[:320], "y": y[:320]}, {"x": x[320:], "y": y[320:]}, 32, 50)

    def costs(model, b):
        mean, raw = model(b["x"]).chunk(2, 1)
        return F.gaussian_nll_loss(mean, b["y"], F.softplus(raw) + 1e-3, reduction="none")

    def loss_of(model, b):
        return costs(model, b).mean()

    def sums_of(model, b):
        return {"nll": (costs(model, b).sum(), len(b["x"]))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of, **clipped(m, opt, loss_of, 5.0))


class Tied(nn.Module):
    """A language model whose head has the embedding's weight."""

    def __init__(self, V, d):
        super().__init__()
        self.emb = nn.Embedding(V, d)
        self.rnn = nn.GRU(d, d, batch_first=True)
        self.head = nn.Linear(d, V)
        self.head.weight = self.emb.weight

    def forward(self, x):
        return self.head(self.rnn(self.emb(x))[0])


@sound
def tied_lm_with_warmup_from_zero():
    """Head and embedding share one weight, and the first rate is 0: the first update does
    nothing."""
    g = begun(65)
    V, T = 10, 10
    m = Tied(V, 24)
    opt = torch.optim.AdamW(m.parameters(), 1e-2)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min(s / 10, 1.0) * max(0.1, 1 - s / 1000)
    )
    tl, vl = loaders({"ids": chain(g, 320, T, V)}, {"ids": chain(g, 96, T, V)}, 32)

    def loss_of(model, b):
        return F.cross_entropy(model(b["ids"][:, :-1]).transpose(1, 2), b["ids"][:, 1:])

    def sums_of(model, b):
        n = b["ids"][:, 1:].numel()
        return {"val_loss": (loss_of(model, b) * n, n)}

    known = clipped(m, opt, loss_of, 1.0)
    step = then(known["step"], scheduler.step)
    declared = {"scheduler_unit": "batch"} | known["declared"]
    more = {"step": step, "scheduler": scheduler, "declared": declared, "num_classes": V}
    return by_cost(m, opt, tl, vl, loss_of, sums_of, **more)


@sound
def thirty_stochastic_passes():
    """Dropout stays on in evaluation on purpose: mean and spread of 30 passes are scored."""
    g = begun(68)
    x = torch.randn(300, 4, generator=g)
    y = x[:, :1] * x[:, 1:2] + 0.1 * torch.randn(300, 1, generator=g)
    m = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1))
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    tl, vl = loaders((x[:240], y[:240]), (x[240:], y[240:]), 32)

    def evaluate():
        errors = spread = count = 0
        with evaluating(m), torch.random.fork_rng(devices=[]):
            m[2].train()
            torch.manual_seed(0)
            for inputs, targets in vl:
                outs = torch.stack([m(inputs) for _ in range(30)])
                errors += ((outs.mean(0) - targets) ** 2).sum().item()
                spread += outs.std(0).sum().item()
                count += len(inputs)
        return {"mse": errors / count, "mean_std": spread / count}

    return by_squares(m, opt, tl, vl, evaluate=evaluate, declared={"mc_dropout": 30})


class Filling(nn.Module):
    def __init__(self, V):
        super().__init__()
        self.emb = nn.Embedding(V, 16)
        self.rnn = nn.GRU(16, 16, batch_first=True, bidirectional=True)
        self.head = nn.Linear(32, V)

    def forward(self, x):
        return self.head(self.rnn(self.emb(x))[0])


@sound
def masked_lm_few_labels():
    """Most labels are -100 on purpose: only the tokens that are hidden are targets."""
    g = begun(69)
    V, T, HIDDEN = 12, 8, 11

    def corrupted(n):
        ids = chain(g, n, T, V - 1, 0.95)
        hidden = torch.rand(n, T, generator=g) < 0.2
        hidden[:, 4] = True
        seen = torch.where(hidden, HIDDEN, ids)
        return {"input_ids": seen, "labels": torch.where(hidden, ids, -100)}

    m = Filling(V)
    opt = torch.optim.AdamW(m.parameters(), 1e-2)
    tl, vl = loaders(corrupted(384), corrupted(96), 32, 48)

    def loss_of(model, b):
        out = model(b["input_ids"]).transpose(1, 2)
        return F.cross_entropy(out, b["labels"], ignore_index=-100)

    def sums_of(model, b):
        hits = model(b["input_ids"]).argmax(-1) == b["labels"]
        return {"masked_acc": (hits.sum(), (b["labels"] != -100).sum())}

    known = clipped(m, opt, loss_of, 1.0)
    known["declared"]["ignore_index"] = -100
    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=V, **known)


class Branch(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.a = nn.Linear(d, d)
        self.b = nn.Linear(d, d)
        nn.init.zeros_(self.b.weight)
        nn.init.zeros_(self.b.bias)

    def forward(self, h):
        return h + self.b(torch.relu(self.a(h)))


@sound
def zero_init_residual_branches():
    """The last layer of each branch starts at zero, so that those before it have no gradient in
    the first step."""
    g = begun(72)
    x = torch.randn(360, 10, generator=g)
    y = (x[:, 0] * x[:, 1] > 0).long()
    m = nn.Sequential(nn.Linear(10, 24), Branch(24), Branch(24), nn.ReLU(), nn.Linear(24, 2))
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    tl, vl = loaders((x[:280], y[:280]), (x[280:], y[280:]), 32, 50)
    return by_classes(m, opt, tl, vl, 2)


class Towers(nn.Module):
    """Scores of each left row with each right one, at a scale that is learned."""

    def __init__(self, d):
        super().__init__()
        self.left = mlp(d, 32, 8)
        self.right = mlp(d, 32, 8)
        self.logit_scale = nn.Parameter(torch.tensor(math.log(10.0)))

    def forward(self, b):
        left = F.normalize(self.left(b["left"]), dim=1)
        right = F.normalize(self.right(b["right"]), dim=1)
        return self.logit_scale.exp() * left @ right.T


@sound
def clip_style_contrastive():
    """Targets are the rows' numbers in the batch: the loss depends on the others of the batch, and
    the last short one is left out."""
    g = begun(73)
    d = 10
    of_left, of_right = torch.randn(4, d, generator=g), torch.randn(4, d, generator=g)

    def data(n):
        z = torch.randn(n, 4, generator=g)
        left = z @ of_left + 0.3 * torch.randn(n, d, generator=g)
        right = torch.tanh(z @ of_right) + 0.1 * torch.randn(n, d, generator=g)
        return {"left": left, "right": right}

    m = Towers(d)
    opt = torch.optim.AdamW(m.parameters(), 3e-3)
    tl = feed(data(400), 32, drop_last=True)
    vl = feed(data(100), 50, shuffle=False)

    def loss_of(model, b):
        scores = model(b)
        own = torch.arange(len(scores))
        return (F.cross_entropy(scores, own) + F.cross_entropy(scores.T, own)) / 2

    @torch.no_grad()
    def clamp():
        m.logit_scale.clamp_(0, math.log(50.0))

    def sums_of(model, b):
        scores = model(b)
        hits = scores.argmax(1) == torch.arange(len(scores))
        return {"top1_of_50": (hits.sum(), len(hits))}

    step = then(plain_step(m, opt, loss_of), clamp)
    return by_cost(m, opt, tl, vl, loss_of, sums_of, step=step)


@sound
def momentum_teacher_pseudo_labels():
    """Rows without a label carry -1; the teacher is a slow copy outside the model, and the weight
    of its loss grows from 0."""
    g = begun(78)
    (x, y), (vx, vy) = clusters(g, 400, 120, 8, 3, 0.8)
    label = torch.where(torch.arange(400) % 8 == 0, y, -1)
    m = mlp(8, 32, 3)
    teacher = copy.deepcopy(m).requires_grad_(False)
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    tl, vl = loaders({"x": x, "label": label}, {"x": vx, "label": vy}, 40, 50)
    steps = 0

    def noisy(x):
        return x + 0.3 * torch.randn_like(x)

    def loss_of(model, b):
        out = model(noisy(b["x"]))
        taught = teacher(noisy(b["x"])).softmax(1)
        known = (b["label"] >= 0).sum().clamp(min=1)
        total = F.cross_entropy(out, b["label"], ignore_index=-1, reduction="sum")
        return total / known + min(steps / 50, 1.0) * F.mse_loss(out.softmax(1), taught)

    def after():
        nonlocal steps
        steps += 1
        follow(teacher, m)

    def sums_of(model, b):
        hits = model(b["x"]).argmax(1) == b["label"]
        return {"acc": (hits.sum(), len(hits))}

    step = then(plain_step(m, opt, loss_of), after)
    more = {"num_classes": 3, "declared": {"ema_decay": 0.95, "ignore_index": -1}}
    return by_cost(m, opt, tl, vl, loss_of, sums_of, step=step, **more)
