"""Two further dresses each of faults of the loss: levels, ends of episodes, slopes, answers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import Function

from course.debug.relations import (
    bootstrapped,
    loss,
    numeric,
    quantiles,
)
from tests.debug.faulty.dresses import dress, numbers, setup, trained_by
from tests.debug.faulty.fourth.kit import batches, blobs, mlp

# Shares of the targets


class Pinball(nn.Module):
    def __init__(self, level, over):
        super().__init__()
        self.level, self.over = level, over

    def forward(self, out, y):
        miss = out.squeeze(1) - y if self.over else y - out.squeeze(1)
        return (F.relu(miss) * self.level + F.relu(-miss) * (1 - self.level)).mean()


@dress(quantiles.turned, "quantiles-swapped")
def stock_for_nine_days_of_ten(bug):
    x, y = numbers(128)
    return setup(mlp(6, 8, 1), batches(x, y), loss_fn=Pinball(0.9, bug))


@dress(quantiles.turned, "quantiles-swapped")
def five_levels_at_once(bug):
    x, y = numbers(160)

    def loss_fn(out, y, levels=(0.05, 0.25, 0.5, 0.75, 0.95)):
        level, over = torch.tensor(levels), y < out
        weight = torch.where(over, level, 1 - level) if bug else torch.where(over, 1 - level, level)
        return (weight * (y - out).abs()).sum(1).mean()

    return trained_by(
        lambda m, b: loss_fn(m(b[0]), b[1]), mlp(6, 8, 5), batches(x, y[:, None]), loss_fn=loss_fn
    )


# Ends of episodes


def transitions(n=96):
    own = torch.Generator().manual_seed(0)
    state, after = torch.randn(2, n, 5, generator=own)
    done = torch.rand(n, generator=own) < 0.3
    return state, torch.randint(2, (n,), generator=own), state[:, 0] + done, after, done


@dress(bootstrapped.ends, "terminal-bootstrapped")
def state_values_learned_from_the_next(bug):
    state, _, reward, after, done = transitions()

    def cost(model, batch):
        s, r, t, over = batch
        with torch.no_grad():
            rest = 0.9 * model(t).squeeze(1)
            aim = r + (rest if bug else torch.where(over, 0.0, rest))
        return F.mse_loss(model(s).squeeze(1), aim)

    return trained_by(cost, mlp(5, 8, 1), batches(state, reward, after, done))


@dress(bootstrapped.ends, "terminal-bootstrapped")
def two_critics_take_the_smaller(bug):
    state, action, reward, after, done = transitions()
    act = action.float()[:, None]
    model, slow = mlp(6, 8, 2), mlp(6, 8, 2)

    def cost(model, batch):
        pair, t, r, over = batch["pair"], batch["next"], batch["r"], batch["over"]
        with torch.no_grad():
            rest = slow(t).amin(1, keepdim=True)
            aim = r + 0.95 * rest * (1 if bug else 1 - over)
        return F.huber_loss(model(pair).mean(1, keepdim=True), aim)

    parts = {"pair": torch.cat([state, act], 1), "next": torch.cat([after, act.roll(1, 0)], 1),
             "r": reward[:, None], "over": done.float()[:, None]}  # fmt: skip
    loader = [{k: v[i : i + 32] for k, v in parts.items()} for i in range(0, 96, 32)]
    return trained_by(cost, model, loader) | {"slow": slow}


@dress(bootstrapped.through, "loss-through-target")
def values_pull_their_own_targets(bug):
    state, _, reward, after, _ = transitions()

    def cost(model, batch):
        aim = batch["r"] + 0.9 * model(batch["next"]).squeeze(1)
        return F.mse_loss(model(batch["now"]).squeeze(1), aim if bug else aim.detach())

    parts = {"now": state, "next": after, "r": reward}
    loader = [{k: v[i : i + 24] for k, v in parts.items()} for i in range(0, 96, 24)]
    return trained_by(cost, mlp(5, 8, 1), loader)


@dress(bootstrapped.through, "loss-through-target")
def best_of_the_next_actions(bug):
    state, action, reward, after, done = transitions()
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 2))

    def cost(model, batch):
        s, a, r, t, over = batch
        with torch.set_grad_enabled(bug):
            best = model(t).logsumexp(1)
        said = model(s).gather(1, a[:, None]).squeeze(1)
        return F.smooth_l1_loss(said, r + 0.8 * best * (~over))

    return trained_by(cost, model, batches(state, action, reward, after, done))


# Slopes of the author's


class Cube(Function):
    @staticmethod
    def forward(ctx, x, short):
        ctx.save_for_backward(x)
        ctx.short = short
        return x**3

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * (2 if ctx.short else 3) * x**2, None


@dress(numeric.custom, "wrong-gradient")
def cubes_of_sums(bug):
    x, y = numbers()

    def cost(model, batch):
        return F.l1_loss(Cube.apply(model(batch[0]), bug).squeeze(1), batch[1])

    return trained_by(cost, nn.Linear(6, 1), batches(x, y))


class Centred(Function):
    """Rows without their mean; the gradient has to lose its mean as well."""

    @staticmethod
    def forward(x, whole):
        return x - x.mean(1, keepdim=True)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.whole = inputs[1]

    @staticmethod
    def backward(ctx, gradient):
        return (gradient - gradient.mean(1, keepdim=True) if ctx.whole else gradient), None


class CentredNet(nn.Module):
    def __init__(self, whole):
        super().__init__()
        self.whole, self.a, self.b = whole, nn.Linear(10, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.b(torch.tanh(Centred.apply(self.a(x), self.whole)))


@dress(numeric.custom, "wrong-gradient")
def rows_centred_by_hand(bug):
    return setup(CentredNet(not bug), batches(*blobs(96)), loss_fn=nn.CrossEntropyLoss())


# Several answers of a row


def several(n=96, k=4):
    x, _ = numbers(n)
    return x, (x[:, :k] > 0.4).float()


@dress(loss.shares, "classes-compete")
def symptoms_of_a_patient(bug):
    x, y = several()
    x = torch.stack([x, x.roll(1, 1)], 1)
    cost = F.cross_entropy if bug else F.multilabel_soft_margin_loss
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 4))
    return trained_by(lambda m, b: cost(m(b[0]), b[1]), model, batches(x, y, bs=48))


@dress(loss.shares, "classes-compete")
def tools_in_a_picture(bug):
    y = (torch.rand(64, 5) < 0.35).float()
    images = 0.3 * torch.randn(64, 1, 6, 6) + y.mean(1)[:, None, None, None]
    loss_fn = nn.CrossEntropyLoss(label_smoothing=0.0) if bug else nn.BCEWithLogitsLoss()
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 5))
    return setup(model, batches(images, y), loss_fn=loss_fn, task="multi-label")
