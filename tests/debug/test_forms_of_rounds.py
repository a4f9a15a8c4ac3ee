"""What scores, schedules and updates by hand carry from one round to the next."""

import pytest
import torch

from course.debug.probes import rescored
from course.debug.probes import schedule as schedules
from tests.debug.faulty.eighth.kit import gen
from tests.debug.faulty.twelfth.kit import loader, mlp, pack
from tests.debug.told import said


def cases(**told):
    """Each case with whether it is a fault."""
    return pytest.mark.parametrize(
        ("kind", "is_told"), [(k, told == "faulty") for told, ks in told.items() for k in ks]
    )


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
