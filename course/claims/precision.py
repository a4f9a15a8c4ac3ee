"""Mixed precision: which tensors have 16 bits, what these cannot represent, and the scaler."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_
from torch.utils._python_dispatch import TorchDispatchMode

from course.claims.lab import digits, error_of, flat_grad, interleaved, mlp, warnings_of
from course.claims.registry import claim
from course.claims.settings import conv
from course.claims.trial import Measured, needs_gpu, weigh, weigh_settings


@claim(
    "F112",
    title="Gradients are BF16 under autocast",
    expected="does not hold",
    says="Under autocast the gradients that backward() leaves are 16-bit numbers.",
    gpu=True,
)
def gradients_under_autocast(seed: int, device: torch.device) -> Measured:
    found = _under_autocast(seed, device)
    held = {name: seen[".grad of parameters"] != ["torch.float32"] for name, seen in found.items()}
    whole = mlp(8, 16, 3).to(device, torch.bfloat16)
    whole(torch.randn(4, 8, device=device, dtype=torch.bfloat16)).sum().backward()
    evidence = {
        "combinations of network and dtype whose .grad is not FP32, of 4": sum(held.values()),
        "under autocast": found,
        "dtype of .grad if the model itself is BF16": str(next(whole.parameters()).grad.dtype),
    }
    return weigh_settings(
        "combinations of network and dtype whose .grad is not FP32, of 4",
        evidence,
        held,
        criterion="the .grad of a parameter is a 16-bit number",
        note="Matrix products and the gradients of activations have 16 bits (F139); .grad is FP32.",
    )


@claim(
    "F139",
    title="Under autocast backward multiplies matrices in 16 bits",
    expected="holds",
    says="Mixed precision runs the backward pass in 16 bits, like the forward pass.",
    gpu=True,
)
def backward_products(seed: int, device: torch.device) -> Measured:
    found = _under_autocast(seed, device)
    products = {name: seen["products in backward"] for name, seen in found.items()}
    sixteen = {
        name: sum(n for dtype, n in by.items() if dtype != "torch.float32")
        for name, by in products.items()
    }
    evidence = {
        "products of backward in 16 bits, all cases": sum(sixteen.values()),
        "by dtype": products,
    }
    return weigh_settings(
        "products of backward in 16 bits, all cases",
        evidence,
        {name: sixteen[name] == sum(by.values()) > 0 for name, by in products.items()},
        criterion="all matrix products and convolutions in the backward pass have 16-bit operands",
        note="The result is cast to FP32 before it is added to .grad (F112).",
    )


_PRODUCTS = ("mm", "addmm", "bmm", "convolution", "mkldnn")


class _Operands(TorchDispatchMode):
    """Counts operators by their name and the dtype of their first floating-point operand."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[tuple[str, str]] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for value in args:
            if isinstance(value, Tensor) and value.is_floating_point():
                self.seen[func.overloadpacket.__name__, str(value.dtype)] += 1
                break
        return result

    def products(self) -> dict[str, int]:
        """Number of matrix products and convolutions, by dtype."""
        found: Counter[str] = Counter()
        for (name, dtype), count in self.seen.items():
            if name.startswith(_PRODUCTS):
                found[dtype] += count
        return dict(found)


def _under_autocast(seed: int, device: torch.device) -> dict[str, dict[str, Any]]:
    """Which tensors have 16 bits in a step of two networks, with either 16-bit dtype."""
    found = {}
    for dtype in (torch.bfloat16, torch.float16):
        for name, make in (("MLP", lambda: mlp(64, 32, 3)), ("conv net", conv)):
            torch.manual_seed(seed)
            model, inputs = make().to(device), torch.randn(8, 64, device=device)
            with torch.autocast(device.type, dtype):
                logits = model(inputs)
                logits.retain_grad()
                loss = F.cross_entropy(logits, torch.arange(8, device=device) % 3)
            with _Operands() as backward:
                loss.backward()
            found[f"{name}, {str(dtype).removeprefix('torch.')}"] = {
                "logits": str(logits.dtype),
                "logits.grad": str(logits.grad.dtype),
                "loss": str(loss.dtype),
                ".grad of parameters": sorted({str(p.grad.dtype) for p in model.parameters()}),
                "products in backward": backward.products(),
            }
    return found


_MOVES = ("_to_copy", "t", "view", "detach", "_unsafe_view", "transpose", "permute", "unsqueeze")
"""Operators that compute nothing."""


@claim(
    "F148",
    title="Under autocast most operations run in BF16",
    expected="holds",
    says="Under autocast most operations run in BF16.",
)
def most_in_bf16(seed: int) -> Measured:
    torch.manual_seed(seed)
    shares, held = {}, {}
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    for name, model, inputs in (
        ("MLP", mlp(64, 32, 10), torch.randn(16, 64)),
        ("conv net", conv(), torch.randn(16, 64)),
        ("transformer layer", layer, torch.randn(4, 8, 32)),
    ):
        with torch.autocast("cpu", torch.bfloat16), _Operands() as forward:
            outputs = model(inputs)
            F.cross_entropy(outputs.flatten(1)[:, :10], torch.arange(len(inputs)) % 10)
        calls: Counter[str] = Counter()
        for (operator, dtype), count in forward.seen.items():
            calls[dtype] += count * (operator not in _MOVES)
        products = forward.products()
        for kind, by in (("products", products), ("operations", calls)):
            share = by.get("torch.bfloat16", 0) / sum(by.values())
            shares[f"{name}, {kind}"] = share
            held[f"{name}, {kind}"] = share > 0.5
    evidence = {
        "transformer layer: share of its operations": shares["transformer layer, operations"],
        "share in BF16, forward and loss": shares,
    }
    return weigh_settings(
        "transformer layer: share of its operations",
        evidence,
        held,
        criterion="more than half of the operations run in BF16",
        note="By torch's lists, softmax, normalisation and the loss stay in FP32.",
    )


@claim(
    "F113",
    title="BF16 never overflows and never underflows",
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
        "ends of FP32's range lost in BF16, of 2": overflowed + underflowed,
        "FP32's maximum in BF16": str(largest.bfloat16().item()),
        "FP32's minimum in BF16": smallest.bfloat16().item(),
        "1 − 1,000 · 0.001 in BF16": weight.item(),
    }
    return weigh(
        "ends of FP32's range lost in BF16, of 2",
        evidence,
        stated=not overflowed and not underflowed,
        note="Its range is FP32's except at the very ends; what it lacks is precision.",
    )


def _small_product(scale: float, dtype: torch.dtype = torch.float16) -> float:
    """d(a·b)/da for b = 1e-4 and an upstream gradient of 1e-4, after unscaling."""
    upstream = torch.tensor(1e-4 * scale, dtype=dtype)
    return (upstream * torch.tensor(1e-4, dtype=dtype)).item() / scale


@claim(
    "F114",
    title="FP16 underflows and overflows; scaling helps",
    expected="holds",
    says="In FP16 small gradients become 0 and large numbers become inf; scaling the loss "
    "preserves small gradients.",
)
def fp16_and_scaling(seed: int) -> Measured:
    lost, held = {}, {}
    inputs, targets, *_ = digits(seed)
    for name, make in (("MLP 64-32-10", lambda: mlp(64, 32, 10)), ("small conv net", conv)):
        found = {}
        for scale in (1.0, 2.0**16):
            torch.manual_seed(seed)
            model = make()
            with torch.autocast("cpu", torch.float16):
                outputs = model(inputs[:64])
            (1e-6 * scale * F.cross_entropy(outputs.float(), targets[:64])).backward()
            grads = flat_grad(model) / scale
            model.zero_grad()
            (1e-6 * F.cross_entropy(model(inputs[:64]), targets[:64])).backward()
            whole = flat_grad(model)
            zeros = (grads == 0) & (whole != 0)
            found[f"scale {scale:,g}"] = {
                "share lost": (zeros.sum() / (whole != 0).sum()).item(),
                "difference from FP32": ((grads - whole).norm() / whole.norm()).item(),
            }
        lost[name] = found
        plain, scaled = found.values()
        held[f"{name} on digits, loss times 1e-6, FP16 autocast"] = (
            plain["share lost"] > 0.3 and scaled["difference from FP32"] < 0.05
        )
    overflow = torch.tensor(65_520.0).half().isinf().item()
    held["the number 65,520, which becomes inf"] = overflow
    evidence = {
        "MLP: share of gradients lost unscaled": lost["MLP 64-32-10"]["scale 1"]["share lost"],
        "by scale": lost,
        "a gradient of 1 at scale 65,536": str(torch.tensor(1.0 * 65_536).half().item()),
    }
    return weigh_settings(
        "MLP: share of gradients lost unscaled",
        evidence,
        held,
        criterion="unscaled, more than 30 % of the gradients vanish, and scaled by 65,536 they are "
        "within 5 % of FP32; or the number overflows",
    )


def _scaled_gradient(
    make: Callable[[], nn.Module], enabled: bool, seed: int, dtype: torch.dtype
) -> Tensor:
    """Unscaled gradient of one autocast step, with a GradScaler or without."""
    torch.manual_seed(seed)
    model, inputs = make(), torch.randn(16, 64)
    scaler = torch.amp.GradScaler("cpu", enabled=enabled)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with torch.autocast("cpu", dtype):
        outputs = model(inputs)
    loss = F.cross_entropy(outputs.float(), torch.arange(16) % 10) * 1e-6  # small, so it matters
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    return flat_grad(model)


@claim(
    "F115",
    title="BF16 needs a GradScaler",
    expected="does not hold",
    says="Training in BF16 needs a GradScaler, as FP16 does.",
)
def scaler_with_bf16(seed: int) -> Measured:
    gaps, held = {}, {}
    for name, make in (("MLP 64-32-10", lambda: mlp(64, 32, 10)), ("small conv net", conv)):
        for dtype in (torch.bfloat16, torch.float16):
            with_it, without = (
                _scaled_gradient(make, enabled, seed, dtype) for enabled in (True, False)
            )
            kind = str(dtype).removeprefix("torch.")
            gaps[f"{name}, {kind}"] = ((with_it - without).norm() / with_it.norm()).item()
        held[f"{name}, bfloat16"] = gaps[f"{name}, bfloat16"] > 0.01
    evidence = {
        "MLP: gradient changed by the scaler in BF16, relative": gaps["MLP 64-32-10, bfloat16"],
        "relative change": gaps,
        "gradient 1e-8 in BF16 without scaling": _small_product(1.0, torch.bfloat16),
    }
    return weigh_settings(
        "MLP: gradient changed by the scaler in BF16, relative",
        evidence,
        held,
        criterion="the unscaled gradient changes by more than 1 %, with the loss times 1e-6",
        note="In FP16 the same loss loses most of its gradient. In BF16 a scaler has no effect.",
    )


@claim(
    "F116",
    title="After inf the step is skipped and the scale is reduced",
    expected="holds",
    says="When a gradient is inf or nan, the GradScaler skips the step and reduces the scale.",
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

    step([0.3, 0.4])  # a healthy step first, so that the scale is set
    before, scale = weight.detach().clone(), scaler.get_scale()
    shrunk = []
    for bad in (math.inf, math.nan):
        step([bad, 1.0])
        shrunk.append(scaler.get_scale() / scale)
        scale = scaler.get_scale()
    moved = (weight.detach() - before).norm().item()
    clipped_too_early = step([0.3, 0.4], clip_first=True)
    optimizer.zero_grad()
    scaler.scale(weight.sum()).backward()
    scaler.unscale_(optimizer)
    evidence = {
        "scale after inf / before": shrunk[0],
        "scale after nan / before": shrunk[1],
        "weights moved by": moved,
        "norm of [.3, .4] when clipped to 1 before unscale_": clipped_too_early,
        "second unscale_ raises": error_of(scaler.unscale_, optimizer) or "nothing",
    }
    return weigh("scale after inf / before", evidence, stated=max(shrunk) < 1 and moved == 0)


_SINCE = {"autocast": (1, 10), "GradScaler": (2, 3)}


@claim(
    "F117",
    title="torch.amp has been the API since torch 2.0",
    expected="holds if",
    says="torch.amp.autocast and torch.amp.GradScaler have existed since torch 2.0.",
    condition="if only autocast is meant; torch.amp.GradScaler came with torch 2.3",
)
def amp_api() -> Measured:
    """The versions are from public release threads; only their presence here is measured."""
    here = {name: hasattr(torch.amp, name) for name in _SINCE}
    warned = warnings_of(lambda: torch.cuda.amp.GradScaler(enabled=False))
    evidence = {
        "names that exist here, of 2": sum(here.values()),
        "first torch version, according to public threads": {
            name: ".".join(map(str, version)) for name, version in _SINCE.items()
        },
        "torch.cuda.amp.GradScaler warns": bool(warned),
    }
    return weigh(
        "names that exist here, of 2",
        evidence,
        stated=all(here.values()) and all(version <= (2, 0) for version in _SINCE.values()),
        conditioned=all(here.values()) and _SINCE["autocast"] <= (2, 0),
        note="Older versions of torch cannot be run here; the version for GradScaler is reported, "
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
    title="Training in 16 bits is 2 to 8 times faster",
    expected="needs GPU",
    says="Training in 16 bits is 2 times (or 2 to 4, or 4 to 8 times) faster than in FP32.",
    gpu=True,
)
def half_precision_speed(device: torch.device) -> Measured:
    if device.type != "cuda":
        ratio = _step_time_ratio(256, torch.bfloat16, device)
        evidence = {
            "CPU: time of a step, FP32 / BF16 autocast": ratio.median,
            "quartiles": ratio.as_list(),
        }
        note = "The sources contradict each other; the CPU's result says nothing about a GPU."
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
        note="Only if matrix products dominate; in small layers the casts cost more than they "
        "save.",
    )


@claim(
    "F123",
    title="Multiples of 8 or 16 suit tensor cores",
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
