"""Optimizers: what they keep, what scale does to them, and which is faster."""

from __future__ import annotations

import copy
import math
import statistics

import torch
from torch import Tensor, nn

from course.claims.lab import accuracy, error_of, fit, flat, full_loss, interleaved, mlp, spirals
from course.claims.registry import Measured, claim, weigh


def _first_step(grad: float, *, correct: bool = True) -> float:
    """Size of Adam's first step at lr 0.1, by torch, or by hand without bias correction."""
    if not correct:
        return 0.1 * (0.1 * grad) / (math.sqrt(0.001 * grad**2) + 1e-8)
    weight = nn.Parameter(torch.zeros((), dtype=torch.float64))
    optimizer = torch.optim.Adam([weight], lr=0.1)
    weight.grad = torch.tensor(grad, dtype=torch.float64)
    optimizer.step()
    return abs(weight.item())


@claim(
    "F64",
    title="Adam is robust to the gradient's scale",
    source="Annotated-loop essay",
    expected="holds",
    says="Adam's step hardly depends on the scale of the gradient.",
)
def adam_and_scale() -> Measured:
    steps = {grad: _first_step(grad) for grad in (1e-6, 1e-3, 1.0, 1e3)}
    ratio = max(steps.values()) / min(steps.values())
    evidence = {
        "longest / shortest first step, gradients 1e-6 to 1e3": ratio,
        "first step by gradient, lr 0.1": steps,
    }
    return weigh(
        "longest / shortest first step, gradients 1e-6 to 1e3", evidence, stated=ratio < 1.05
    )


@claim(
    "F70",
    title="Adam's moments are biased early; the correction fixes it",
    source="Annotated-loop essay",
    expected="holds",
    says="Adam's moments start biased towards zero, and the correction makes the first step right.",
)
def bias_correction() -> Measured:
    corrected, biased = _first_step(0.5), _first_step(0.5, correct=False)
    weight = nn.Parameter(torch.zeros((), dtype=torch.float64))
    optimizer = torch.optim.Adam([weight], lr=0.1)
    weight.grad = torch.tensor(0.5, dtype=torch.float64)
    optimizer.step()
    mean = optimizer.state[weight]["exp_avg"].item()
    evidence = {
        "first step without correction / lr": biased / 0.1,
        "first step with correction / lr": corrected / 0.1,
        "first moment / gradient": mean / 0.5,
    }
    stated = abs(corrected / 0.1 - 1) < 1e-6 and biased > 3 * corrected and mean < 0.25
    return weigh("first step without correction / lr", evidence, stated=stated)


def _steps_on(optimizer_type, device: torch.device, **options) -> Tensor:
    """Weights after three steps of a small model."""
    torch.manual_seed(0)
    model = mlp(8, 16, 3).to(device)
    optimizer = optimizer_type(model.parameters(), lr=0.01, **options)
    inputs = torch.randn(8, 8, device=device)
    for _ in range(3):
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
    return flat(model)


_FOUR = (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad)


@claim(
    "F67",
    title="fused=True is for CUDA only",
    source="Annotated-loop essay",
    expected="does not hold",
    says="The fused optimizers run on CUDA only.",
)
def fused_on_cpu() -> Measured:
    cpu = torch.device("cpu")
    errors = {one.__name__: error_of(_steps_on, one, cpu, fused=True) for one in _FOUR}
    running = [one for one in _FOUR if not errors[one.__name__]]
    gaps = [(_steps_on(one, cpu, fused=True) - _steps_on(one, cpu)).abs().max() for one in running]
    grads = [torch.randn(64, 64) for _ in range(30)]

    def adam(fused: bool) -> torch.optim.Optimizer:
        weights = [nn.Parameter(torch.zeros_like(grad)) for grad in grads]
        for weight, grad in zip(weights, grads, strict=True):
            weight.grad = grad
        return torch.optim.Adam(weights, fused=fused, foreach=False)

    evidence = {
        "optimizers that run fused on the CPU, of 4": len(running),
        "raises": {name: error or "nothing" for name, error in errors.items()},
        "weights differ from the plain loop's by": float(max(gaps, default=math.nan)),
        "time of Adam, fused / plain loop": (
            interleaved(adam(True).step, adam(False).step).as_list() if running else []
        ),
    }
    return weigh("optimizers that run fused on the CPU, of 4", evidence, stated=not running)


@claim(
    "F68",
    title="foreach is available on the CPU",
    source="Annotated-loop essay",
    expected="holds",
    says="foreach=True works on the CPU.",
)
def foreach_on_cpu() -> Measured:
    cpu = torch.device("cpu")
    errors = {one.__name__: error_of(_steps_on, one, cpu, foreach=True) for one in _FOUR}
    gaps = [
        (_steps_on(one, cpu, foreach=True) - _steps_on(one, cpu, foreach=False)).abs().max().item()
        for one in _FOUR
        if not errors[one.__name__]
    ]
    running = len(gaps)
    evidence = {
        "optimizers that run with foreach on the CPU, of 4": running,
        "weights differ from the plain loop's by": max(gaps, default=math.nan),
    }
    return weigh(
        "optimizers that run with foreach on the CPU, of 4",
        evidence,
        stated=running == 4 and max(gaps) < 1e-5,
        note="Asked for nothing, torch uses the plain loop on the CPU.",
    )


@claim(
    "F69",
    title="Resuming without Adam's state gives a loss spike",
    source="Annotated-loop essay; engineering module §4; training-loop chapter c7",
    expected="holds",
    says="A run resumed with the weights but without Adam's state shows a spike in the loss.",
)
def resume_without_state(seed: int) -> Measured:
    inputs, targets, _, _ = spirals(seed)
    ratios, pairs = [], []
    for index in range(6):
        model = mlp(seed=100 * seed + index)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        fit(model, optimizer, inputs, targets, steps=300)
        peaks = {}
        for keeps_state in (True, False):
            resumed = copy.deepcopy(model)
            again = torch.optim.Adam(resumed.parameters(), lr=0.01)
            if keeps_state:
                again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
            torch.manual_seed(index)
            seen = []
            fit(
                resumed, again, inputs, targets, steps=30,
                watch=lambda _, m=resumed, s=seen: s.append(full_loss(m, inputs, targets)),
            )  # fmt: skip
            peaks[keeps_state] = max(seen)
        ratios.append(peaks[False] / peaks[True])
        pairs.append([peaks[False], peaks[True]])
    evidence = {
        "highest loss within 30 steps, without / with the state, median of 6": statistics.median(
            ratios
        ),
        "runs with a higher peak without the state, of 6": sum(ratio > 1 for ratio in ratios),
        "highest loss, without and with the state": pairs,
    }
    name = "highest loss within 30 steps, without / with the state, median of 6"
    return weigh(name, evidence, stated=evidence[name] > 1.15)


def steps_to(target: float, optimizer, model: nn.Module, seed: int, limit: int, **options) -> int:
    """Updates until the training accuracy reaches `target`; `limit` if it never does."""
    inputs, targets, _, _ = spirals(seed)
    reached = [limit]

    def watch(step: int) -> bool:
        if step % 3 == 2 and accuracy(model, inputs, targets) >= target:
            reached[0] = step + 1
            return True
        return False

    fit(model, optimizer, inputs, targets, steps=limit, watch=watch, **options)
    return reached[0]


@claim(
    "F73",
    title="Adam is 3 to 5 times faster than SGD at lr 0.01",
    source="Training-loop chapter, c6 experiment 2",
    expected="holds if",
    says="At a learning rate of 0.01 Adam needs 3 to 5 times fewer steps than SGD.",
    condition="if only the direction is meant, at equal lr; SGD with its own lr comes much closer",
)
def experiment_2(seed: int) -> Measured:
    limit = 1000
    settings = {
        "Adam 0.01": (torch.optim.Adam, {"lr": 0.01}),
        "SGD 0.01": (torch.optim.SGD, {"lr": 0.01}),
        "SGD 0.3": (torch.optim.SGD, {"lr": 0.3}),
    }
    median = {}
    for name, (optimizer_type, options) in settings.items():
        steps = []
        for index in range(3):
            model = mlp(2, 128, 128, 3, seed=100 * seed + index)
            optimizer = optimizer_type(model.parameters(), **options)
            steps.append(steps_to(0.9, optimizer, model, seed, limit))
        median[name] = statistics.median(steps)
    ratio = median["SGD 0.01"] / median["Adam 0.01"]
    evidence = {
        "steps to 90 %, SGD / Adam at lr 0.01 (at least)": ratio,
        f"median steps, {limit}: never": median,
    }
    return weigh(
        "steps to 90 %, SGD / Adam at lr 0.01 (at least)",
        evidence,
        stated=3 <= ratio <= 5,
        conditioned=ratio > 5,
        note="SGD at 0.01 does not get there at all: equal learning rates are no fair race.",
    )


@claim(
    "F77",
    title="Class-sorted data without shuffling hurts",
    source="Training-loop chapter, c2",
    expected="holds",
    says="Training on data sorted by class, without shuffling, hurts.",
)
def sorted_data(seed: int) -> Measured:
    inputs, targets, _, _ = spirals(seed)
    order = targets.argsort(stable=True)
    inputs, targets = inputs[order], targets[order]
    spread, right = {}, {}
    for shuffle in (True, False):
        model = mlp(2, 128, 128, 3, seed=seed)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
        run = fit(model, optimizer, inputs, targets, steps=450, shuffle=shuffle)
        spread[shuffle] = statistics.stdev(run.losses[-30:])
        right[shuffle] = accuracy(model, inputs, targets)
    evidence = {
        "accuracy lost by not shuffling": right[True] - right[False],
        "accuracy shuffled, sorted": [right[True], right[False]],
        "spread of the batch loss, shuffled, sorted": [spread[True], spread[False]],
    }
    lost = right[True] - right[False]
    return weigh("accuracy lost by not shuffling", evidence, stated=lost > 0.05)
