"""The order of operations in a step: where zero_grad() belongs, and the effect of a swap."""

from __future__ import annotations

import inspect
import itertools
import math
import statistics
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course.claims.lab import Recorded, error_of, flat, interleaved, mlp, relative
from course.claims.registry import claim
from course.claims.settings import DIABETES, DIGITS, SPIRAL, Setting, conv
from course.claims.trial import Measured, weigh, weigh_settings


def _weights_after(order: tuple[str, ...], seed: int, steps: int = 4) -> Tensor:
    """Weights after some steps with the operations in this order; a missing loss is skipped."""
    inputs, targets = torch.randn(32, 4), torch.arange(32) % 3
    model = mlp(4, 16, 3, seed=seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss: Tensor | None = None
    for step in range(steps):
        rows = slice(8 * (step % 4), 8 * (step % 4) + 8)
        for operation in order:
            if operation == "zero":
                optimizer.zero_grad()
            elif operation == "forward":
                loss = F.cross_entropy(model(inputs[rows]), targets[rows])
            elif operation == "backward" and loss is not None:
                loss.backward()
            elif operation == "step":
                optimizer.step()
    return flat(model)


def _order_gap(order: tuple[str, ...], seed: int) -> float:
    """Relative difference of the weights from those with the lecture's order."""
    torch.manual_seed(seed)
    reference = _weights_after(("zero", "forward", "backward", "step"), seed)
    torch.manual_seed(seed)
    try:
        return relative(_weights_after(order, seed), reference)
    except RuntimeError:  # the weights changed between forward and backward
        return math.inf


@claim(
    "F27",
    title="Clearing before forward or after step() is the same",
    expected="holds",
    says="zero_grad() before forward and zero_grad() after step() lead to the same training.",
)
def places_of_zero_grad(seed: int) -> Measured:
    gaps = {
        "after step": _order_gap(("forward", "backward", "step", "zero"), seed),
        "between forward and backward": _order_gap(("forward", "zero", "backward", "step"), seed),
    }
    evidence = {"weights differ by": max(gaps.values()), "relative differences": gaps}
    return weigh("weights differ by", evidence, stated=max(gaps.values()) == 0)


@claim(
    "F28",
    title="zero_grad() after backward() makes batches accumulate",
    expected="does not hold",
    says="With zero_grad() after backward(), the gradients of batches accumulate.",
)
def zero_grad_after_backward(seed: int) -> Measured:
    model = mlp(4, 16, 3, seed=seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before, grads_left = flat(model), 0
    for _ in range(5):
        F.cross_entropy(model(torch.randn(8, 4)), torch.arange(8) % 3).backward()
        optimizer.zero_grad()
        grads_left += sum(p.grad is not None for p in model.parameters())
        optimizer.step()
    moved = (flat(model) - before).norm()
    evidence = {"weights moved in 5 steps by": moved, "gradients left at step()": grads_left}
    return weigh(
        "weights moved in 5 steps by",
        evidence,
        stated=grads_left > 0 and moved > 0,
        note="There it erases the gradient before step(): nothing accumulates, and nothing is "
        "learnt.",
    )


@claim(
    "F29",
    title="step() before backward() uses stale or missing gradients",
    expected="holds",
    says="If step() comes before backward(), gradients are missing at first and stale later.",
)
def step_before_backward(seed: int) -> Measured:
    batches = [torch.randn(8, 4, dtype=torch.float64) for _ in range(4)]
    targets = torch.arange(8) % 3
    model = mlp(4, 16, 3, seed=seed).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    positions, gradients = [flat(model)], []
    for batch in batches:
        optimizer.step()
        positions.append(flat(model))
        optimizer.zero_grad()
        F.cross_entropy(model(batch), targets).backward()
        gradients.append(flat(p.grad for p in model.parameters()))
    first = (positions[1] - positions[0]).norm().item()
    delayed = max(
        (positions[i + 2] - positions[i + 1] + 0.1 * gradients[i]).abs().max().item()
        for i in range(3)
    )
    evidence = {
        "first step moved the weights by": first,
        "later steps differ from the previous batch's gradient by": delayed,
        "step between forward and backward raises": error_of(
            _weights_after, ("forward", "step", "backward"), seed
        ),
    }
    stated = first == 0 and delayed < 1e-12
    return weigh("first step moved the weights by", evidence, stated=stated)


UNCLEARED = (
    SPIRAL,
    SPIRAL.but(optimizer="Adam", rate=0.01),
    DIGITS,
    DIABETES.but(rate=0.03),
)


@lru_cache
def _uncleared(seed: int, clear: bool = False) -> dict[Setting, list[Recorded]]:
    """Three runs per setting, without zero_grad or with it."""
    seeds = range(100 * seed, 100 * seed + 3)
    return {one: [one.train(index, clear=clear).run for index in seeds] for one in UNCLEARED}


def _late(run: Recorded) -> float:
    """Mean loss of the last fifty steps over the first loss; inf if it did not stay finite."""
    return statistics.fmean(run.losses[-50:]) / run.losses[0] if run.finite else math.inf


@claim(
    "F32",
    title="Without zero_grad the loss ends in NaN or explodes",
    expected="holds if",
    says="Without zero_grad, gradients pile up, and after a few hundred steps the loss is NaN or "
    "has exploded.",
    condition="if the loss is unbounded (squared error) or momentum adds to the pile; with "
    "cross-entropy and plain SGD or Adam, the loss silently stalls",
)
def missing_zero_grad(seed: int) -> Measured:
    late = {one: [_late(run) for run in runs] for one, runs in _uncleared(seed).items()}
    cleared = {one: [_late(run) for run in runs] for one, runs in _uncleared(seed, True).items()}
    squared = late[UNCLEARED[3]]
    growth = [
        run.norms[99] / run.norms[0]
        for runs in _uncleared(seed).values()
        for run in runs
        if len(run.norms) > 99
    ]
    names = {one: f"{one.data} {one.optimizer}" for one in late}
    evidence = {
        "squared error: runs that become non-finite, of 3": sum(map(math.isinf, squared)),
        "late loss / first, by setting": {
            one.data + " " + one.optimizer: late[one] for one in late
        },
        "with zero_grad": {names[one]: cleared[one] for one in late},
        "gradient norm at step 100 / step 1, median": statistics.median(growth),
    }
    return weigh_settings(
        "squared error: runs that become non-finite, of 3",
        evidence,
        {one: statistics.median(values) > 10 for one, values in late.items()},
        criterion="in most of 3 runs the loss ends non-finite or above 10 times the first loss",
        note="In every setting the norm grows and training fails; the settings differ only in how "
        "visibly.",
    )


@claim(
    "F74",
    title="Without zero_grad the loss oscillates, then explodes, while the norm grows linearly",
    expected="holds if",
    says="Without zero_grad the loss oscillates, then explodes, and the norm grows in proportion "
    "to the number of steps.",
    condition="if only the explosion is meant, and the loss is squared error or there is momentum; "
    "the norm grows linearly only if the gradients stay constant (N58), which they do "
    "not",
)
def experiment_3(seed: int) -> Measured:
    runs = _uncleared(seed)
    names = {one: f"{one.data} {one.optimizer}" for one in runs}
    late = {one: statistics.median(map(_late, found)) for one, found in runs.items()}
    growth = {
        names[one]: [run.norms[199] / run.norms[99] for run in found if len(run.norms) > 199]
        for one, found in runs.items()
    }
    evidence = {
        "settings in which the loss explodes, of 4": sum(value > 10 for value in late.values()),
        "late loss / first, median": {names[one]: late[one] for one in runs},
        "norm at step 200 / step 100, by run (2 would be linear)": growth,
    }
    return weigh_settings(
        "settings in which the loss explodes, of 4",
        evidence,
        {one: late[one] > 10 for one in runs},
        criterion="in the median run, the loss of the last 50 steps is above 10 times the first "
        "loss",
        note="On the chapter's own task, a spiral, the loss stalls at one to four times the first "
        "loss.",
    )


@claim(
    "F38",
    title="set_to_none has been the default since torch 2.0, and is a little faster and smaller",
    expected="holds",
    says="zero_grad() sets gradients to None by default, which is slightly faster than filling "
    "zeros and needs less memory.",
)
def set_to_none() -> Measured:
    default = inspect.signature(torch.optim.Optimizer.zero_grad).parameters["set_to_none"].default
    call, step, held = {}, {}, {}
    for name, model, batch in (
        ("MLP of 20 layers", mlp(*[64] * 21), torch.randn(16, 64)),
        ("small conv net", conv(), torch.randn(64, 64)),
    ):
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

        pairs = [(parameter, torch.ones_like(parameter)) for parameter in model.parameters()]

        def clear(to_none: bool, pairs=pairs, optimizer=optimizer) -> None:
            for parameter, grad in pairs:
                parameter.grad = grad
            optimizer.zero_grad(set_to_none=to_none)

        def whole(to_none: bool, model=model, optimizer=optimizer, batch=batch) -> None:
            optimizer.zero_grad(set_to_none=to_none)
            model(batch).square().mean().backward()
            optimizer.step()

        call[name] = interleaved(lambda: clear(False), lambda: clear(True)).median
        step[name] = interleaved(lambda: whole(False), lambda: whole(True)).median
        whole(True)
        optimizer.zero_grad(set_to_none=False)
        kept = sum(p.grad.nbytes for p in model.parameters())
        optimizer.zero_grad()
        kept_none = sum(p.grad.nbytes for p in model.parameters() if p.grad is not None)
        held[name] = default is True and call[name] > 1.1 and kept > kept_none == 0
    evidence = {
        "time of the call, filling zeros / setting None": call["MLP of 20 layers"],
        "the call": call,
        "a whole step": step,
        "bytes of gradients kept between steps, zeros and None": [kept, kept_none],
        "default of set_to_none": default,
    }
    return weigh_settings(
        "time of the call, filling zeros / setting None",
        evidence,
        held,
        criterion="it is the default, filling zeros takes over 1.1 times as long, and no bytes "
        "stay",
        note='For a whole step the gain is a few percent: "slightly", as the source says.',
    )


def _frozen_moves(optimizer_type, *, zeros: bool, leftover: bool = False, **options) -> float:
    """How far a layer moves after it is frozen, if the optimizer was built before."""
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    optimizer = optimizer_type(model.parameters(), lr=0.1, **options)

    def step(*, clear: bool = True) -> None:
        if clear:
            optimizer.zero_grad(set_to_none=not zeros)
        model(torch.ones(4, 3)).square().mean().backward()
        optimizer.step()

    step()
    if not leftover:
        optimizer.zero_grad(set_to_none=not zeros)
    model[0].requires_grad_(False)
    before = flat(model[0])
    for _ in range(5):
        if leftover:  # only the trained parameters are cleared
            model[1].zero_grad()
        step(clear=not leftover)
    return (flat(model[0]) - before).norm().item()


@claim(
    "F65",
    title="Layers frozen after the optimizer is built are still updated",
    expected="holds if",
    says="Layers that are frozen after the optimizer is built are still updated.",
    condition="if their .grad is zero instead of None and there is decay, momentum or Adam, or if "
    "an old .grad was left in place",
)
def frozen_after_optimizer() -> Measured:
    sgd, adam = torch.optim.SGD, torch.optim.Adam
    default = {
        "SGD": _frozen_moves(sgd, zeros=False),
        "SGD with decay": _frozen_moves(sgd, zeros=False, weight_decay=0.1),
        "SGD with momentum": _frozen_moves(sgd, zeros=False, momentum=0.9),
        "Adam": _frozen_moves(adam, zeros=False),
    }
    with_zeros = {
        "SGD with decay": _frozen_moves(sgd, zeros=True, weight_decay=0.1),
        "SGD with momentum": _frozen_moves(sgd, zeros=True, momentum=0.9),
        "Adam": _frozen_moves(adam, zeros=True),
        "SGD, old .grad left": _frozen_moves(sgd, zeros=False, leftover=True),
    }
    evidence = {
        "moved with default clearing, at most": max(default.values()),
        "moved with zeros or an old .grad": with_zeros,
    }
    return weigh(
        "moved with default clearing, at most",
        evidence,
        stated=min(default.values()) > 0,
        conditioned=min(with_zeros.values()) > 0,
    )


@claim(
    "F82",
    title="Frozen parameters never update",
    expected="holds if",
    says="Parameters with requires_grad=False never change.",
    condition="if their .grad is None when the optimizer steps, which zero_grad() ensures",
)
def frozen_never_update() -> Measured:
    cleared = _frozen_moves(torch.optim.SGD, zeros=False, weight_decay=0.1)
    leftover = _frozen_moves(torch.optim.SGD, zeros=False, leftover=True)
    evidence = {
        "moved with an old .grad": leftover,
        "moved with default clearing": cleared,
    }
    return weigh(
        "moved with an old .grad",
        evidence,
        stated=cleared == leftover == 0,
        conditioned=cleared == 0,
    )


@claim(
    "F132",
    title="Swap two of the operations, and training breaks",
    expected="holds if",
    says="The operations of a step have one fixed order; swap two, and training breaks.",
    condition="if zero_grad() is left out, which has three legal places; the other three must be "
    "in order",
)
def fixed_order(seed: int) -> Measured:
    operations = ("zero", "forward", "backward", "step")
    legal = [
        order for order in itertools.permutations(operations) if _order_gap(order, seed) < 1e-6
    ]
    without_zero = {tuple(op for op in order if op != "zero") for order in legal}
    evidence = {
        "orders of 24 that give the same weights": len(legal),
        "legal": [" ".join(order) for order in legal],
    }
    return weigh(
        "orders of 24 that give the same weights",
        evidence,
        stated=len(legal) == 1,
        conditioned=without_zero == {("forward", "backward", "step")} and len(legal) == 3,
    )
