"""Scores that are not of the largest output: words of bits, centres, votes, thresholds."""

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.sound.odd_kit import G, clusters, dl, going, keeping, mlp, still
from tests.debug.sound.programs import sound


def pairs(net, loss_fn, opt, tl, vl, evaluate, **more):
    return {
        "model": net,
        "loss_fn": loss_fn,
        "optimizer": opt,
        "train_loader": tl,
        "val_loader": vl,
        "evaluate": evaluate,
        **more,
    }


def rows(bs=40, noise=1.1, n=800, k=5, **more):
    return dl(*clusters(n, 12, k, 1, noise), bs=bs, **more), dl(
        *clusters(300, 12, k, 2, noise), bs=100, shuffle=False
    )


@sound
def kinds_as_words_of_bits():
    """Error-correcting codes: each kind is a word of 12 bits; the guess is the nearest word."""
    tl, vl = rows()
    code = (torch.rand(5, 12, generator=G(4)) > 0.5).float()
    net = mlp(12, 64, 12)
    opt = torch.optim.Adam(net.parameters(), 4e-3)

    def loss_fn(z, y):
        return F.binary_cross_entropy_with_logits(z, code[y])

    def evaluate():
        hit = cost = 0
        with still(net):
            for x, y in vl:
                z = net(x)
                cost += loss_fn(z, y).item() * len(y)
                hit += (torch.cdist(z.sigmoid(), code, p=1).argmin(1) == y).sum().item()
        return {"accuracy": hit / 300, "loss": cost / 300}

    return pairs(net, loss_fn, opt, tl, vl, evaluate, **keeping(net=net, opt=opt))


@sound
def kinds_by_the_nearest_learned_centre():
    """Outputs are places; a row's chance falls with the squared distance to learned centres held by
    the loss."""
    tl, vl = rows()

    class Near(nn.Module):
        def __init__(self):
            super().__init__()
            self.c = nn.Parameter(torch.randn(5, 8))

        def forward(self, z, y):
            return F.cross_entropy(-torch.cdist(z, self.c).square(), y)

    net, crit = mlp(12, 48, 8), Near()
    opt = torch.optim.Adam([*net.parameters(), *crit.parameters()], 4e-3)

    def evaluate():
        hit = 0
        with still(net, crit):
            for x, y in vl:
                hit += (torch.cdist(net(x), crit.c).argmin(1) == y).sum().item()
        return {"accuracy": hit / 300}

    return pairs(net, crit, opt, tl, vl, evaluate, **keeping(net=net, crit=crit, opt=opt))


@sound
def says_nothing_when_unsure():
    """Accuracy over those held rows whose best chance is above 0.7, and the share of these."""
    tl, vl = rows(noise=1.6)
    net = mlp(12, 48, 5)
    opt = torch.optim.AdamW(net.parameters(), 3e-3)

    def evaluate():
        hit = said = 0
        with still(net):
            for x, y in vl:
                p, k = net(x).softmax(1).max(1)
                said += (p > 0.7).sum().item()
                hit += ((k == y) & (p > 0.7)).sum().item()
        return {"accuracy": hit / max(said, 1), "coverage": said / 300}

    return pairs(net, nn.CrossEntropyLoss(), opt, tl, vl, evaluate, num_classes=5)


@sound
def a_person_by_the_vote_of_ten_rows():
    """Each held person has ten rows; the mean log chance of these is one guess; accuracy by
    person."""
    x, y = clusters(800, 12, 5, 1, 2.2)
    py = torch.randint(5, (40,), generator=G(7))
    c = torch.randn(5, 12, generator=G(500))
    vx = c[py].repeat_interleave(10, 0) + 2.2 * torch.randn(400, 12, generator=G(8))
    tl, vl = dl(x, y, bs=40), dl(vx, py.repeat_interleave(10), bs=100, shuffle=False)
    net = mlp(12, 32, 5, drop=0.2)
    opt = torch.optim.AdamW(net.parameters(), 3e-3, weight_decay=0.05)

    def evaluate():
        with still(net):
            lp = torch.cat([net(a).log_softmax(1) for a, _ in vl]).view(40, 10, 5).mean(1)
        return {"accuracy": (lp.argmax(1) == py).float().mean().item()}

    return pairs(
        net,
        nn.CrossEntropyLoss(),
        opt,
        tl,
        vl,
        evaluate,
        num_classes=5,
        **keeping(net=net, opt=opt),
    )


@sound
def guesses_moved_to_the_true_shares():
    """Trained on evened kinds, and says so; in use the logits get the log of the known shares;
    accuracy and log loss of these."""
    p = torch.tensor([0.5, 0.25, 0.15, 0.07, 0.03])
    x, y = clusters(900, 12, 5, 1, 1.8)
    vx, vy = clusters(400, 12, 5, 2, 1.8, p.tolist())
    tl, vl = dl(x, y, bs=45), dl(vx, vy, bs=100, shuffle=False)
    net = mlp(12, 48, 5)
    opt = torch.optim.Adam(net.parameters(), 2e-3)
    tilt = (p * 5).log()

    def evaluate():
        hit = cost = 0
        with still(net):
            for a, b in vl:
                z = net(a) + tilt
                hit, cost = (
                    hit + (z.argmax(1) == b).sum().item(),
                    cost + F.cross_entropy(z, b, reduction="sum").item(),
                )
        return {"accuracy": hit / 400, "loss": cost / 400}

    declared = {"allow": ["label-shift"]}
    return pairs(
        net, nn.CrossEntropyLoss(), opt, tl, vl, evaluate, num_classes=5, declared=declared
    )


@sound
def same_or_not_by_a_distance():
    """Pairs of rows through one net; contrastive loss; accuracy at a threshold that is half of the
    margin."""

    def make(n, s):
        x, y = clusters(2 * n, 12, 5, s, 0.9)
        g = G(s + 9)
        a = torch.arange(n)
        b = torch.where(
            torch.rand(n, generator=g) < 0.5,
            torch.stack([(y == y[i]).float() for i in a]).multinomial(1, generator=g)[:, 0],
            torch.randint(2 * n, (n,), generator=g),
        )
        return torch.stack([x[a], x[b]], 1), (y[a] == y[b]).float()

    tl, vl = dl(*make(600, 1), bs=40), dl(*make(200, 2), bs=50, shuffle=False)

    class Apart(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = mlp(12, 48, 6)

        def forward(self, two):
            a, b = self.f(two).unbind(1)
            return ((a - b).square().sum(1) + 1e-8).sqrt()

    net = Apart()
    opt = torch.optim.Adam(net.parameters(), 3e-3)

    def loss_fn(d, same):
        return (same * d**2 + (1 - same) * F.relu(2 - d) ** 2).mean()

    def evaluate():
        hit = 0
        with still(net):
            for two, same in vl:
                hit += ((net(two) < 1) == same.bool()).sum().item()
        return {"accuracy": hit / 200}

    return pairs(net, loss_fn, opt, tl, vl, evaluate, **keeping(net=net, opt=opt))


@sound
def against_the_worst_small_push():
    """Adversarial training: two sign steps against the net in evaluation mode, then an update on
    the pushed rows."""
    tl, vl = rows(noise=0.8)
    net = nn.Sequential(nn.Linear(12, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 5))
    opt = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    ce = nn.CrossEntropyLoss()

    def pushed(x, y):
        was, d = net.training, torch.zeros_like(x)
        net.eval()
        with torch.enable_grad():
            for _ in range(2):
                d.requires_grad_()
                (g,) = torch.autograd.grad(ce(net(x + d), y), d)
                d = (d + 0.1 * g.sign()).clamp(-0.2, 0.2).detach()
        net.train(was)
        return x + d

    def step(b):
        net.train()
        x = pushed(*b)
        opt.zero_grad()
        loss = ce(net(x), b[1])
        loss.backward()
        opt.step()
        return loss.item()

    def evaluate():
        hit = hard = 0
        for x, y in vl:
            p = pushed(x, y)
            with still(net):
                hit, hard = (
                    hit + (net(x).argmax(1) == y).sum().item(),
                    hard + (net(p).argmax(1) == y).sum().item(),
                )
        return {"accuracy": hit / 300, "robust_accuracy": hard / 300}

    return pairs(
        net, ce, opt, tl, vl, evaluate, num_classes=5, train_step=step, train=going(tl, step)
    )


def bank(net, x, y, vl, n, k):
    """evaluate(): a held row has the kind of the nearest mean of known rows."""

    def evaluate():
        hit = 0
        with still(net):
            z = F.normalize(net(x), dim=1)
            mid = F.normalize(torch.stack([z[y == c].mean(0) for c in range(k)]), dim=1)
            for a, b in vl:
                hit += ((F.normalize(net(a), dim=1) @ mid.T).argmax(1) == b).sum().item()
        return {"accuracy": hit / n}

    return evaluate


@sound
def proxies_as_the_losses_own():
    """Proxy-anchor-like softmax with proxies in the loss; in use the proxies are dropped and class
    means taken."""
    x, y = clusters(800, 12, 5, 1, 1.1)
    tl, vl = dl(x, y, bs=40), dl(*clusters(300, 12, 5, 2, 1.1), bs=100, shuffle=False)

    class Proxy(nn.Module):
        def __init__(self):
            super().__init__()
            self.p = nn.Parameter(torch.randn(5, 16))

        def forward(self, z, y):
            return F.cross_entropy(8 * F.normalize(z, dim=1) @ F.normalize(self.p, dim=1).T, y)

    net, crit = mlp(12, 64, 16), Proxy()
    opt = torch.optim.AdamW(
        [{"params": net.parameters()}, {"params": crit.parameters(), "lr": 2e-2}], 3e-3
    )
    return pairs(net, crit, opt, tl, vl, bank(net, x, y, vl, 300, 5))


@sound
def only_the_family_counts():
    """Ten kinds in five families of two are learned; the score is the accuracy of the family by
    summed chances."""
    tl, vl = rows(k=10, noise=1.3)
    net = mlp(12, 64, 10)
    opt = torch.optim.Adam(net.parameters(), 4e-3)

    def evaluate():
        hit = 0
        with still(net):
            for x, y in vl:
                hit += (net(x).softmax(1).view(-1, 5, 2).sum(2).argmax(1) == y // 2).sum().item()
        return {"accuracy": hit / 300}

    return pairs(net, nn.CrossEntropyLoss(), opt, tl, vl, evaluate, num_classes=10)


@sound
def all_four_right_or_none():
    """Four digits of a row at once; the accuracy is of rows of which all four are right."""
    W = torch.randn(10, 12, generator=G(4))

    def make(n, s):
        x = torch.randn(n, 10, generator=G(s))
        return x, (x @ W).view(n, 4, 3).argmax(2)

    tl, vl = dl(*make(1200, 1), bs=40), dl(*make(300, 2), bs=100, shuffle=False)
    net = nn.Sequential(mlp(10, 96, 12), nn.Unflatten(1, (3, 4)))
    opt = torch.optim.Adam(net.parameters(), 5e-3)

    def evaluate():
        hit = 0
        with still(net):
            for x, y in vl:
                hit += (net(x).argmax(1) == y).all(1).sum().item()
        return {"accuracy": hit / 300}

    return pairs(net, nn.CrossEntropyLoss(), opt, tl, vl, evaluate, **keeping(net=net, opt=opt))


def ordered(n, s):
    g = G(s)
    x = torch.randn(n, 6, generator=g)
    return x, torch.bucketize(
        x[:, 0] + torch.sin(x[:, 1]) + 0.2 * torch.randn(n, generator=g),
        torch.tensor([-1.0, -0.3, 0.3, 1.0]),
    )


@sound
def grade_by_how_many_are_passed():
    """Five grades by four thresholds; accuracy is of the number of passed thresholds."""
    tl, vl = dl(*ordered(900, 1), bs=45), dl(*ordered(400, 2), bs=100, shuffle=False)
    net = mlp(6, 48, 4)
    opt = torch.optim.Adam(net.parameters(), 5e-3)

    def loss_fn(z, y):
        return F.binary_cross_entropy_with_logits(z, (y[:, None] > torch.arange(4)).float())

    def evaluate():
        hit = c = 0
        with still(net):
            for x, y in vl:
                z = net(x)
                hit, c = hit + ((z > 0).sum(1) == y).sum().item(), c + loss_fn(z, y).item() * len(y)
        return {"accuracy": hit / 400, "loss": c / 400}

    return pairs(net, loss_fn, opt, tl, vl, evaluate, **keeping(net=net, opt=opt))
