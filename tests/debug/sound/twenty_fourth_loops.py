"""Ten more of the twenty-fourth set: steps of another make, averages, streams, tasks in turn."""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel

from tests.debug.faulty.twenty_fourth.kit import (
    Scorer,
    averaged,
    by_classes,
    by_cost,
    chain,
    costed,
    evaluating,
    feed,
    follow,
    gen,
    halves,
    hits,
    loaders,
    mlp,
    plain_step,
    seed,
    set_up,
    sup_step,
    then,
    unscored,
)
from tests.debug.faulty.twenty_third.kit import Recurrent
from tests.debug.sound.programs import sound
from tests.debug.sound.twenty_third import Branch


@sound
def first_update_without_a_rate():
    """The rate rises from exactly 0 in the first update, and falls then."""
    seed(61)
    tl, vl = loaders(*halves(320, 12, 4), 32, 64)
    m = mlp(12, 32, 4)
    opt = torch.optim.AdamW(m.parameters(), 1e-2)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda i: i / 20 if i < 20 else max(0.05, 1 - (i - 20) / 400)
    )
    step = sup_step(m, opt, nn.CrossEntropyLoss(), scheduler.step)
    more = {"scheduler": scheduler, "declared": {"scheduler_unit": "batch"}}
    return by_classes(m, opt, tl, vl, 4, step, **more)


@sound
def token_weighted_accumulation():
    """Four micro-batches add up the losses of their tokens, and the gradient is divided by the
    tokens of all of them."""
    seed(63)
    V, T = 17, 7

    def data(n, s):
        lengths = torch.randint(4, T + 1, (n,))
        return {"ids": chain(n, T, V, s), "real": torch.arange(T)[None] < lengths[:, None]}

    tl, vl = loaders(data(480, 1), data(100, 2), 32, 50)
    m = Scorer(V, 16)
    opt = torch.optim.Adam(m.parameters(), 1e-2)

    def sums(model, b):
        out = model(b["ids"][:, :-1]).transpose(1, 2)
        losses = F.cross_entropy(out, b["ids"][:, 1:], reduction="none")
        is_real = b["real"][:, 1:]
        return (losses * is_real).sum(), is_real.sum()

    def loss_of(model, b):
        total, n = sums(model, b)
        return total / n

    def step(b):
        m.train()
        opt.zero_grad()
        total, n = 0.0, 0
        for i in range(4):
            loss, count = sums(m, {name: column[i::4] for name, column in b.items()})
            loss.backward()
            total += loss.item()
            n += count.item()
        for p in m.parameters():
            p.grad /= n
        opt.step()
        return total / n

    def sums_of(model, b):
        return {"token_loss": sums(model, b)}

    more = {"num_classes": V, "declared": {"accumulate": 4}}
    return by_cost(m, opt, tl, vl, loss_of, sums_of, step=step, **more)


@sound
def critic_clipped_by_hand():
    """A critic without a bound, with losses below 0, three updates a step and its weights clipped
    by hand."""
    seed(65)
    real = torch.randn(640, 2) * 0.3 + torch.tensor([1.0, -0.5])
    tl = feed((real,), 64)
    G = mlp(4, 32, 2)
    D = mlp(2, 32, 1)
    m = nn.ModuleDict({"G": G, "D": D})
    og = torch.optim.RMSprop(G.parameters(), 2e-3)
    od = torch.optim.RMSprop(D.parameters(), 2e-3)

    def step(b):
        n = len(b[0])
        for _ in range(3):
            od.zero_grad()
            with torch.no_grad():
                fake = G(torch.randn(n, 4))
            cost = D(fake).mean() - D(b[0]).mean()
            cost.backward()
            od.step()
            with torch.no_grad():
                for p in D.parameters():
                    p.clamp_(-0.1, 0.1)
        og.zero_grad()
        (-D(G(torch.randn(n, 4))).mean()).backward()
        og.step()
        return cost.item()

    def evaluate():
        with evaluating(G):
            made = G(torch.randn(500, 4, generator=gen(3)))
        return {"mean_error": (made.mean(0) - real.mean(0)).norm().item()}

    return set_up(m, [og, od], tl, step, evaluate=evaluate)


@sound
def sharpness_aware_two_backwards():
    """The weights go up the gradient for a second pass and are put back before the update."""
    seed(68)
    tl, vl = loaders(*halves(320, 12, 4, 1.3), 32, 64)
    m = mlp(12, 32, 4)
    opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)
    crit = nn.CrossEntropyLoss()

    def step(b):
        m.train()
        opt.zero_grad()
        loss = crit(m(b[0]), b[1])
        loss.backward()
        params = list(m.parameters())
        with torch.no_grad():
            norm = torch.stack([p.grad.norm() for p in params]).norm() + 1e-12
            moves = [0.05 * p.grad / norm for p in params]
            for p, move in zip(params, moves, strict=True):
                p.add_(move)
        opt.zero_grad()
        crit(m(b[0]), b[1]).backward()
        with torch.no_grad():
            for p, move in zip(params, moves, strict=True):
                p.sub_(move)
        opt.step()
        return loss.item()

    return by_classes(m, opt, tl, vl, 4, step)


class Online(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = self.layers(12)
        self.pred = self.layers(8)

    @staticmethod
    def layers(d):
        return nn.Sequential(nn.Linear(d, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 8))

    def forward(self, x):
        return self.pred(self.enc(x))


@sound
def byol_target_without_gradient():
    """A predictor is drawn to a slow copy of its encoder, which no optimizer holds, without
    negatives."""
    seed(69)
    (x, y), (vx, vy) = halves(320, 12, 5, 0.5, held=200)
    tl = feed((x,), 32)
    m = Online()
    target = copy.deepcopy(m.enc).requires_grad_(False)
    opt = torch.optim.Adam(m.parameters(), 2e-3)

    def loss_of(model, b):
        p, q = (b[0] + 0.3 * torch.randn_like(b[0]) for _ in range(2))
        with torch.no_grad():
            of_p, of_q = target(p), target(q)
        alike = F.cosine_similarity(model(p), of_q).mean()
        return 2 - alike - F.cosine_similarity(model(q), of_p).mean()

    def evaluate():
        with evaluating(m):
            z, vz = F.normalize(m.enc(x)), F.normalize(m.enc(vx))
        nearest = y[(vz @ z.T).argmax(1)]
        return {
            "knn_accuracy": (nearest == vy).float().mean().item(),
            "spread": z.std(0).mean().item(),
        }

    step = then(plain_step(m, opt, loss_of), lambda: follow(target, m.enc, is_whole=False))
    return unscored(m, opt, tl, loss_of, evaluate, step=step)


@sound
def lbfgs_on_shuffled_whole_set():
    """All rows are one batch, and the loss is asked for many times a step."""
    seed(75)
    x = torch.randn(120, 5)
    y = x @ torch.randn(5, 1) + 0.3 * torch.sin(2 * x[:, :1])
    m = mlp(5, 12, 1, act=nn.Tanh)
    tl = feed({"x": x, "y": y}, 120)
    opt = torch.optim.LBFGS(m.parameters(), lr=0.5, max_iter=4, history_size=8)

    def loss_of(model, b):
        decay = 1e-4 * sum((p**2).sum() for p in model.parameters())
        return F.mse_loss(model(b["x"]), b["y"]) + decay

    def step(b):
        def closure():
            opt.zero_grad()
            loss = loss_of(m, b)
            loss.backward()
            return loss

        return opt.step(closure).item()

    def evaluate():
        with evaluating(m):
            return {"train_mse": F.mse_loss(m(x), y).item()}

    return unscored(m, opt, tl, loss_of, evaluate, step=step)


@sound
def swa_evaluates_the_average():
    """The average of weights at a high rate is scored, with batch norm statistics made anew."""
    seed(77)
    train, held = halves(320, 12, 4, 1.3)
    tl, vl = loaders(train, held, 32, 50)
    m = nn.Sequential(nn.Linear(12, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))
    average = AveragedModel(m)
    opt = torch.optim.SGD(m.parameters(), 0.2, momentum=0.9)
    score = averaged(m, vl, hits)
    score_average = averaged(average, vl, hits)
    steps = 0

    def after():
        nonlocal steps
        steps += 1
        if steps > 20:
            average.update_parameters(m)

    def evaluate():
        if steps <= 20:
            return score()
        average.train()
        norm = average.module[1]
        norm.reset_running_stats()
        momentum, norm.momentum = norm.momentum, None
        with torch.no_grad():
            for x in train[0].split(64):
                average(x)
        norm.momentum = momentum
        return score_average()

    step = sup_step(m, opt, nn.CrossEntropyLoss(), after)
    return by_classes(m, opt, tl, vl, 4, step, evaluate=evaluate)


@sound
def truncated_bptt_on_a_stream():
    """A stream is cut into pieces that come in order; the state goes on from batch to batch,
    detached, and begins anew with the stream."""
    seed(78)
    V, B, T = 12, 16, 10

    def stream(s, pieces):
        ids = chain(B, pieces * T + 1, V, s)
        starts = range(0, pieces * T, T)
        return [
            {"x": ids[:, i : i + T], "y": ids[:, i + 1 : i + T + 1], "start": i == 0}
            for i in starts
        ]

    tl, vl = stream(1, 20), stream(2, 5)
    m = Recurrent(V, 24, 32)
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    carried = None

    def step(b):
        nonlocal carried
        m.train()
        out, h = m(b["x"], None if b["start"] else carried)
        loss = F.cross_entropy(out.transpose(1, 2), b["y"])
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
        carried = h.detach()
        return loss.item()

    def evaluate():
        h, total = None, 0.0
        with evaluating(m):
            for b in vl:
                out, h = m(b["x"], None if b["start"] else h)
                total += F.cross_entropy(out.transpose(1, 2), b["y"]).item()
        return {"val_loss": total / len(vl)}  # all pieces are of one size

    more = {"num_classes": V, "declared": {"max_grad_norm": 1.0}}
    return set_up(m, opt, tl, step, val_loader=vl, evaluate=evaluate, **more)


class Turns:
    """Batches of one task each, by turns."""

    def __init__(self, x, value, sign):
        self.x = x
        self.value = value
        self.sign = sign
        self.g = gen(0)

    def __len__(self):
        return len(self.x) // 16

    def __iter__(self):
        for turn, i in enumerate(torch.randperm(len(self.x), generator=self.g).split(16)):
            task = "value" if turn % 2 else "sign"
            yield {"task": task, "x": self.x[i], "y": getattr(self, task)[i]}


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = mlp(10, 48, 24)
        self.value = nn.Linear(24, 1)
        self.sign = nn.Linear(24, 2)

    def forward(self, x, task):
        h = torch.relu(self.body(x))
        return self.value(h).squeeze(1) if task == "value" else self.sign(h)


@sound
def alternating_heads():
    """Each batch is of one task, and the other head has no gradient in that step."""
    seed(79)

    def data(n):
        x = torch.randn(n, 10)
        return x, torch.sin(x[:, 0]) + x[:, 1], (x[:, 0] * x[:, 1] > 0).long()

    tl = Turns(*data(320))
    x, value, sign = data(150)
    m = TwoHeads()
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def loss_of(model, b):
        cost = F.mse_loss if b["task"] == "value" else F.cross_entropy
        return cost(model(b["x"], b["task"]), b["y"])

    def evaluate():
        with evaluating(m):
            mse = F.mse_loss(m(x, "value"), value).item()
            is_right = m(x, "sign").argmax(1) == sign
        return {"mse": mse, "sign_accuracy": is_right.float().mean().item()}

    return unscored(m, opt, tl, loss_of, evaluate)


@sound
def residuals_start_at_zero():
    """Each block's last layer starts at zero: the first gradients of those before it are 0."""
    seed(80)

    def data(n):
        x = torch.randn(n, 8)
        return {"x": x, "t": torch.stack([x[:, 0] * x[:, 1], x[:, 2].abs()], 1)}

    tl, vl = loaders(data(480), data(150), 32, 50)
    m = nn.Sequential(nn.Linear(8, 32), Branch(32), Branch(32), Branch(32), nn.Linear(32, 2))
    opt = torch.optim.AdamW(m.parameters(), 5e-3)

    def loss_of(model, b):
        return F.mse_loss(model(b["x"]), b["t"])

    return by_cost(m, opt, tl, vl, loss_of, costed(loss_of, "x", "mse"))
