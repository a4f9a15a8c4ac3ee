"""Ten more of the eighteenth set: many passes, prior odds, cycles, closures, noise, masks."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import prune
from torch.utils.data import DataLoader, IterableDataset

from tests.debug.faulty.eighteenth.kit import (
    accuracy,
    averaged,
    begun,
    blobs,
    by_pairs,
    evaluating,
    loader,
    loaders,
    mlp,
    saving,
    squares,
    sup_step,
    table,
)
from tests.debug.sound.programs import sound


def groups(number, noise=1.0, bs=16):
    """Loaders of four classes; all draws begin anew."""
    g = begun(number)
    train, held = (blobs(g, n, 10, 4, noise) for n in (480, 150))
    return loaders(train, held, bs, vbs=50)


@sound
def mc_dropout_of_12_passes():
    """Dropout stays on in evaluate(), which averages twelve passes."""
    tl, vl = groups(80)
    m = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 4))
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def evaluate():
        m.train()
        hits, n, entropy = 0, 0, 0.0
        with torch.no_grad():
            for x, y in vl:
                p = torch.stack([m(x).softmax(1) for _ in range(12)]).mean(0)
                hits += (p.argmax(1) == y).sum().item()
                entropy -= (p * p.log()).sum().item()
                n += len(y)
        return {"val_acc": hits / n, "entropy": entropy / n}

    more = {"evaluate": evaluate, "declared": {"mc_dropout": True}}
    return by_pairs(m, opt, tl, vl, num_classes=4, **more)


@sound
def focal_loss_from_the_prior():
    """3 % are positive and the output begins at their log-odds: the loss is tiny from the first
    step, and few answers are positive."""
    g = begun(81)
    w = torch.randn(8, generator=g)

    def data(n):
        x = torch.randn(n, 8, generator=g)
        return x, (x @ w > 1.9 * w.norm()).float()[:, None]

    train, held = data(1600), data(800)
    tl, vl = loaders(train, held, 32, vbs=100)
    m = mlp(8, 32, 1)
    nn.init.normal_(m[-1].weight, std=0.01)
    nn.init.constant_(m[-1].bias, torch.logit(train[1].mean()).item())
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def focal(out, y, gamma=2.0, share=0.75):
        p = out.sigmoid()
        right = p * y + (1 - p) * (1 - y)
        weights = (share * y + (1 - share) * (1 - y)) * (1 - right) ** gamma
        return (weights * F.binary_cross_entropy_with_logits(out, y, reduction="none")).mean()

    def evaluate():
        with evaluating(m):
            out = torch.cat([m(x) for x, _ in vl]).squeeze(1)
        positive = held[1].squeeze(1) > 0
        ranked = out[positive][:, None] > out[~positive][None]
        return {
            "auc": ranked.float().mean().item(),
            "recall": (out[positive] > 0).float().mean().item(),
            "accuracy": ((out > 0) == positive).float().mean().item(),
        }

    return by_pairs(m, opt, tl, vl, focal, evaluate=evaluate)


@sound
def cyclic_lr():
    """The rate rises tenfold and falls again every 20 steps on purpose."""
    tl, vl = groups(82)
    m = mlp(10, 32, 4)
    opt = torch.optim.SGD(m.parameters(), 0.02, momentum=0.9)
    crit = nn.CrossEntropyLoss()
    scheduler = torch.optim.lr_scheduler.CyclicLR(
        opt, 0.01, 0.1, step_size_up=10, cycle_momentum=False
    )
    more = {"scheduler": scheduler, "declared": {"scheduler_unit": "batch"}}
    step = sup_step(m, opt, crit, scheduler.step)
    return by_pairs(m, opt, tl, vl, crit, step, num_classes=4, **more)


@sound
def sam_beside_the_weights():
    """Two backward passes per update; the weights are moved up between them and back by as much."""
    tl, vl = groups(83)
    m = mlp(10, 32, 4)
    opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)
    crit, weights = nn.CrossEntropyLoss(), list(m.parameters())

    def step(b):
        m.train()
        opt.zero_grad()
        loss = crit(m(b[0]), b[1])
        loss.backward()
        norm = torch.stack([p.grad.norm() for p in weights]).norm() + 1e-12
        moves = [0.05 * p.grad / norm for p in weights]
        with torch.no_grad():
            for p, move in zip(weights, moves, strict=True):
                p.add_(move)
        opt.zero_grad()
        crit(m(b[0]), b[1]).backward()
        with torch.no_grad():
            for p, move in zip(weights, moves, strict=True):
                p.sub_(move)
        opt.step()
        return loss.item()

    return by_pairs(m, opt, tl, vl, crit, step, num_classes=4)


@sound
def lbfgs_three_rounds_a_batch():
    """L-BFGS on the one batch that there is, with a penalty: several forwards per step."""
    g = begun(84)
    w = torch.randn(10, 2, generator=g)
    tl = loader(table(g, 200, w), 200, shuffle=False)
    vl = loader(table(g, 100, w), 50, shuffle=False)
    m = mlp(10, 12, 1, act=nn.Tanh)
    opt = torch.optim.LBFGS(m.parameters(), lr=0.5, max_iter=3, history_size=10)
    crit = nn.MSELoss()

    def step(b):
        m.train()

        def closure():
            opt.zero_grad()
            penalty = 1e-4 * sum(p.pow(2).sum() for p in m.parameters())
            loss = crit(m(b[0]), b[1]) + penalty
            loss.backward()
            return loss

        return opt.step(closure).item()

    return by_pairs(m, opt, tl, vl, crit, step, evaluate=averaged(m, vl, squares))


@sound
def swa_update_bn():
    """Weights are averaged every five steps at a constant high rate; before the average is scored
    its statistics are counted anew."""
    tl, vl = groups(85)
    m = nn.Sequential(nn.Linear(10, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))
    opt = torch.optim.SGD(m.parameters(), 0.1)
    crit, steps = nn.CrossEntropyLoss(), 0
    average = torch.optim.swa_utils.AveragedModel(m)
    all_rows = loader(tl.dataset, 480, shuffle=False)

    def after():
        nonlocal steps
        steps += 1
        if steps % 5 == 0:
            average.update_parameters(m)

    def evaluate():
        torch.optim.swa_utils.update_bn(all_rows, average)
        return {
            "val_acc": accuracy(m, vl)["val_acc"],
            "swa_val_acc": accuracy(average, vl)["val_acc"],
        }

    step = sup_step(m, opt, crit, after)
    return by_pairs(m, opt, tl, vl, crit, step, num_classes=4, evaluate=evaluate)


class Simulated(IterableDataset):
    """Batches without an end, each of them new."""

    def __init__(self, g, w):
        self.g, self.w = g, w

    def __iter__(self):
        while True:
            yield table(self.g, 32, self.w)


@sound
def infinite_stream():
    """A loader of whole batches without length or end: there is no epoch, nothing is seen twice."""
    g = begun(86)
    w = torch.randn(10, 2, generator=g)
    vl = loader(table(g, 150, w), 50, shuffle=False)
    tl = DataLoader(Simulated(g, w), batch_size=None)
    m = mlp(10, 32, 1)
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    return by_pairs(m, opt, tl, vl, nn.HuberLoss(), evaluate=averaged(m, vl, squares))


@sound
def dp_sgd():
    """The gradients of a linear layer are worked out for each row, clipped to 1, and noise is added
    to their sum: they are small and noisy by design."""
    tl, vl = groups(87, bs=32)
    m = nn.Linear(10, 4)
    opt = torch.optim.SGD(m.parameters(), 0.5)
    crit = nn.CrossEntropyLoss()

    def step(b):
        m.train()
        x, y = b
        opt.zero_grad()
        with torch.no_grad():
            out = m(x)
            error = out.softmax(1) - F.one_hot(y, 4)
            of_weight = error[:, :, None] * x[:, None]
            norms = (of_weight.flatten(1).pow(2).sum(1) + error.pow(2).sum(1)).sqrt()
            scale = 1 / norms.clamp(min=1)
            of_weight = (of_weight * scale[:, None, None]).sum(0)
            of_bias = (error * scale[:, None]).sum(0)
            m.weight.grad = (of_weight + 0.8 * torch.randn_like(of_weight)) / len(x)
            m.bias.grad = (of_bias + 0.8 * torch.randn_like(of_bias)) / len(x)
            loss = crit(out, y)
        opt.step()
        return loss.item()

    declared = {"dp_noise": 0.8, "per_example_clip": 1.0}
    return by_pairs(m, opt, tl, vl, crit, step, num_classes=4, declared=declared)


@sound
def pruned_mask():
    """80 % of a layer's weights are held at zero by a fixed mask of torch.nn.utils.prune."""
    tl, vl = groups(88)
    m = mlp(10, 64, 64, 4)
    prune.random_unstructured(m[2], "weight", 0.8)
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    return by_pairs(m, opt, tl, vl, num_classes=4, **saving(m, opt))


@sound
def mixup_soft():
    """Rows and labels are mixed and the labels smoothed: the training loss stays well above zero
    and above that of validation."""
    tl, vl = groups(89, noise=0.7)
    m = mlp(10, 32, 4)
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    crit = nn.CrossEntropyLoss(label_smoothing=0.1)
    shares = torch.distributions.Beta(1.0, 1.0)

    def step(b):
        m.train()
        x, y = b
        share = shares.sample()
        order = torch.randperm(len(x))
        labels = F.one_hot(y, 4).float()
        opt.zero_grad()
        out = m(share * x + (1 - share) * x[order])
        loss = crit(out, share * labels + (1 - share) * labels[order])
        loss.backward()
        opt.step()
        return loss.item()

    declared = {"label_smoothing": 0.1}
    return by_pairs(m, opt, tl, vl, crit, step, num_classes=4, declared=declared)
