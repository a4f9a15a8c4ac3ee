"""Closed forms against torch's schedulers, and wrong pairings refused with the arithmetic."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.optim import SGD, lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

from course.engine import EngineError, Trainer, one_cycle, plateau, step_decay, warmup_cosine
from course.engine.schedules import (
    WarmupCosine,
    one_cycle_factor,
    step_factor,
    warmup_cosine_factor,
)


def optimizer(lr: float = 1.0) -> SGD:
    return SGD([nn.Parameter(torch.zeros(1))], lr=lr)


def trace(scheduler, steps: int) -> list[float]:
    """Learning rate at each of the steps 0 .. steps - 1."""
    found = []
    for _ in range(steps):
        found.append(scheduler.optimizer.param_groups[0]["lr"])
        scheduler.optimizer.step()
        scheduler.step()
    return found


def test_cosine_without_warmup_is_torchs():
    """N26."""
    ours = trace(warmup_cosine(optimizer(1e-3), warmup=0, total=100), 100)
    torchs = trace(lr_scheduler.CosineAnnealingLR(optimizer(1e-3), T_max=100), 100)
    assert ours == pytest.approx(torchs, abs=1e-15)
    assert ours[25] == pytest.approx(8.535533905932737e-4, abs=1e-18)


def test_the_factors_are_what_the_schedulers_do():
    steps = 60
    form = [warmup_cosine_factor(t, warmup=10, total=60, floor=0.1) for t in range(steps)]
    assert trace(WarmupCosine(optimizer(), warmup=10, total=60, floor=0.1), steps) == form
    form = [step_factor(t, every=7, gamma=0.5) for t in range(steps)]
    assert trace(step_decay(optimizer(), every=7, gamma=0.5), steps) == pytest.approx(form)
    form = [one_cycle_factor(t, total=60) for t in range(steps)]
    assert trace(one_cycle(optimizer(), max_lr=1.0, total=60), steps) == pytest.approx(form)


def test_warmup_wastes_no_step_and_cosine_does_not_climb_again():
    """N28: the slide's form starts at 0, so its first step moves nothing. N27: torch's climbs."""
    factor = [warmup_cosine_factor(t, warmup=100, total=10_000) for t in (0, 49, 99, 100, 5050)]
    assert factor == pytest.approx([0.01, 0.5, 1.0, 1.0, 0.5])
    assert warmup_cosine_factor(20_000, warmup=100, total=10_000) == 0.0


def test_plateau_waits_for_patience():
    """N54."""
    scheduler = plateau(optimizer(), patience=2)
    found = []
    for loss in (1, 0.9, 0.9, 0.9, 0.9, 0.9):
        scheduler.step(loss)
        found.append(scheduler.optimizer.param_groups[0]["lr"])
    assert found == pytest.approx([1, 1, 1, 1, 0.1, 0.1])


def fit(make, schedule_per, *, accum_steps=1, **plan):
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    moves = SGD(model.parameters(), lr=1.0)
    loader = DataLoader(TensorDataset(torch.randn(20, 3), torch.randint(0, 2, (20,))), 2)
    trainer = Trainer(
        model,
        nn.CrossEntropyLoss(),
        moves,
        scheduler=make(moves),
        schedule_per=schedule_per,
        accum_steps=accum_steps,
        device="cpu",
    )
    return trainer.fit(loader, loader, **plan)


def test_an_update_schedule_counts_updates_never_micro_batches():
    """10 batches in windows of 4 are 3 updates an epoch: 6 in all."""
    history = fit(lambda o: warmup_cosine(o, warmup=0, total=6), "update", accum_steps=4, epochs=2)
    expected = [warmup_cosine_factor(t, warmup=0, total=6) for t in (3, 6)]
    assert history.column("lr") == pytest.approx(expected, abs=1e-15)


def test_an_epoch_schedule_counts_epochs():
    history = fit(lambda o: step_decay(o, every=1, gamma=0.5), "epoch", epochs=3)
    assert history.column("lr") == [1.0, 0.5, 0.25]


def test_a_plateau_schedule_looks_at_the_monitored_number():
    history = fit(lambda o: plateau(o, patience=0, mode="max"), "metric", epochs=4, mode="max")
    expected, best, lr = [], -math.inf, 1.0
    for line in history:  # plateau in max mode over val_loss: any epoch without a higher loss cuts
        expected.append(lr)
        lr, best = (lr, line["val_loss"]) if line["val_loss"] > best * 1.0001 else (lr * 0.1, best)
    assert history.column("lr") == pytest.approx(expected)


@pytest.mark.parametrize(
    ("make", "per", "plan", "message"),
    [
        (lambda o: one_cycle(o, max_lr=1, total=30), "epoch", {"epochs": 3},
         r"OneCycleLR is 30 steps long.*steps it 3 times \(3 epochs × 10 batches = 30 updates\)"
         r".*use schedule_per='update'"),
        (lambda o: warmup_cosine(o, warmup=1, total=3), "update", {"epochs": 3},
         r"3 steps long.*30 times.*use schedule_per='epoch'"),
        (lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=100), "update", {"epochs": 3},
         r"100 steps long.*30 times.*Build it with 30 steps"),
        (lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=100), "update", {"max_updates": 7},
         r"steps it 7 times \(max_updates = 7\)"),
        (lambda o: lr_scheduler.SequentialLR(
            o, [lr_scheduler.LinearLR(o), lr_scheduler.CosineAnnealingLR(o, T_max=20)], [5]),
         "update", {"epochs": 3}, "25 steps long"),
        (plateau, "epoch", {"epochs": 1}, "schedule_per='metric'"),
        (lambda o: step_decay(o, every=1), "metric", {"epochs": 1}, "cannot use a metric"),
        (lambda o: step_decay(o, every=1), "batch", {"epochs": 1}, "epoch, update, metric"),
    ],
)  # fmt: skip
def test_a_wrong_pairing_is_refused_with_the_arithmetic(make, per, plan, message):
    with pytest.raises(EngineError, match=message):
        fit(make, per, **plan)


def test_accumulation_is_in_the_arithmetic():
    with pytest.raises(EngineError, match=r"2 epochs × ceil\(10 batches / 4\) = 6 updates"):
        fit(lambda o: one_cycle(o, max_lr=1, total=20), "update", accum_steps=4, epochs=2)


@pytest.mark.parametrize("is_chained", [False, True])
def test_a_used_up_scheduler_is_refused(is_chained):
    model = nn.Linear(3, 2)
    moves = SGD(model.parameters(), lr=0.1)
    loader = [(torch.randn(2, 3), torch.tensor([0, 1]))]
    scheduler = warmup_cosine(moves, warmup=0, total=2)
    if is_chained:
        scheduler = lr_scheduler.ChainedScheduler([lr_scheduler.CosineAnnealingLR(moves, 2)])
    trainer = Trainer(
        model, nn.CrossEntropyLoss(), moves, scheduler=scheduler, schedule_per="epoch", device="cpu"
    )
    trainer.fit(loader, epochs=2)
    with pytest.raises(EngineError, match="a second fit needs a new scheduler"):
        trainer.fit(loader, epochs=2)


@pytest.mark.parametrize("make", [
    lambda o: step_decay(o, every=1), plateau,
    lambda o: lr_scheduler.SequentialLR(o, [lr_scheduler.LinearLR(o), step_decay(o, every=1)], [2]),
], ids=["step", "plateau", "sequence"])  # fmt: skip
def test_a_scheduler_of_another_optimizer_is_refused(make):
    model = nn.Linear(3, 2)
    moves, other = (SGD(model.parameters(), lr=0.1) for _ in range(2))
    per = "metric" if make is plateau else "epoch"
    with pytest.raises(EngineError, match="built with another SGD than the one that trains"):
        Trainer(model, nn.CrossEntropyLoss(), moves, scheduler=make(other), schedule_per=per)
    Trainer(model, nn.CrossEntropyLoss(), moves, scheduler=make(moves), schedule_per=per)


def test_a_scheduler_may_be_built_with_what_a_wrapper_wraps():
    class Wrapper:
        def __init__(self, inner):
            self.inner, self.step, self.zero_grad = inner, inner.step, inner.zero_grad
            self.state_dict, self.state = inner.state_dict, inner.state

        @property
        def param_groups(self):
            return self.inner.param_groups

    model = nn.Linear(3, 2)
    moves = SGD(model.parameters(), lr=0.1)
    scheduler = step_decay(moves, every=1)
    Trainer(model, nn.CrossEntropyLoss(), Wrapper(moves), scheduler=scheduler, device="cpu")


def test_warmup_must_end():
    with pytest.raises(EngineError, match="must end before"):
        warmup_cosine(optimizer(), warmup=10, total=10)
