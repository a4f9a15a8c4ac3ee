"""What scores, schedules and updates by hand carry from one round to the next."""

import copy

import torch

from course.debug.probes import frozen, modes, rescored, stepping
from course.debug.probes import schedule as schedules
from course.debug.relations import rebatched
from tests.debug.faulty.eighth.kit import gen
from tests.debug.faulty.twelfth.kit import loader, mlp, pack
from tests.debug.told import cases, said


def labelled(n=160, k=3, seed=1):
    g = gen(seed)
    x = torch.randn(n, 10, generator=g)
    return x, (x @ torch.randn(10, k, generator=g)).argmax(1)


def model_and_optimizer(k=3):
    torch.manual_seed(0)
    net = mlp(10, 16, k)
    return net, torch.optim.Adam(net.parameters(), 3e-3)


@cases(
    faulty=["mean", "recall", "macro f1"],
    sound=["reset", "half smoothed", "smoothed", "best", "mean of the last two", "drawn"],
)
def test_sums_of_a_score_begin_at_zero_whatever_is_made_of_them(kind, is_told):
    net, opt = model_and_optimizer()
    (x, y), own = labelled(), gen(5)
    sums, before = torch.zeros(3, 3), []

    def evaluate():
        net.eval()
        if not is_told:
            sums.zero_()
        with torch.no_grad():
            p = net(x).argmax(1)
        if kind == "drawn":
            p = p.where(torch.rand(len(p), generator=own) < 0.9, 0)
        net.train()
        for row, c in enumerate(range(3)):
            sums[row] += torch.stack([((p == c) & (y == c)).sum(), (p == c).sum(), (y == c).sum()])
        hits, given, real = sums.unbind(1)
        value = float(hits.sum() / given.sum())
        if kind == "recall":
            value = float(hits[0] / given[0].clamp_min(1))
        if "f1" in kind:
            value = float((2 * hits / (given + real).clamp_min(1)).mean())
        before.append(value)
        if "smoothed" in kind:
            share = 0.5 if "half" in kind else 0.1
            before[-1] = value = share * value + (1 - share) * before[-2 if before[1:] else -1]
        if kind == "mean of the last two":
            value = sum(before[-2:]) / len(before[-2:])
        return {"score": max(before) if kind == "best" else value}

    setup = pack(net, opt, loader(x, y, bs=20), loss_fn=torch.nn.CrossEntropyLoss(),
                 evaluate=evaluate)  # fmt: skip
    assert bool(said(rescored.from_zero, setup)) == is_told


@cases(
    faulty=["former", "former, each epoch"],
    sound=["same", "wrapped", "copied from a stand-in", "copied from the former", "both handed in",
           "both step"],
)  # fmt: skip
def test_a_scheduler_turns_the_rate_of_the_optimizer_that_steps(kind, is_told):
    torch.manual_seed(0)
    net, cost = mlp(10, 16, 3), torch.nn.CrossEntropyLoss()
    opt = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    other = torch.optim.SGD(net[2].parameters(), 0.1)
    if "stand-in" in kind:
        other = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], 0.1)
    held = opt if kind in ("same", "wrapped") else other
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(held, 100)

    class Wrapped:
        """Hands all on to an optimizer inside, as libraries do that place and scale."""

        def __getattr__(self, name):
            return getattr(opt, name)

    def step(batch):
        opt.zero_grad()
        loss = cost(net(batch[0]), batch[1])
        loss.backward()
        opt.step()
        if kind == "both step":
            other.step()
        if "each epoch" not in kind:
            schedule.step()
        if "copied" in kind:
            opt.param_groups[0]["lr"] = schedule.get_last_lr()[0]
        return loss.item()

    given = {"wrapped": Wrapped(), "both handed in": [opt, other]}.get(kind, opt)
    setup = pack(net, given, loader(*labelled(), bs=20), loss_fn=cost, step=step,
                 scheduler=schedule)  # fmt: skip
    assert bool(said(schedules.of_another, setup)) == is_told


@cases(
    faulty=["never", "old gradient", "old gradient, clipped"],
    sound=["strategy", "strategy without an optimizer", "autograd.grad"],
)
def test_an_update_by_hand_needs_no_backward(kind, is_told):
    net, opt = model_and_optimizer()
    net.requires_grad_(kind == "autograd.grad")
    weights, own = list(net.parameters()), gen(3)
    if "old" in kind:
        for p in weights:
            p.grad = torch.randn(p.shape, generator=own)

    def cost(batch):
        return torch.nn.functional.cross_entropy(net(batch[0]), batch[1])

    @torch.no_grad()
    def slope(batch):
        found = [torch.zeros_like(p) for p in weights]
        for _ in range(4):
            noise = [torch.randn(p.shape, generator=own) for p in weights]
            sides = []
            for by in (0.05, -0.1, 0.05):  # ahead, behind, and where it was
                torch._foreach_add_(weights, noise, alpha=by)
                sides.append(cost(batch).item())
            torch._foreach_add_(found, noise, alpha=(sides[0] - sides[1]) / 0.4)
        return found

    def step(batch):
        if "strategy" in kind:
            found = slope(batch)
            if "without" in kind:
                torch._foreach_sub_(weights, found, alpha=0.1)
                return cost(batch).item()
            for p, g in zip(weights, found, strict=True):
                p.grad = g
        elif kind == "autograd.grad":
            found = torch.autograd.grad(cost(batch), weights)
            for p, g in zip(weights, found, strict=True):
                p.grad = g
        elif "clipped" in kind:
            torch.nn.utils.clip_grad_norm_(weights, 0.1)
        opt.step()
        return cost(batch).item()

    setup = pack(net, opt, loader(*labelled(), bs=20), step=step)
    found = said(stepping.stepping, setup) + said(frozen.frozen_drift, setup)
    assert bool(found) == is_told, found


@cases(
    faulty=["the model", "a copy on what it scores", "a copy on all"],
    sound=["a copy on a support", "a probe", "each fold", "no step"],
)
def test_what_evaluate_trains_is_scored_on_other_rows(kind, is_told):
    net, opt = model_and_optimizer()
    (x, y), cost = labelled(), torch.nn.CrossEntropyLoss()

    def trained(net, x, y):
        fast = torch.optim.SGD(net.parameters(), 0.1)
        for _ in range(3 if kind != "no step" else 0):
            fast.zero_grad()
            cost(net(x), y).backward()
            fast.step()
        return net

    def scored(net, x, y):
        with torch.no_grad():
            return float((net(x).argmax(1) == y).float().mean())

    def evaluate():
        a, b = slice(None, 80), slice(80, None)
        if kind == "the model":
            return {"score": scored(trained(net, x, y), x, y)}
        if kind == "a probe":
            with torch.no_grad():
                z = net[:-1](x)
            return {"score": scored(trained(torch.nn.Linear(16, 3), z[a], y[a]), z[b], y[b])}
        ways = {"a copy on all": (slice(None), b), "a copy on what it scores": (b, b)}
        given, asked = ways.get(kind, (a, b))
        found = scored(trained(copy.deepcopy(net), x[given], y[given]), x[asked], y[asked])
        if kind == "each fold":
            found += scored(trained(copy.deepcopy(net), x[b], y[b]), x[a], y[a])
        return {"score": found}

    setup = pack(net, opt, loader(x, y, bs=20), loss_fn=cost, evaluate=evaluate)
    assert bool(said(modes.changes_model, setup)) == is_told


def test_a_score_of_tasks_that_come_one_by_one_is_not_asked_of_several():
    net, opt = model_and_optimizer(1)
    x, y = torch.randn(12, 8, 10), torch.randn(12, 8, 1)
    va = loader(x, y, bs=1, shuffle=False)

    def evaluate():  # as loaders of tasks are read: the first row is the task
        with torch.no_grad():
            costs = [(net(a[0]) - b[0]).square().mean().item() for a, b in va]
        return {"mse": sum(costs) / len(costs)}

    setup = pack(net, opt, loader(x, y, bs=4), loss_fn=torch.nn.MSELoss(), val_loader=va,
                 evaluate=evaluate)  # fmt: skip
    assert said(rebatched.in_one_batch, setup) == []
