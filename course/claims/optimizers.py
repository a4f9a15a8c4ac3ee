"""Optimizers: their state, how the scale of gradients affects them, and which is faster."""

from __future__ import annotations

import copy
import itertools
import math
import statistics
from collections.abc import Callable

import torch
from torch import Tensor, nn

from course.claims.lab import accuracy, error_of, fit, flat, interleaved, mlp, relative, spirals
from course.claims.registry import claim
from course.claims.settings import CONV, DIABETES, DIGITS, SPIRAL, Setting
from course.claims.trial import Measured, weigh, weigh_settings


def _first_step(grad: float, *, correct: bool = True) -> float:
    """Size of Adam's first step at lr 0.1, by torch or, without bias correction, by hand."""
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
    expected="holds",
    says="Adam's step hardly depends on the scale of the gradient.",
)
def adam_and_scale(seed: int) -> Measured:
    steps = {grad: _first_step(grad) for grad in (1e-6, 1e-3, 1.0, 1e3)}
    ratio = max(steps.values()) / min(steps.values())
    differ, held = {}, {}
    for one in (CONV.but(steps=50), DIABETES.but(optimizer="Adam", rate=0.003, steps=50)):
        ends = {}
        for kind in (one, one.but(optimizer="SGD")):
            plain, scaled = (
                flat(kind.but(loss_fn=_times(kind.loss_fn, by)).train(100 * seed).model)
                for by in (1.0, 100.0)
            )
            start = flat(kind.make_model(100 * seed))
            ends[kind.optimizer] = ((scaled - plain).norm() / (plain - start).norm()).item()
        differ[one.data] = ends
        held[one] = ends["Adam"] < 0.1 < ends["SGD"]
    evidence = {
        "longest / shortest first step, gradients 1e-6 to 1e3": ratio,
        "first step by gradient, lr 0.1": steps,
        "loss times 100, after 50 steps: distance between weights / moved": differ,
    }
    return weigh_settings(
        "longest / shortest first step, gradients 1e-6 to 1e3",
        evidence,
        held,
        criterion="with 100 times the loss, Adam's final weights change by less than a tenth of "
        "the distance moved, and SGD's by more",
    )


def _times(loss_fn: Callable[[Tensor, Tensor], Tensor], by: float):
    return lambda outputs, targets: by * loss_fn(outputs, targets)


@claim(
    "F70",
    title="Adam's moments are biased early on; the correction fixes it",
    expected="holds",
    says="Adam's moments start biased towards zero, and the correction makes the first step the "
    "right size.",
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


@claim(
    "F158",
    title="Adam with an L2 term is not AdamW",
    expected="holds",
    says="Adam scales an L2 term by its adaptive step, while AdamW decays the weights directly; "
    "the two are not equivalent, and AdamW's decay is more predictable.",
)
def l2_is_not_decay(seed: int) -> Measured:
    apart, held = {}, {}
    for one in (CONV.but(steps=50), DIABETES.but(rate=0.003, options=(), steps=50)):
        ends = {
            (kind, decay): flat(
                one.but(optimizer=kind, options=(("weight_decay", decay),)).train(100 * seed).model
            )
            for kind in ("Adam", "AdamW")
            for decay in (0.0, 0.1)
        }
        apart[one.data] = gaps = [
            relative(ends["Adam", decay], ends["AdamW", decay]) for decay in (0.0, 0.1)
        ]
        held[one.but(optimizer="Adam and AdamW")] = gaps[0] == 0 and gaps[1] > 0.01
    shrunk = {kind.__name__: [_shrunk(kind, grad) for grad in (1e-2, 1.0, 1e2)] for kind in _TWO}
    spread = {name: max(values) - min(values) for name, values in shrunk.items()}
    held["one weight under alternating gradients of 0.01 to 100"] = (
        spread["AdamW"] < 0.01 < spread["Adam"]
    )
    evidence = {
        "digits: weights apart after 50 steps with decay 0.1": apart["digits"][1],
        "weights apart, without decay and with 0.1": apart,
        "share of a weight that decay removes in 50 steps, gradients of 0.01, 1 and 100": shrunk,
    }
    return weigh_settings(
        "digits: weights apart after 50 steps with decay 0.1",
        evidence,
        held,
        criterion="the two end more than 1 % apart with decay but not without it; or the effect of "
        "decay depends on the gradient's size in Adam but not in AdamW",
    )


_TWO = (torch.optim.Adam, torch.optim.AdamW)


def _shrunk(kind: type[torch.optim.Optimizer], size: float) -> float:
    """How much smaller a weight is after 50 steps with decay 0.1 than after 50 steps without."""
    ends = []
    for decay in (0.0, 0.1):
        weight = nn.Parameter(torch.ones((), dtype=torch.float64))
        optimizer = kind([weight], lr=0.01, weight_decay=decay)
        for step in range(50):
            weight.grad = torch.tensor(size * (-1) ** step, dtype=torch.float64)
            optimizer.step()
        ends.append(weight.item())
    return ends[0] - ends[1]


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
_WAYS = ("", "foreach", "fused")


def _adam_of_30(options: dict[str, bool]) -> torch.optim.Optimizer:
    """Adam over 30 matrices of 64 by 64 with gradients."""
    weights = [nn.Parameter(torch.zeros(64, 64)) for _ in range(30)]
    for weight in weights:
        weight.grad = torch.randn(64, 64)
    return torch.optim.Adam(weights, **options)


@claim(
    "F67",
    title="fused=True is for CUDA only",
    expected="does not hold",
    says="The fused optimizers run only on CUDA.",
)
def fused_on_cpu() -> Measured:
    cpu = torch.device("cpu")
    errors = {one.__name__: error_of(_steps_on, one, cpu, fused=True) for one in _FOUR}
    running = [one for one in _FOUR if not errors[one.__name__]]
    gaps = [(_steps_on(one, cpu, fused=True) - _steps_on(one, cpu)).abs().max() for one in running]
    evidence = {
        "optimizers that run fused on the CPU, of 4": len(running),
        "raises": {name: error or "nothing" for name, error in errors.items()},
        "weights differ from the plain loop's by": float(max(gaps, default=math.nan)),
        "time of Adam, fused / plain loop": (
            interleaved(
                _adam_of_30({"fused": True}).step, _adam_of_30({"foreach": False}).step
            ).as_list()
            if running
            else []
        ),
    }
    return weigh("optimizers that run fused on the CPU, of 4", evidence, stated=not running)


@claim(
    "F68",
    title="foreach is available on the CPU",
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
    loop = {name: _adam_of_30({name: True} if name else {"foreach": False}).step for name in _WAYS}
    evidence = {
        "optimizers that run with foreach on the CPU, of 4": running,
        "weights differ from the plain loop's by": max(gaps, default=math.nan),
        "time of Adam, foreach / plain loop": interleaved(loop["foreach"], loop[""]).as_list(),
        "time of Adam, fused / plain loop": interleaved(loop["fused"], loop[""]).as_list(),
    }
    return weigh(
        "optimizers that run with foreach on the CPU, of 4",
        evidence,
        stated=running == 4 and max(gaps) < 1e-5,
        note="By default, torch uses the plain loop on the CPU.",
    )


@claim(
    "F69",
    title="Resuming without Adam's state causes a spike in the loss",
    expected="holds if",
    says="If a run is resumed with the weights but without Adam's state, the loss shows a spike.",
    condition="if the loss has settled, so that Adam's first steps are long compared with its last "
    "ones; in a run that is still noisy nothing shows",
)
def resume_without_state(seed: int) -> Measured:
    ratios, held = {}, {}
    for one in (SPIRAL.but(optimizer="Adam", rate=0.01), CONV):
        ratios[one.data] = [_peaks(one, 100 * seed + index) for index in range(4)]
        held[one] = statistics.median(ratios[one.data]) > 1.15
    evidence = {
        "spirals: highest loss within 30 steps, without / with the state, median": (
            statistics.median(ratios["spirals"])
        ),
        "by run": ratios,
    }
    return weigh_settings(
        "spirals: highest loss within 30 steps, without / with the state, median",
        evidence,
        held,
        criterion="in the median of 4 runs, the highest loss within 30 steps is 1.15 times that of "
        "the run with the state",
    )


def _peaks(one: Setting, seed: int) -> float:
    """Highest loss over all data within 30 steps of resuming, without Adam's state over with it."""
    trained = one.train(seed)
    peaks = {}
    for keeps_state in (True, False):
        model = copy.deepcopy(trained.model)
        optimizer = one.make_optimizer(model)
        if keeps_state:
            optimizer.load_state_dict(copy.deepcopy(trained.optimizer.state_dict()))
        seen: list[float] = []
        one.but(steps=30).train(
            seed,
            model=model,
            optimizer=optimizer,
            watch=lambda _, m, s=seen: s.append(one.full_loss(m, seed)),
        )
        peaks[keeps_state] = max(seen)
    return peaks[False] / peaks[True]


@claim(
    "F141",
    title="Adam's moments need hundreds of steps to build up again",
    expected="holds if",
    says="Adam's moment estimates take hundreds of steps to warm up from zero.",
    condition="if the second moment is meant (beta 0.999); the first (0.9) takes only about 20 "
    "steps",
)
def moments_build_up(seed: int) -> Measured:
    needed, held = {}, {}
    for one in (CONV, DIABETES.but(optimizer="Adam", rate=0.003)):
        model = one.train(100 * seed).model
        inputs, targets, *_ = one.make_data(seed)
        one.loss_fn(model.eval()(inputs[:64]), targets[:64]).backward()
        for name, key in (("first", "exp_avg"), ("second", "exp_avg_sq")):
            steps = _steps_to_build_up(model, key)
            needed[f"{one.data}, {name} moment"] = steps
            held[f"{one.model} on {one.data}, {name} moment"] = steps >= 100
    evidence = {
        "steps until the second moment reaches 90 %": needed["digits, second moment"],
        "by network and moment": needed,
    }
    return weigh_settings(
        "steps until the second moment reaches 90 %",
        evidence,
        held,
        criterion="under a constant gradient, torch's Adam needs at least 100 steps to reach 90 % "
        "of the moment",
        note="The bias correction hides it: the first steps are as long as later ones, but "
        "noisier.",
    )


def _steps_to_build_up(model: nn.Module, key: str, share: float = 0.9, limit: int = 5000) -> int:
    """Steps of Adam at rate 0 until a moment reaches this share of its final value."""
    weight = next(iter(model.parameters()))
    copied = nn.Parameter(weight.detach().clone())
    copied.grad = weight.grad.clone()
    optimizer = torch.optim.Adam([copied], lr=0.0)
    full = (copied.grad if key == "exp_avg" else copied.grad**2).norm()
    for step in range(1, limit):
        optimizer.step()
        if optimizer.state[copied][key].norm() >= share * full:
            return step
    return limit


@claim(
    "F149",
    title="Momentum smooths noisy gradients, and overshoots at a high rate",
    expected="holds",
    says="Momentum smooths noisy gradients; at a high learning rate it overshoots.",
)
def momentum_smooths(seed: int) -> Measured:
    turned, overshoot, held = {}, {}, {}
    for one in (
        DIGITS.but(batch_size=16, rate=0.01, steps=60),
        DIABETES.but(batch_size=8, rate=0.002, steps=60, options=(("momentum", 0.9),)),
    ):
        plain = one.but(options=(), rate=10 * one.rate)  # same distance per step in the long run
        turned[one.data] = [_turning(kind, 100 * seed) for kind in (one, plain)]
        fast = one.but(rate=0.2, steps=40, batch_size=512)
        slow = fast.but(options=())
        overshoot[one.data] = [_rise(kind, 100 * seed) for kind in (fast, slow)]
        with_it, without = turned[one.data]
        held[one] = with_it > without + 0.2 and overshoot[one.data][0] > overshoot[one.data][1]
    evidence = {
        "digits: cosine of successive updates with momentum": turned["digits"][0],
        "cosine of successive updates, with and without": turned,
        "largest rise of the loss above its lowest so far, high rate, with and without": overshoot,
    }
    return weigh_settings(
        "digits: cosine of successive updates with momentum",
        evidence,
        held,
        criterion="with momentum the cosine of successive updates is 0.2 higher, and at a rate of "
        "0.2 the loss rises further above its lowest so far",
    )


def _turning(one: Setting, seed: int) -> float:
    """Mean cosine between successive updates over the last 30 steps."""
    places: list[Tensor] = []
    one.train(seed, watch=lambda _, model: places.append(flat(model)))
    moves = [after - before for before, after in itertools.pairwise(places[-31:])]
    pairs = itertools.pairwise(moves)
    return statistics.fmean((a @ b / (a.norm() * b.norm())).item() for a, b in pairs)


def _rise(one: Setting, seed: int) -> float:
    """The most that the loss rises above its lowest value so far."""
    lowest, rise = math.inf, 0.0
    for loss in one.train(seed).run.losses:
        lowest = min(lowest, loss)
        rise = max(rise, loss - lowest)
    return rise


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
    expected="does not hold",
    says="At a learning rate of 0.01 Adam needs 3 to 5 times fewer steps than SGD.",
)
def experiment_2(seed: int) -> Measured:
    found, held = {}, {}
    for one in (SPIRAL.but(model="MLP 2-128-128-3", make_model=_wide), DIGITS, CONV):
        median = {}
        for name, kind, rate in (
            ("Adam 0.01", "Adam", 0.01),
            ("SGD 0.01", "SGD", 0.01),
            ("SGD 0.3", "SGD", 0.3),
        ):
            there = one.but(optimizer=kind, rate=rate, options=(), steps=600)
            median[name] = statistics.median(_steps_to(there, 100 * seed + i) for i in range(3))
        ratio = median["SGD 0.01"] / median["Adam 0.01"]
        found[f"{one.model}, {one.data}"] = median | {"ratio at 0.01 (at least)": ratio}
        held[one.but(optimizer="Adam against SGD", rate=0.01, options=(), steps=600)] = (
            3 <= ratio <= 5
        )
    evidence = {
        "digits, MLP: steps to 90 %, SGD / Adam at lr 0.01 (at least)": found[
            "MLP 64-32-10, digits"
        ]["ratio at 0.01 (at least)"],
        "median steps to 90 % (600: never)": found,
    }
    return weigh_settings(
        "digits, MLP: steps to 90 %, SGD / Adam at lr 0.01 (at least)",
        evidence,
        held,
        criterion="SGD needs 3 to 5 times as many steps to 90 % as Adam",
        note="Adam is faster in each, but by other factors: equal rates are not a fair race, and "
        "SGD with a rate tuned for it comes close.",
    )


def _wide(seed: int) -> nn.Module:
    return mlp(2, 128, 128, 3, seed=seed)


def _steps_to(one: Setting, seed: int, target: float = 0.9) -> int:
    """Updates until the training accuracy reaches the target; all of them if it never does."""
    reached = [one.steps]

    def watch(step: int, model: nn.Module) -> bool:
        if step % 5 == 4 and one.score(model, seed) >= target:
            reached[0] = step + 1
        return reached[0] <= step + 1

    one.train(seed, watch=watch)
    return reached[0]


@claim(
    "F77",
    title="Data sorted by class and not shuffled hurt training",
    expected="holds",
    says="Training on data sorted by class, without shuffling, hurts.",
)
def sorted_data(seed: int) -> Measured:
    found, held = {}, {}
    for one in (SPIRAL.but(steps=450, model="MLP 2-128-128-3", make_model=_wide), CONV):
        inputs, targets, *rest = one.make_data(seed)
        order = targets.argsort(stable=True)
        data = inputs[order], targets[order], *rest
        right = [
            one.score(one.train(100 * seed, data=data, shuffle=shuffle).model, 100 * seed)
            for shuffle in (True, False)
        ]
        found[one.data] = right
        held[one] = right[0] - right[1] > 0.05
    evidence = {
        "spirals: accuracy lost by not shuffling": found["spirals"][0] - found["spirals"][1],
        "accuracy shuffled, sorted": found,
    }
    return weigh_settings(
        "spirals: accuracy lost by not shuffling",
        evidence,
        held,
        criterion="the loss in accuracy is more than 5 points",
    )
