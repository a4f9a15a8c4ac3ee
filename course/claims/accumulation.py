"""Gradient accumulation: when it equals the big batch, and its cost in memory and time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from course.claims.lab import flat, flat_grad, interleaved, mlp, peak_bytes, relative
from course.claims.registry import claim
from course.claims.settings import CONV, DIABETES, SPIRAL, conv
from course.claims.trial import Measured, needs_gpu, weigh, weigh_settings

Loss = Callable[[Tensor, Tensor], Tensor]


def _accumulated(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    sizes: Sequence[int],
    loss: Loss = F.cross_entropy,
    weights: Sequence[float] | None = None,
) -> Tensor:
    """The gradient after micro-batches of these sizes, each loss times its weight (1/K)."""
    model.zero_grad()
    weights = weights or [1 / len(sizes)] * len(sizes)
    parts = zip(inputs.split(sizes), targets.split(sizes), weights, strict=True)
    for x, y, weight in parts:
        (loss(model(x), y) * weight).backward()
    return flat_grad(model)


@claim(
    "F43",
    title="Accumulation equals one big batch",
    expected="holds if",
    says="Accumulated over K micro-batches, with each loss divided by K, the gradient equals the "
    "big batch's.",
    condition="if micro-batches have equal size, the loss is a plain mean, and examples do not "
    "interact",
)
def accumulation_equals_big_batch(seed: int) -> Measured:
    inputs, targets = torch.randn(32, 6, dtype=torch.float64), torch.randint(0, 3, (32,))
    model = mlp(6, 16, 3, seed=seed).double()
    equal, short = [8] * 4, [10, 10, 10, 2]
    targets[30:] = (targets[30:] + 1) % 3

    def gap(sizes: Sequence[int], model: nn.Module = model, x: Tensor = inputs, **kw) -> float:
        big = _accumulated(model, x, kw.get("y", targets), [32], kw.get("loss", F.cross_entropy))
        y = kw.pop("y", targets)
        return relative(_accumulated(model, x, y, sizes, **kw), big)

    mixing = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
    class_weights = torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64)
    uneven = targets.clone()
    uneven[:7] = -100  # 1 of 8 left in the first micro-batch
    gaps = {
        "equal sizes, float64": gap(equal),
        "equal sizes, float32": gap(equal, model.float(), inputs.float()),
    }
    model.double()
    gaps |= {
        "short last, weighted by its examples": gap(short, weights=[n / 32 for n in short]),
        "short last, each 1/K": gap(short),
        "BatchNorm": gap(equal, mixing.double()),
        "class weights": gap(equal, loss=lambda z, y: F.cross_entropy(z, y, class_weights)),
        "uneven ignore_index": gap(equal, y=uneven),
    }
    same = gaps["equal sizes, float64"] < 1e-12 and gaps["equal sizes, float32"] < 1e-5
    evidence = {
        "relative difference, equal sizes, float64": gaps["equal sizes, float64"],
        "relative differences": gaps,
    }
    return weigh(
        "relative difference, equal sizes, float64",
        evidence,
        stated=max(gaps.values()) < 1e-5,
        conditioned=same and gaps["short last, weighted by its examples"] < 1e-12,
    )


@claim(
    "F44",
    title="An epoch makes ceil(N / (B·K)) updates",
    expected="holds if",
    says="With accumulation an epoch makes ceil(N / (B·K)) updates.",
    condition="if the remainder is flushed at the end of the epoch; the printed loop carries it "
    "over into the next epoch",
)
def updates_an_epoch() -> Measured:
    num_examples, batch_size, accum_steps, epochs = 10_000, 32, 4, 3
    formula = math.ceil(num_examples / (batch_size * accum_steps)) * epochs

    def updates(*, flush: bool) -> tuple[int, int]:
        made, waiting, longest = 0, 0, 0
        for _ in range(epochs):
            batches = torch.arange(num_examples).split(batch_size)
            for i, _batch in enumerate(batches):
                waiting += 1
                if (i + 1) % accum_steps == 0 or (flush and i + 1 == len(batches)):
                    made, longest, waiting = made + 1, max(longest, waiting), 0
        return made, longest

    (printed, longest), (flushed, _) = updates(flush=False), updates(flush=True)
    evidence = {
        "updates of the printed loop": printed,
        "by the formula": formula,
        "with a flush": flushed,
        "micro-batches in the longest update": longest,
    }
    return weigh(
        "updates of the printed loop",
        evidence,
        stated=printed == formula,
        conditioned=flushed == formula,
    )


@claim(
    "F45",
    title="Without / K the update differs from the big batch's",
    expected="holds if",
    says="Unless each loss is divided by K, training differs from training with the big batch.",
    condition="if the optimizer is SGD; Adam does not depend on the gradient's scale",
)
def forgetting_to_divide(seed: int) -> Measured:
    gaps, held = {}, {}
    for one in (SPIRAL, CONV, DIABETES.but(rate=0.02)):
        one = one.but(batch_size=32, steps=50)
        four = one.but(loss_fn=_four_times(one.loss_fn))
        ends = [flat(kind.train(100 * seed).model) for kind in (one, four)]
        gaps[f"{one.data} {one.optimizer}"] = relative(ends[1], ends[0])
        held[one] = gaps[f"{one.data} {one.optimizer}"] > 0.02
    evidence = {
        "spirals SGD: weights differ after 50 updates by": gaps["spirals SGD"],
        "K = 4 micro-batches, losses not divided": gaps,
    }
    return weigh_settings(
        "spirals SGD: weights differ after 50 updates by",
        evidence,
        held,
        criterion="the weights end more than 2 % apart",
        note="Four equal micro-batches without / K sum to four times the big batch's gradient.",
    )


def _four_times(loss_fn: Loss) -> Loss:
    return lambda outputs, targets: 4 * loss_fn(outputs, targets)


@claim(
    "F54",
    title="Accumulation saves about 60 % of the memory",
    expected="holds if",
    says="Accumulating over small micro-batches saves about 60 % of the memory.",
    condition="if activations take most of the memory and K is large; if weights do, or K is "
    "small, it saves less or nothing",
)
def accumulation_memory(seed: int, device: torch.device) -> Measured:
    def ratio(make: Callable[[], nn.Module], width: int, batch_size: int, parts: int) -> float:
        """Peak of the micro-batches over peak of one batch: activations, gradients and all."""
        torch.manual_seed(seed)
        model = make().to(device)
        inputs = torch.randn(batch_size, width, device=device)
        targets = torch.randint(0, 10, (batch_size,), device=device)

        def peak(sizes: list[int]) -> int:
            model.zero_grad()
            return peak_bytes(lambda: _accumulate(model, inputs, targets, sizes), device)

        peak([batch_size])  # warm-up: libraries allocate their workspace
        return peak([batch_size // parts] * parts) / peak([batch_size])

    def _accumulate(model, inputs, targets, sizes) -> None:
        for x, y in zip(inputs.split(sizes), targets.split(sizes), strict=True):
            (F.cross_entropy(model(x), y) / len(sizes)).backward()

    networks = {"MLP 128-128-128-10": (lambda: mlp(128, 128, 128, 10), 128), "conv net": (conv, 64)}
    ratios = {
        f"{name}, batch {batch}, K = {parts}": ratio(make, width, batch, parts)
        for name, (make, width) in networks.items()
        for batch, parts in ((64, 8), (2048, 8), (2048, 2))
    }
    evidence = {
        "MLP, batch 2,048, K = 8: memory saved": 1
        - ratios["MLP 128-128-128-10, batch 2048, K = 8"],
        "peak with micro-batches / with one batch": ratios,
    }
    return weigh_settings(
        "MLP, batch 2,048, K = 8: memory saved",
        evidence,
        {name: value <= 0.4 for name, value in ratios.items()},
        criterion="at least 60 % of the peak is saved",
        note="There is no single figure for the saving: it ranges from none to nearly 1 - 1/K.",
    )


class _OperatorCount(TorchDispatchMode):
    """Counts the operators that torch is asked for: what a GPU would launch as kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


@claim(
    "F138",
    title="Accumulation leaves the amount of computation unchanged",
    expected="needs GPU",
    says="K micro-batches need the same computation as one batch K times as large.",
    gpu=True,
)
def accumulation_compute(seed: int, device: torch.device) -> Measured:
    model = mlp(128, 256, 10, seed=seed).to(device)
    inputs = torch.randn(256, 128, device=device)
    targets = torch.randint(0, 10, (256,), device=device)

    def run(sizes: list[int]) -> None:
        _accumulated(model, inputs, targets, sizes)

    flops, operators = {}, {}
    for name, sizes in (("one batch", [256]), ("8 micro-batches", [32] * 8)):
        with FlopCounterMode(display=False) as counter:
            run(sizes)
        with _OperatorCount() as launched:
            run(sizes)
        flops[name], operators[name] = counter.get_total_flops(), launched.count
    flop_ratio = flops["8 micro-batches"] / flops["one batch"]
    evidence = {
        "FLOPs, 8 micro-batches / one batch": flop_ratio,
        "operators, 8 micro-batches / one batch": operators["8 micro-batches"]
        / operators["one batch"],
    }
    if device.type != "cuda":
        note = "The arithmetic is the same, but not the number of launches; only a GPU can show "
        return needs_gpu("FLOPs, 8 micro-batches / one batch", evidence, note + "their cost.")
    time_ratio = interleaved(lambda: run([32] * 8), lambda: run([256]), device=device)
    evidence["time, 8 micro-batches / one batch"] = time_ratio.median
    evidence["time ratio, quartiles"] = time_ratio.as_list()
    return weigh(
        "time, 8 micro-batches / one batch",
        evidence,
        stated=flop_ratio == 1 and time_ratio.median < 1.2,
        conditioned=flop_ratio == 1,
        note="The FLOPs are the same, but small micro-batches cost more launches.",
    )
