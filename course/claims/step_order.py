"""The order of one step: where clearing belongs, and what a swap does."""

from __future__ import annotations

import inspect
import itertools
import math
import statistics

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course.claims.lab import (
    Run,
    accuracy,
    error_of,
    fit,
    flat,
    interleaved,
    mlp,
    relative,
    spirals,
)
from course.claims.registry import Measured, claim, weigh


def _weights_after(order: tuple[str, ...], seed: int, steps: int = 4) -> Tensor:
    """Weights after some steps whose operations run in this order; a missing loss is skipped."""
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
    """Relative difference of the weights from those of the lecture's order."""
    torch.manual_seed(seed)
    reference = _weights_after(("zero", "forward", "backward", "step"), seed)
    torch.manual_seed(seed)
    try:
        return relative(_weights_after(order, seed), reference)
    except RuntimeError:  # the weights changed between forward and backward
        return math.inf


@claim(
    "F27",
    title="Clearing before forward or after step is the same",
    source="Training-loop chapter, c3",
    expected="holds",
    says="zero_grad() before forward and zero_grad() after step() give the same training.",
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
    title="zero_grad after backward makes batches accumulate",
    source="Annotated-loop essay, table of failures",
    expected="does not hold",
    says="With zero_grad() placed after backward() the gradients of batches accumulate.",
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
        note="Before step() it erases the gradient: nothing accumulates, and nothing is learnt.",
    )


@claim(
    "F29",
    title="step before backward uses stale or missing gradients",
    source="Engineering module, §4",
    expected="holds",
    says="step() before backward() uses missing gradients first and stale ones later.",
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


def _without_clearing(seed: int) -> tuple[list[Run], list[float], list[Run], list[float]]:
    """Six runs of 300 steps without zero_grad and six with it, SGD 0.3: runs, accuracies."""
    inputs, targets, _, _ = spirals(seed)
    runs: dict[bool, list[Run]] = {True: [], False: []}
    right: dict[bool, list[float]] = {True: [], False: []}
    for clear in (False, True):
        for index in range(6):
            model = mlp(seed=100 * seed + index)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
            runs[clear].append(fit(model, optimizer, inputs, targets, steps=300, clear=clear))
            right[clear].append(accuracy(model, inputs, targets))
    return runs[False], right[False], runs[True], right[True]


@claim(
    "F32",
    title="Without zero_grad the loss becomes NaN after hundreds of batches",
    source="Engineering module, opening and §2; training-loop chapter, c5 bug 1",
    expected="does not hold",
    says="Without zero_grad the gradient is 100 times too long by step 100, and the loss explodes "
    "or becomes NaN.",
)
def missing_zero_grad(seed: int) -> Measured:
    piled, wrong, _, right = _without_clearing(seed)
    nonfinite = sum(not run.finite for run in piled)
    growth = [run.norms[99] / run.norms[0] for run in piled if len(run.norms) > 99]
    evidence = {
        "runs that become non-finite, of 6": nonfinite,
        "gradient norm at step 100 / step 1, median": statistics.median(growth),
        "final accuracy, median": statistics.median(wrong),
        "final accuracy with zero_grad, median": statistics.median(right),
    }
    return weigh(
        "runs that become non-finite, of 6",
        evidence,
        stated=nonfinite >= 3,
        note="It fails silently: the norm grows, the loss stalls, and NaN is rare.",
    )


@claim(
    "F74",
    title="Without zero_grad the loss oscillates, then explodes",
    source="Training-loop chapter, c6 experiment 3",
    expected="does not hold",
    says="Without zero_grad the norm grows linearly and the loss oscillates, then explodes.",
)
def experiment_3(seed: int) -> Measured:
    piled, _, cleared, _ = _without_clearing(seed)
    late = [statistics.fmean(run.losses[-50:]) for run in piled]
    exploded = sum(
        not run.finite or loss > 10 * run.losses[0] for run, loss in zip(piled, late, strict=True)
    )
    evidence = {
        "runs whose loss explodes, of 6": exploded,
        "late loss over first, by run": [
            round(loss / run.losses[0], 3) for run, loss in zip(piled, late, strict=True)
        ],
        "late loss over first with zero_grad, by run": [
            round(statistics.fmean(run.losses[-50:]) / run.losses[0], 3) for run in cleared
        ],
        "norm at step 200 / step 100, by run (2 would be linear)": [
            round(run.norms[199] / run.norms[99], 2) for run in piled if len(run.norms) > 199
        ],
    }
    return weigh("runs whose loss explodes, of 6", evidence, stated=exploded >= 3)


@claim(
    "F38",
    title="set_to_none is the default since torch 2.0, and faster",
    source="Annotated-loop essay; the training-loop chapter presents zeros as the default",
    expected="holds",
    says="zero_grad() sets gradients to None by default, which is faster than filling zeros.",
)
def set_to_none() -> Measured:
    default = inspect.signature(torch.optim.Optimizer.zero_grad).parameters["set_to_none"].default
    parameters = [nn.Parameter(torch.zeros(128, 128)) for _ in range(60)]
    grads = [torch.ones(128, 128) for _ in parameters]
    optimizer = torch.optim.SGD(parameters, lr=0.1)

    def clear(to_none: bool) -> None:
        for parameter, grad in zip(parameters, grads, strict=True):
            parameter.grad = grad
        optimizer.zero_grad(set_to_none=to_none)

    ratio = interleaved(lambda: clear(False), lambda: clear(True))
    evidence = {
        "time, filling zeros / setting None": ratio.median,
        "quartiles": ratio.as_list(),
        "default of set_to_none": default,
    }
    return weigh(
        "time, filling zeros / setting None",
        evidence,
        stated=default is True and ratio.median > 1.2,
    )


def _frozen_moves(optimizer_type, *, zeros: bool, leftover: bool = False, **options) -> float:
    """How far a layer moves after it was frozen, the optimizer having been built before."""
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
        if leftover:  # only what is trained is cleared
            model[1].zero_grad()
        step(clear=not leftover)
    return (flat(model[0]) - before).norm().item()


@claim(
    "F65",
    title="Layers frozen after the optimizer was built are still updated",
    source="Training-loop chapter, c3",
    expected="holds if",
    says="Layers frozen after building the optimizer are still updated.",
    condition="if their .grad is zeros instead of None and there is decay, momentum or Adam, or if "
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
    source="Lecture 3, debug ladder",
    expected="holds if",
    says="Parameters with requires_grad=False never change.",
    condition="if their .grad is None when the optimizer steps, which zero_grad() sees to",
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
    title="Swap two of the operations and training breaks",
    source="Training-loop chapter, c3",
    expected="holds if",
    says="The operations of a step have one fixed order; swap two and it breaks.",
    condition="if zero_grad is set aside, which has three legal places; the other three must "
    "stand in order",
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
