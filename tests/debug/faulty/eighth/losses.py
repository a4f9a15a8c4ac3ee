"""Faults of losses and targets."""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.debug.faulty.eighth.kit import gen, predict
from tests.debug.faulty.kit import pair
from tests.debug.faulty.seventh.kit import saved
from tests.debug.faulty.sixth.kit import (
    blobs,
    loaders,
    mean_loss,
    mlp,
    numbers,
    of_pairs,
    pictures,
    setup,
    stepper,
)


@pair("missing-log-softmax", "double-softmax")
def distils_with_probabilities(bug):
    """kl_div is given the student's probabilities where it wants their logarithms. Costs: the
    loss is not a divergence (negative at its best, pulls to the teacher's first choice); the
    soft targets teach little."""
    x, y = blobs(n=192, seed=20, spread=2.0)
    loader, val_loader = loaders(x, y)
    torch.manual_seed(20)
    teacher = mlp(h=64)
    fit = torch.optim.Adam(teacher.parameters(), 1e-2)
    for _ in range(60):
        fit.zero_grad()
        F.cross_entropy(teacher(x[:160]), y[:160]).backward()
        fit.step()
    teacher.eval().requires_grad_(False)
    student = mlp(h=12)
    opt = torch.optim.Adam(student.parameters(), 1e-2)
    heat = 3.0

    def loss_of(model, batch):
        x, _ = batch
        soft = (teacher(x) / heat).softmax(-1)
        own = model(x) / heat
        own = own.softmax(-1) if bug else own.log_softmax(-1)
        return heat**2 * F.kl_div(own, soft, reduction="batchmean")

    step = stepper(student, opt, loss_of)

    def evaluate():
        out, y = predict(student, val_loader)
        return {
            "accuracy": (out.argmax(1) == y).float().mean().item(),
            "nll": F.cross_entropy(out, y).item(),
        }

    return setup(
        student,
        opt,
        loader,
        val_loader,
        loss_of=loss_of,
        num_classes=4,
        task="classification",
        train_step=step,
        evaluate=evaluate,
        extra={"teacher": teacher},
    )


@pair("depends-on-order", "rows-mixed")
def cox_without_sorting(bug):
    """Cox's partial likelihood by a running logsumexp, which holds only for rows sorted by
    falling time; the shuffled batch is never sorted. Costs: risk sets are random, concordance is
    poor."""
    g = gen(21)
    n = 192
    x = torch.randn(n, 6, generator=g)
    risk = x @ torch.tensor([1.2, -0.8, 0.6, 0, 0, 0])
    time = -torch.log(torch.rand(n, generator=g)) * torch.exp(-risk)
    stop = 8 * torch.rand(n, generator=g) + 3
    event = (time <= stop).float()
    loader, val_loader = loaders(
        x, torch.stack([torch.minimum(time, stop), event], 1), val=64, batch=32
    )
    model = mlp(6, 1, 16)
    opt = torch.optim.Adam(model.parameters(), 1e-2)

    def loss_fn(out, target):
        out, (time, event) = out[:, 0], target.unbind(1)
        if not bug:
            order = time.argsort(descending=True)
            out, event = out[order], event[order]
        return -((out - out.logcumsumexp(0)) * event).sum() / event.sum().clamp(min=1)

    step = stepper(model, opt, of_pairs(loss_fn))

    def evaluate():
        out, target = predict(model, val_loader)
        time, event = target.unbind(1)
        usable = (time[:, None] < time[None]) & (event[:, None] > 0)
        right = out > out.T
        return {"concordance": (right & usable).sum().item() / usable.sum().item()}

    return setup(
        model,
        opt,
        loader,
        val_loader,
        step=step,
        loss_fn=loss_fn,
        task="regression",
        evaluate=evaluate,
    )


@pair("quantiles-swapped", "loss-negated")
def pinball_turned_round(bug):
    """The error in the pinball loss is output minus target, so that the output called the 0.9
    quantile learns the 0.1 quantile. Costs: coverage; a stock ordered by it runs out nine times
    of ten."""
    x, y = numbers(n=256, seed=22)
    y = y + (0.3 * x[:, :1].abs() + 0.1) * torch.randn(256, 1, generator=gen(22))
    loader, val_loader = loaders(x, y, val=64, batch=32)
    levels = torch.tensor([0.1, 0.5, 0.9])
    model = mlp(8, 3)
    opt = torch.optim.Adam(model.parameters(), 1e-2)

    def pinball(out, y):
        error = out - y if bug else y - out
        return torch.maximum(levels * error, (levels - 1) * error).mean()

    step = stepper(model, opt, of_pairs(pinball))

    def evaluate():
        out, y = predict(model, val_loader)
        below = (y <= out).float().mean(0)
        return {f"below_{q:.1f}": b.item() for q, b in zip(levels, below, strict=False)}

    return setup(
        model,
        opt,
        loader,
        val_loader,
        step=step,
        loss_fn=pinball,
        task="regression",
        evaluate=evaluate,
        declared={"quantiles": levels.tolist()},
    )


@pair("broadcast-loss")
def q_values_in_a_column(bug):
    """gather leaves [B, 1], the bootstrapped targets are [B]: the loss compares each with all.
    Costs: all values go to the mean target."""
    g = gen(23)
    n, states = 400, 6
    s = torch.randint(0, states, (n,), generator=g)
    a = torch.randint(0, 2, (n,), generator=g)
    s2 = (s + 2 * a - 1).clamp(0, states - 1)
    r = (s2 == states - 1).float() + 0.1 * (s2 == 0).float()
    done = (s2 == states - 1).float()
    eye = torch.eye(states)
    loader = DataLoader(TensorDataset(eye[s], a, r, eye[s2], done), 32, shuffle=True)
    q = mlp(states, 2)
    target = copy.deepcopy(q).requires_grad_(False)
    opt = torch.optim.Adam(q.parameters(), 5e-3)

    def loss_of(model, batch):
        s, a, r, s2, done = batch
        taken = model(s).gather(1, a[:, None])
        if not bug:
            taken = taken.squeeze(1)
        with torch.no_grad():
            goal = r + 0.9 * (1 - done) * target(s2).max(1).values
        return F.smooth_l1_loss(taken, goal)

    def train_step(batch):
        loss = loss_of(q, batch)
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            for old, new in zip(target.parameters(), q.parameters(), strict=False):
                old.lerp_(new, 0.05)
        return loss.item()

    def evaluate():
        with torch.no_grad():
            return {"goes_right": (q(eye[:-1]).argmax(1) == 1).float().mean().item()}

    return setup(
        q,
        opt,
        loader,
        step=train_step,
        loss_of=loss_of,
        evaluate=evaluate,
        extra={"target": target},
    )


@pair("class-weights-inverted")
def weighs_by_frequency(bug):
    """The weights of the classes are their shares, not the inverse: the rare one counts least.
    Costs: recall of the rare class."""
    x, y = blobs(n=600, k=3, seed=24, spread=2.2)
    g = gen(24)
    keep = torch.rand(600, generator=g) < torch.tensor([1.0, 0.4, 0.12])[y]
    x, y = x[keep], y[keep]
    loader, val_loader = loaders(x, y, val=80, batch=32)
    counts = torch.bincount(y[:-80], minlength=3).float()
    weight = counts / counts.sum() if bug else counts.sum() / counts
    weight = weight / weight.mean()
    model = mlp(8, 3)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    loss_fn = nn.CrossEntropyLoss(weight=weight)
    step = stepper(model, opt, of_pairs(loss_fn))

    def evaluate():
        out, y = predict(model, val_loader)
        hit = out.argmax(1) == y
        return {"balanced_accuracy": sum(hit[y == k].float().mean().item() for k in range(3)) / 3}

    return setup(
        model,
        opt,
        loader,
        val_loader,
        step=step,
        loss_fn=loss_fn,
        num_classes=3,
        evaluate=evaluate,
    )


@pair("compared-with-itself")
def most_similar_to_itself(bug):
    """In NT-Xent each view stands among its own negatives, with similarity 1, the largest there
    is. Costs: a floor under the loss and weak gradients, most of all at a low temperature."""
    x, _ = blobs(n=192, seed=25)
    loader = DataLoader(TensorDataset(x), 24, shuffle=True, drop_last=True)
    model = mlp(8, 16)
    opt = torch.optim.Adam(model.parameters(), 5e-3)

    def loss_of(model, batch):
        x = batch[0]
        views = torch.cat([x + 0.3 * torch.randn_like(x), x + 0.3 * torch.randn_like(x)])
        z = F.normalize(model(views), dim=1)
        near = z @ z.T / 0.1
        if not bug:
            near = near.masked_fill(torch.eye(len(z), dtype=torch.bool), float("-inf"))
        other = torch.arange(len(z)).roll(len(x))
        return F.cross_entropy(near, other)

    step = stepper(model, opt, loss_of)
    return setup(
        model,
        opt,
        loader,
        step=step,
        loss_of=loss_of,
    )


@pair("labels-merged")
def ordinal_steps_off_by_one(bug):
    """The cumulative targets are `y >= k` for k = 0.., so that the first is always 1 and the
    last grade has none of its own; decoding counts them. Costs: all answers one too high, the
    two highest grades merged. Twin: k = 1.. ."""
    g = gen(26)
    x = torch.randn(224, 6, generator=g)
    score = x @ torch.tensor([1.0, 0.7, -0.5, 0.3, 0, 0]) + 0.2 * torch.randn(224, generator=g)
    y = torch.bucketize(score, torch.tensor([-1.2, -0.4, 0.4, 1.2]))
    loader, val_loader = loaders(x, y, val=64)
    grades = 5
    model = mlp(6, grades - 1)
    opt = torch.optim.Adam(model.parameters(), 1e-2)

    def loss_fn(out, y):
        k = torch.arange(grades - 1) if bug else torch.arange(1, grades)
        return F.binary_cross_entropy_with_logits(out, (y[:, None] >= k).float())

    step = stepper(model, opt, of_pairs(loss_fn))

    def evaluate():
        out, y = predict(model, val_loader)
        grade = (out > 0).sum(1)
        return {
            "accuracy": (grade == y).float().mean().item(),
            "off_by": (grade - y).abs().float().mean().item(),
        }

    return setup(
        model,
        opt,
        loader,
        val_loader,
        step=step,
        loss_fn=loss_fn,
        evaluate=evaluate,
    )


@pair("padding-not-masked")
def boxes_of_the_background(bug):
    """The box loss is taken over all cells; where there is no object the target is the filler
    -1. Costs: 15 of 16 box targets are filler; boxes of real objects are poor. Twin: cells with
    an object only."""
    g = gen(27)
    n = 128
    x = 0.2 * torch.randn(n, 1, 16, 16, generator=g)
    there = torch.zeros(n, 4, 4)
    boxes = torch.full((n, 2, 4, 4), -1.0)  # height and width, filler -1
    for i in range(n):
        r, c = torch.randint(0, 4, (2,), generator=g).tolist()
        h, w = torch.randint(1, 5, (2,), generator=g).tolist()
        x[i, 0, 4 * r : 4 * r + h, 4 * c : 4 * c + w] += 1.5
        there[i, r, c] = 1
        boxes[i, :, r, c] = torch.tensor([h / 4, w / 4])
    loader, val_loader = loaders(x, there, boxes)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 4, stride=4),
        nn.ReLU(),
        nn.Conv2d(16, 16, 1),
        nn.ReLU(),
        nn.Conv2d(16, 3, 1),
    )
    opt = torch.optim.Adam(model.parameters(), 1e-2)

    def loss_of(model, batch):
        x, there, boxes = batch
        out = model(x)
        seen = F.binary_cross_entropy_with_logits(out[:, 0], there)
        off = F.smooth_l1_loss(out[:, 1:], boxes, reduction="none").sum(1)
        box = off.mean() if bug else (off * there).sum() / there.sum()
        return seen + box

    step = stepper(model, opt, loss_of)

    def evaluate():
        model.eval()
        off = count = 0
        with torch.no_grad():
            for x, there, boxes in val_loader:
                off += ((model(x)[:, 1:] - boxes).abs().sum(1) * there).sum().item()
                count += there.sum().item()
        model.train()
        return {"box_error": off / count}

    return setup(
        model,
        opt,
        loader,
        val_loader,
        loss_of=loss_of,
        train_step=step,
        evaluate=evaluate,
    )


@pair("loss-negated")
def rewarded_for_divergence(bug):
    """The closed form of the KL term is missing its minus: the more the code of the VAE departs
    from the prior the better. Costs: codes run away, samples are noise."""
    x, _, _ = pictures(n=128, seed=28)
    x = x.clamp(0, 1).flatten(1)
    loader, val_loader = loaders(x, x)

    class VAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.enc, self.dec = mlp(64, 8, 48), mlp(4, 64, 48)

        def forward(self, x):
            mu, logvar = self.enc(x).chunk(2, 1)
            z = mu + torch.randn_like(mu) * (0.5 * logvar).exp() if self.training else mu
            return self.dec(z), mu, logvar

    model = VAE()
    opt = torch.optim.Adam(model.parameters(), 3e-3)

    def loss_of(model, batch):
        out, mu, logvar = model(batch[0])
        rebuilt = F.mse_loss(out, batch[1], reduction="sum")
        price = 0.5 * (1 + logvar - mu**2 - logvar.exp()).sum()
        if not bug:
            price = -price
        return (rebuilt + 0.1 * price) / len(mu)

    step = stepper(model, opt, loss_of)
    return setup(
        model,
        opt,
        loader,
        val_loader,
        step=step,
        loss_of=loss_of,
        evaluate=mean_loss(model, val_loader, loss_of),
        **saved(model=model, optimizer=opt),
    )
