"""Mixed precision: which tensors are in 16 bit, what they cannot hold, and what the scaler does."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_

from course.claims.lab import error_of, flat_grad, interleaved, mlp, warnings_of
from course.claims.registry import Measured, claim, needs_gpu, weigh


@claim(
    "F112",
    title="Gradients are BF16 under autocast, backward runs in FP16",
    source='Lecture 3, "Mixed precision" (BF16); annotated-loop essay (FP16)',
    expected="does not hold",
    says="Under autocast the gradients are 16-bit numbers.",
    gpu=True,
)
def gradients_under_autocast(seed: int, device: torch.device) -> Measured:
    dtypes = {}
    for dtype in (torch.bfloat16, torch.float16):
        model = mlp(8, 16, 3, seed=seed).to(device)
        with torch.autocast(device.type, dtype):
            logits = model(torch.randn(4, 8, device=device))
            logits.retain_grad()
            loss = F.cross_entropy(logits, torch.arange(4, device=device) % 3)
        loss.backward()
        dtypes[str(dtype)] = {
            "logits": str(logits.dtype),
            "logits.grad": str(logits.grad.dtype),
            "loss": str(loss.dtype),
            ".grad of parameters": sorted({str(p.grad.dtype) for p in model.parameters()}),
        }
    in_16_bit = sum(found[".grad of parameters"] != ["torch.float32"] for found in dtypes.values())
    whole = mlp(8, 16, 3).to(device, torch.bfloat16)
    whole(torch.randn(4, 8, device=device, dtype=torch.bfloat16)).sum().backward()
    evidence = {
        "16-bit types whose .grad is not FP32, of 2": in_16_bit,
        "under autocast to": dtypes,
        "a model that is BF16 itself has .grad": str(next(whole.parameters()).grad.dtype),
    }
    return weigh(
        "16-bit types whose .grad is not FP32, of 2",
        evidence,
        stated=in_16_bit == 2,
        note="Activations and their gradients are 16 bit; parameters and .grad stay FP32.",
    )


@claim(
    "F113",
    title="BF16 never overflows and never underflows",
    source='Lecture 3, "Mixed precision" (overflow); annotated-loop essay (underflow)',
    expected="does not hold",
    says="BF16 never overflows and never underflows.",
)
def bf16_range() -> Measured:
    largest = torch.tensor(torch.finfo(torch.float32).max)
    smallest = torch.tensor(2.0**-149)  # the smallest positive FP32 number
    overflowed = largest.bfloat16().isinf().item()
    underflowed = smallest.bfloat16().item() == 0
    weight = torch.tensor(1.0, dtype=torch.bfloat16)
    for _ in range(1000):
        weight -= torch.tensor(0.001, dtype=torch.bfloat16)
    evidence = {
        "of the 2 ends of FP32's range, lost in BF16": overflowed + underflowed,
        "FP32's maximum in BF16": str(largest.bfloat16().item()),
        "FP32's minimum in BF16": smallest.bfloat16().item(),
        "1 − 1,000 · 0.001 in BF16": weight.item(),
    }
    return weigh(
        "of the 2 ends of FP32's range, lost in BF16",
        evidence,
        stated=not overflowed and not underflowed,
        note="Its range is FP32's, nearly to the ends. What it lacks is precision.",
    )


def _small_product(scale: float, dtype: torch.dtype = torch.float16) -> float:
    """d(a·b)/da for b = 1e-4 and an upstream gradient of 1e-4, unscaled again."""
    upstream = torch.tensor(1e-4 * scale, dtype=dtype)
    return (upstream * torch.tensor(1e-4, dtype=dtype)).item() / scale


@claim(
    "F114",
    title="FP16 underflows and overflows; scaling helps",
    source='Lecture 3, "Mixed precision"; annotated-loop essay',
    expected="holds",
    says="In FP16 small gradients become 0 and large ones inf; scaling the loss brings them back.",
)
def fp16_and_scaling() -> Measured:
    a = torch.tensor(1.0, dtype=torch.float16, requires_grad=True)
    b = torch.tensor(1e-4, dtype=torch.float16)

    def gradient(scale: float) -> float:
        a.grad = None
        ((a * b).float() * 1e-4 * scale).backward()
        return a.grad.float().item() / scale

    plain, scaled, direct = gradient(1.0), gradient(1024.0), _small_product(1024.0)
    overflow = torch.tensor(65_520.0).half().isinf().item()
    evidence = {
        "gradient 1e-8 in FP16, unscaled": plain,
        "gradient 1e-8 in FP16, scale 1,024": scaled,
        "same product without autograd": direct,
        "65,520 becomes inf": overflow,
        "a gradient of 1 at scale 65,536": str(torch.tensor(1.0 * 65_536).half().item()),
    }
    stated = plain == 0 and abs(scaled / 1e-8 - 1) < 0.01 and overflow
    return weigh("gradient 1e-8 in FP16, unscaled", evidence, stated=stated)


def _scaled_gradient(enabled: bool, seed: int) -> Tensor:
    """Unscaled gradient of one BF16 autocast step, with a GradScaler or without."""
    torch.manual_seed(seed)
    model, inputs = mlp(8, 16, 3), torch.randn(16, 8)
    scaler = torch.amp.GradScaler("cpu", enabled=enabled)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with torch.autocast("cpu", torch.bfloat16):
        loss = F.cross_entropy(model(inputs), torch.arange(16) % 3)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    return flat_grad(model)


@claim(
    "F115",
    title="Use a GradScaler with BF16",
    source="Training-loop chapter, c7 and c9",
    expected="holds if",
    says="BF16 training uses a GradScaler, as FP16 does.",
    condition="if harmless is enough: it changes no bit of the gradients",
)
def scaler_with_bf16(seed: int) -> Measured:
    gap = (_scaled_gradient(True, seed) - _scaled_gradient(False, seed)).abs().max().item()
    smallest = _small_product(1.0, torch.bfloat16)
    evidence = {
        "unscaled gradients differ with a scaler by": gap,
        "gradient 1e-8 in BF16 without scaling": smallest,
    }
    return weigh(
        "unscaled gradients differ with a scaler by",
        evidence,
        stated=gap > 1e-4 or smallest == 0,
        conditioned=gap == 0,
    )


@claim(
    "F116",
    title="After inf the step is skipped and the scale halved",
    source="Annotated-loop essay",
    expected="holds",
    says="When a gradient is inf the GradScaler skips the step and halves the scale.",
)
def scaler_skips() -> Measured:
    weight = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler = torch.amp.GradScaler("cpu")

    def step(grad: list[float], *, clip_first: bool = False) -> float:
        optimizer.zero_grad()
        scaler.scale((weight * torch.tensor(grad)).sum()).backward()
        if clip_first:
            clip_grad_norm_([weight], 1.0)
        scaler.step(optimizer)
        unscaled = weight.grad.norm().item()
        scaler.update()
        return unscaled

    step([0.3, 0.4])  # a healthy step first: the scale is set by then
    before, scale = weight.detach().clone(), scaler.get_scale()
    step([math.inf, 1.0])
    moved = (weight.detach() - before).norm().item()
    halved = scaler.get_scale() / scale
    clipped_too_early = step([0.3, 0.4], clip_first=True)
    optimizer.zero_grad()
    scaler.scale(weight.sum()).backward()
    scaler.unscale_(optimizer)
    evidence = {
        "scale after inf / before": halved,
        "weights moved by": moved,
        "norm of [.3, .4] when clipped to 1 before unscale_": clipped_too_early,
        "second unscale_ raises": error_of(scaler.unscale_, optimizer) or "nothing",
    }
    return weigh("scale after inf / before", evidence, stated=halved == 0.5 and moved == 0)


_SINCE = {"autocast": (1, 10), "GradScaler": (2, 3)}


@claim(
    "F117",
    title="torch.amp is the API from torch 2.0 on",
    source="Annotated-loop essay",
    expected="holds if",
    says="torch.amp.autocast and torch.amp.GradScaler exist from torch 2.0 on.",
    condition="if only autocast is meant; torch.amp.GradScaler came with 2.3",
)
def amp_api() -> Measured:
    """The versions are from public release threads; that both exist here is measured."""
    here = {name: hasattr(torch.amp, name) for name in _SINCE}
    warned = warnings_of(lambda: torch.cuda.amp.GradScaler(enabled=False))
    evidence = {
        "names here, of 2": sum(here.values()),
        "first torch version, by public threads": {
            name: ".".join(map(str, version)) for name, version in _SINCE.items()
        },
        "torch.cuda.amp.GradScaler warns": bool(warned),
    }
    return weigh(
        "names here, of 2",
        evidence,
        stated=all(here.values()) and all(version <= (2, 0) for version in _SINCE.values()),
        conditioned=all(here.values()) and _SINCE["autocast"] <= (2, 0),
        note="What an older torch had cannot be run here; the date of GradScaler is reported, "
        "not measured.",
    )


def _step_time_ratio(width: int, dtype: torch.dtype, device: torch.device):
    """Time of a training step in FP32 over one under autocast."""
    model = mlp(width, width, width, width).to(device)
    inputs = torch.randn(width, width, device=device)

    def step(enabled: bool) -> None:
        model.zero_grad()
        with torch.autocast(device.type, dtype, enabled=enabled):
            loss = model(inputs).square().mean()
        loss.backward()

    return interleaved(lambda: step(False), lambda: step(True), warmup=3, device=device)


@claim(
    "F118",
    title="16-bit training is 2 to 8 times faster",
    source="Lecture 3 (2×); training-loop chapter c7 (2-4×); annotated-loop essay (4-8×)",
    expected="needs GPU",
    says="Training in 16 bit is 2 times (or 2 to 4, or 4 to 8 times) faster than in FP32.",
    gpu=True,
)
def half_precision_speed(device: torch.device) -> Measured:
    if device.type != "cuda":
        ratio = _step_time_ratio(256, torch.bfloat16, device)
        evidence = {
            "CPU: time of a step, FP32 / BF16 autocast": ratio.median,
            "quartiles": ratio.as_list(),
        }
        note = "The sources contradict each other; the CPU's figure says nothing about a GPU."
        return needs_gpu("CPU: time of a step, FP32 / BF16 autocast", evidence, note)
    ratios = {
        f"{name}, width {width}": _step_time_ratio(width, dtype, device)
        for name, dtype in (("BF16", torch.bfloat16), ("FP16", torch.float16))
        for width in (256, 4096)
    }
    large = ratios["BF16, width 4096"].median
    evidence = {
        "time of a step, FP32 / BF16, width 4,096": large,
        "quartiles": {name: ratio.as_list() for name, ratio in ratios.items()},
        "FP32 matmul precision": torch.get_float32_matmul_precision(),
    }
    return weigh(
        "time of a step, FP32 / BF16, width 4,096",
        evidence,
        stated=all(ratio.median >= 2 for ratio in ratios.values()),
        conditioned=large >= 2,
        note="Only where matrix products dominate; small layers pay for the casts.",
    )


@claim(
    "F123",
    title="Multiples of 8 or 16 suit tensor cores",
    source="Annotated-loop essay",
    expected="needs GPU",
    says="Sizes that are multiples of 8 (or 16) run faster on tensor cores.",
    gpu=True,
)
def multiples_of_8(device: torch.device) -> Measured:
    size = 4096 if device.type == "cuda" else 256
    dtype = torch.float16 if device.type == "cuda" else torch.float32

    def product(n: int):
        a, b = (torch.randn(n, n, device=device, dtype=dtype) for _ in range(2))
        return lambda: a @ b

    ratio = interleaved(product(size - 1), product(size), warmup=3, device=device)
    name = f"time of a product, size {size - 1} / {size}"
    evidence = {name: ratio.median, "quartiles": ratio.as_list(), "on": device.type}
    if device.type != "cuda":
        return needs_gpu(name, evidence, "A CPU has no tensor cores.")
    return weigh(name, evidence, stated=ratio.low > 1.1)
