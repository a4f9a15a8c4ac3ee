"""Ten more of the twenty-seventh set, most of which have a loop of their own."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.twenty_second.kit import corridor
from tests.debug.faulty.twenty_seventh.kit import (
    Bagged,
    BarNet,
    Flat,
    Pieces,
    Streamed,
    averaged,
    bars,
    blobs,
    by_classes,
    by_cost,
    evaluating,
    feed,
    fit,
    gen,
    halves,
    house,
    loaders,
    mlp,
    numbers,
    plain_step,
    right,
    ring_words,
    seed,
    set_up,
    sup_step,
)
from tests.debug.sound.programs import sound


@sound
def closure_called_many_times_a_step():
    """LBFGS on all rows at once: one step calls the loss up to five times, and the loader has one
    batch."""
    seed(81)
    x, y = house(200, 811)
    tl, vl = loaders((x, y), house(150, 812), 200, 150)
    m = Flat(6, 12, 1)
    opt = torch.optim.LBFGS(m.parameters(), lr=0.5, max_iter=4, max_eval=5, history_size=8)
    crit = nn.MSELoss()

    def step(b):
        m.train()

        def closure():
            opt.zero_grad()
            loss = crit(m(b[0]), b[1])
            loss.backward()
            return loss

        return opt.step(closure).item()

    return numbers(m, opt, tl, vl, step, crit)


@sound
def first_the_head_and_then_the_body():
    """The body of a network from another task is frozen for 40 steps and trained with the head from
    then on; the optimizer has both from the start."""
    seed(82)
    x, y = blobs(300, 12, 5, 821)
    body = mlp(12, 48, 24)
    first = nn.Sequential(body, nn.ReLU(), nn.Linear(24, 5))
    fit(first, torch.optim.Adam(first.parameters(), 1e-2), nn.CrossEntropyLoss(), x, y, 60)
    sets = [(a.flip(1), c) for a, c in halves(320, 12, 5, 0.9)]
    tl, vl = loaders(*sets, 32, 75)
    head = nn.Linear(24, 5)
    m = nn.Sequential(body, nn.ReLU(), head)
    body.requires_grad_(False)
    opt = torch.optim.Adam(
        [{"params": body.parameters(), "lr": 1e-3}, {"params": head.parameters(), "lr": 1e-2}]
    )
    crit = nn.CrossEntropyLoss()
    done = {"steps": 0}

    def step(b):
        m.train()
        if done["steps"] == 40:
            body.requires_grad_(True)
        done["steps"] += 1
        opt.zero_grad()
        loss = crit(m(b[0]), b[1])
        loss.backward()
        opt.step()
        return loss.item()

    return by_classes(m, opt, tl, vl, 5, step, crit)


class NextWord(nn.Module):
    def __init__(self, V):
        super().__init__()
        self.words = nn.Embedding(V, 24)
        self.out = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, V))

    def forward(self, ids):
        return self.out(self.words(ids))


@sound
def parts_weighed_by_their_words():
    """A batch goes through in three parts; each part's summed loss is divided by the words of the
    whole batch, so short and long lines count by their words."""
    seed(83)
    V, T = 16, 12

    def lines(n, s):
        g = gen(s)
        length = torch.randint(3, T + 1, (n,), generator=g)
        ids = ring_words(n, T, V - 1, s, 0.7) + 1
        return (ids * (torch.arange(T) < length[:, None]),)

    tl, vl = loaders(lines(360, 831), lines(120, 832), 36, 60)
    m = NextWord(V)
    opt = torch.optim.Adam(m.parameters(), 1e-2)

    def summed(ids):
        out = m(ids[:, :-1]).flatten(0, 1)
        return F.cross_entropy(out, ids[:, 1:].flatten(), ignore_index=0, reduction="sum")

    def step(b):
        m.train()
        opt.zero_grad()
        words = (b[0][:, 1:] != 0).sum()
        total = 0.0
        for part in b[0].split(12):
            loss = summed(part) / words
            loss.backward()
            total += loss.item()
        opt.step()
        return total

    def sums_of(model, b):
        return {"val_loss": (summed(b[0]), (b[0][:, 1:] != 0).sum())}

    return set_up(
        m, opt, tl, step, val_loader=vl, evaluate=averaged(m, vl, sums_of), num_classes=V
    )  # fmt: skip


@sound
def rate_that_falls_and_starts_anew():
    """The rate falls along a cosine and jumps back up every 25 batches, on purpose."""
    seed(84)
    tl, vl = loaders(bars(256, 841), bars(128, 842), 32, 64)
    m = BarNet()
    opt = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)
    waves = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=25, eta_min=1e-3)
    crit = nn.CrossEntropyLoss()
    step = sup_step(m, opt, crit, waves.step)
    return by_classes(
        m, opt, tl, vl, 4, step, crit, scheduler=waves, declared={"scheduler_unit": "batch"}
    )


@sound
def state_that_goes_on_along_its_streams():
    """Pieces of long streams come in order, and the state at the end of one, cut off, is where the
    next begins; at the start of each pass it is nought."""
    seed(85)
    V = 10

    def streams(n, T, s):
        g = gen(s)
        x = torch.randint(0, V, (n, T), generator=g)
        for t in range(3, T):
            keep = torch.rand(n, generator=g) < 0.8
            x[:, t] = torch.where(keep, x[:, t - 2], x[:, t])
        return x

    tl, vl = Pieces(streams(16, 401, 851), 8), Pieces(streams(16, 161, 852), 8)
    m = Streamed(V)
    opt = torch.optim.Adam(m.parameters(), 1e-2)

    def step_from(state):
        def step(b):
            m.train()
            out, after = m(b[0], state["h"])
            state["h"] = after.detach()
            loss = F.cross_entropy(out.flatten(0, 1), b[1].flatten())
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(m.parameters(), 1.0)
            opt.step()
            return loss.item()

        return step

    state = {"h": None, "at": None}
    step = step_from(state)

    def train(n):
        losses = []
        while len(losses) < n:
            piece = next(state["at"], None) if state["at"] else None
            if piece is None:
                state["at"] = iter(tl)
                state["h"] = None
                continue
            losses.append(step(piece))
        return losses

    def evaluate():
        total = count = 0
        h = None
        with evaluating(m):
            for x, y in vl:
                out, h = m(x, h)
                total += F.cross_entropy(out.flatten(0, 1), y.flatten(), reduction="sum").item()
                count += y.numel()
        return {"val_loss": total / count}

    return set_up(
        m, opt, tl, step, val_loader=vl, evaluate=evaluate, num_classes=V,
        declared={"max_grad_norm": 1.0},
    ) | {"train": train}  # fmt: skip


@sound
def each_believes_what_is_easy_for_the_other():
    """Two networks on labels of which a third is wrong: each learns from the two thirds of a batch
    that cost the other least."""
    seed(86)
    (x, y), held = halves(480, 12, 4, 1.0)
    g = gen(861)
    is_wrong = torch.rand(480, generator=g) < 0.33
    y = torch.where(is_wrong, torch.randint(0, 4, (480,), generator=g), y)
    tl, vl = loaders((x, y), held, 48, 75)
    m = nn.ModuleList([mlp(12, 48, 4), mlp(12, 48, 4)])
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def step(b):
        m.train()
        costs = [F.cross_entropy(net(b[0]), b[1], reduction="none") for net in m]
        n = 2 * len(b[0]) // 3
        easy = [cost.detach().topk(n, largest=False).indices for cost in costs]
        loss = costs[0][easy[1]].mean() + costs[1][easy[0]].mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()

    def sums_of(model, b):
        return right(sum(net(b[0]).softmax(1) for net in model), b[1])

    return set_up(
        m, opt, tl, step, val_loader=vl, evaluate=averaged(m, vl, sums_of), num_classes=4
    )  # fmt: skip


class Doubting(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp(6, 48, 2)
        self.doubt = nn.Parameter(torch.zeros(2))

    def forward(self, x):
        return self.net(x)


@sound
def tasks_weighed_by_a_learned_doubt():
    """Two tasks, each weighed by a learned doubt whose logarithm is added: as a task gets easy, the
    loss falls below 0."""
    seed(87)

    def rows(n, s):
        x, y = house(n, s, 0.05)
        return x, torch.stack([y, 0.1 * x[:, 0] - 0.05 * x[:, 5]], 1)

    tl, vl = loaders(rows(320, 871), rows(150, 872), 32, 75)
    m = Doubting()
    opt = torch.optim.Adam(m.parameters(), 1e-2)

    def loss_of(model, b):
        squares = ((model(b[0]) - b[1]) ** 2).mean(0)
        return (0.5 * squares * (-model.doubt).exp() + 0.5 * model.doubt).sum()

    def sums_of(model, b):
        squares = ((model(b[0]) - b[1]) ** 2).sum(0)
        return {"bent_mse": (squares[0], len(b[0])), "straight_mse": (squares[1], len(b[0]))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


@sound
def direction_told_on_a_circle():
    """Angles from -pi to pi are told, and what is wrong by a whole turn is right: the loss is one
    less the cosine of the difference."""
    seed(88)

    def rows(n, s):
        g = gen(s)
        x = torch.randn(n, 5, generator=g)
        W = torch.randn(5, 2, generator=gen(881))
        p = x @ W + 0.1 * torch.randn(n, 2, generator=g)
        return x, torch.atan2(p[:, 1], p[:, 0])

    tl, vl = loaders(rows(400, 882), rows(200, 883), 32, 100)
    m = mlp(5, 48, 2)
    opt = torch.optim.Adam(m.parameters(), 1e-2)

    def off(model, b):
        out = model(b[0])
        return 1 - torch.cos(torch.atan2(out[:, 1], out[:, 0]) - b[1])

    def loss_of(model, b):
        return off(model, b).mean()

    def sums_of(model, b):
        return {"off": (off(model, b).sum(), len(b[1]))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


@sound
def bag_told_by_its_strongest_row():
    """A bag of eight rows is marked if any of them is of a kind; only the strongest row of each has
    a gradient."""
    seed(89)

    def bags(n, s):
        g = gen(s)
        x = torch.randn(n, 8, 6, generator=g)
        y = torch.randint(0, 2, (n,), generator=g)
        at = torch.randint(0, 8, (n,), generator=g)
        x[torch.arange(n), at] += 2.5 * y[:, None] * torch.tensor([1.0, -1, 1, 0, 0, 0])
        return x, y.float()

    tl, vl = loaders(bags(320, 891), bags(200, 892), 32, 100)
    m = Bagged()
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    crit = nn.BCEWithLogitsLoss()

    def sums_of(model, b):
        out = model(b[0])
        return {
            "val_loss": (F.binary_cross_entropy_with_logits(out, b[1], reduction="sum"), len(out)),
            "accuracy": (((out > 0) == (b[1] > 0.5)).sum(), len(out)),
        }

    return numbers(m, opt, tl, vl, crit=crit, evaluate=averaged(m, vl, sums_of), task="binary")


@sound
def worth_learned_against_a_slow_copy():
    """Double Q-learning from stored moves: the best next move is picked by the network and priced
    by a copy that follows slowly; ends have no price behind them."""
    seed(90)
    tl = feed(corridor(640, 901), 64)
    held = corridor(200, 902)
    m = mlp(6, 32, 2)
    slow = copy.deepcopy(m).requires_grad_(False)
    opt = torch.optim.Adam(m.parameters(), 1e-2)

    def loss_of(model, b):
        with torch.no_grad():
            best = model(b["next_obs"]).argmax(1, keepdim=True)
            behind = slow(b["next_obs"]).gather(1, best)[:, 0]
            target = b["reward"] + 0.9 * (1 - b["done"]) * behind
        told = model(b["obs"]).gather(1, b["action"][:, None])[:, 0]
        return F.smooth_l1_loss(told, target)

    base = plain_step(m, opt, loss_of)

    def step(b):
        loss = base(b)
        with torch.no_grad():
            for s, p in zip(slow.parameters(), m.parameters(), strict=True):
                s.lerp_(p, 0.05)
        return loss

    def evaluate():
        with evaluating(m):
            worth = m(torch.eye(6))
        true = 0.9 ** torch.arange(5.0, -1, -1)
        return {
            "goes_right": (worth[held["obs"].argmax(1)].argmax(1) == 1).float().mean().item(),
            "off": (worth[:, 1] - true).abs().mean().item(),
        }

    return set_up(m, opt, tl, step, loss_of=loss_of, evaluate=evaluate, target=slow)
