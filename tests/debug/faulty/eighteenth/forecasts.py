"""Faults of forecasts, counts and tags: windows, splits, forms of a loss, weights, thresholds."""

import torch
from torch import nn

from tests.debug.faulty.eighteenth.kit import (
    averaged,
    begun,
    by_pairs,
    evaluating,
    loaders,
    mlp,
    saving,
)
from tests.debug.faulty.kit import pair


def wave(g, n):
    """A sine beside noise that fades slowly: [n]."""
    drawn = torch.randn(n, generator=g)
    noise = torch.zeros(n)
    for i in range(1, n):
        noise[i] = 0.9 * noise[i - 1] + 0.35 * drawn[i]
    return torch.sin(torch.arange(n).float() / 6) + noise


def errors(model, batches):
    """What is predicted too much, on all batches."""
    with evaluating(model):
        return torch.cat([model(x) - y for x, y in batches])


@pair("target-in-inputs")
def window_has_target(bug):
    """The slice of the targets begins one place too early: each is the last number of its window.
    After 400 steps val_rmse is 0.059 instead of 0.399."""
    g = begun(8)
    s, w = wave(g, 700), 16

    def data(part):
        x = part.unfold(0, w, 1)[:-1]
        y = part[w - 1 : -1] if bug else part[w:]
        return x, y[:, None]

    tl, vl = loaders(data(s[:500]), data(s[500:]))
    m = mlp(w, 32, 1)
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def evaluate():
        e = errors(m, vl)
        return {"val_rmse": e.pow(2).mean().sqrt().item(), "val_mae": e.abs().mean().item()}

    return by_pairs(m, opt, tl, vl, nn.MSELoss(), evaluate=evaluate, **saving(m, opt))


@pair("leak-overlap")
def windows_random_split(bug):
    """Overlapping windows are shuffled before the split: what validation asks for stands in
    training windows. After 400 steps val_rmse is 0.476 instead of 0.709."""
    g = begun(9)
    s, w, h = wave(g, 260), 20, 6
    rows = s.unfold(0, w + h, 1)
    cut = int(0.75 * len(rows))
    if bug:
        order = torch.randperm(len(rows), generator=g)
        train, held = rows[order[:cut]], rows[order[cut:]]
    else:
        train, held = rows[:cut], rows[cut + w + h :]
    tl, vl = loaders((train[:, :w], train[:, w:]), (held[:, :w], held[:, w:]), vbs=32)
    m = mlp(w, 96, 96, h)
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def evaluate():
        return {"val_rmse": errors(m, vl).pow(2).mean().sqrt().item()}

    return by_pairs(m, opt, tl, vl, nn.MSELoss(), evaluate=evaluate)


@pair("targets-out-of-reach")
def poisson_log_input(bug):
    """The Poisson loss takes the rates of a softplus for their logarithms, as it does by default.
    After 400 steps mae is 4.36 instead of 2.12, and mean_predicted 1.09 instead of 6.25."""
    g = begun(20)
    w = torch.randn(6, generator=g) * 0.5

    def data(n):
        x = torch.randn(n, 6, generator=g)
        return x, torch.poisson((x @ w + 1.2).exp(), generator=g)[:, None]

    tl, vl = loaders(data(512), data(150))
    m = nn.Sequential(mlp(6, 32, 1), nn.Softplus())
    opt = torch.optim.Adam(m.parameters(), 1e-2)

    def sums_of(model, b):
        rates, counts = model(b[0]), b[1]
        n = len(counts)
        return {
            "mae": ((rates - counts).abs().sum(), n),
            "mean_predicted": (rates.sum(), n),
            "mean_count": (counts.sum(), n),
        }

    crit = nn.PoissonNLLLoss(log_input=bug)
    return by_pairs(m, opt, tl, vl, crit, evaluate=averaged(m, vl, sums_of))


def tags(g, n, w, shift):
    """Rows [n, 12] and whether each has the six tags, the more often the larger the shift."""
    x = torch.randn(n, 12, generator=g)
    return x, (x @ w + shift + 0.5 * torch.randn(n, 6, generator=g) > 0).float()


def tag_scores(p, y):
    hits = (p * y).sum().item()
    return {
        "micro_f1": 2 * hits / max(1.0, (p.sum() + y.sum()).item()),
        "recall": hits / max(1.0, y.sum().item()),
        "label_acc": (p == y).float().mean().item(),
    }


@pair("class-weights-inverted")
def pos_weight_inverse(bug):
    """pos_weight is positives over negatives: rare tags weigh a tenth and are never said. After 400
    steps micro_f1 is 0 instead of 0.494."""
    g = begun(21)
    w = torch.randn(12, 6, generator=g) * 0.4
    (x, y), (held_x, held_y) = (tags(g, n, w, -2.0) for n in (640, 200))
    positive, negative = y.sum(0), (1 - y).sum(0)
    tl, vl = loaders((x, y), (held_x, held_y))
    m = mlp(12, 32, 6)
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def evaluate():
        with evaluating(m):
            return tag_scores(torch.cat([(m(x) > 0).float() for x, _ in vl]), held_y)

    crit = nn.BCEWithLogitsLoss(pos_weight=positive / negative if bug else negative / positive)
    return by_pairs(m, opt, tl, vl, crit, evaluate=evaluate, num_classes=6)


@pair("metric-wrong")
def tags_cut_at_half_a_logit(bug):
    """A tag is said where its logit is above 0.5, which is meant for its probability. After 400
    steps recall is 0.604 instead of 0.813."""
    g = begun(22)
    w = torch.randn(12, 6, generator=g) * 0.12
    train, held = (tags(g, n, w, 0.1) for n in (640, 300))
    tl, vl = loaders(train, held)
    m = mlp(12, 16, 6)
    opt = torch.optim.AdamW(m.parameters(), 2e-3, weight_decay=0.1)

    def evaluate():
        said = []
        with evaluating(m):
            for x, _ in vl:
                out = m(x)
                if not bug:
                    out = out.sigmoid()
                said.append((out > 0.5).float())
        return tag_scores(torch.cat(said), held[1])

    crit = nn.BCEWithLogitsLoss()
    return by_pairs(m, opt, tl, vl, crit, evaluate=evaluate, num_classes=6)
