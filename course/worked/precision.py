"""Precision: three floating-point formats, what rounding loses, and FP16's loss scale."""

import math
from collections.abc import Iterator

import torch

from course.worked.registry import worked
from course.worked.step import Step

FORMATS = {"FP32": "float32", "FP16": "float16", "BF16": "bfloat16"}


@worked(
    "N34",
    title="The gradient scaler's numbers",
    perturb={"init_scale": 2.0**15},
)
def gradient_scaler(init_scale: float = 2.0**16, growth_interval: int = 2000) -> Iterator[Step]:
    """A real scaler: its first scale, a full interval of good steps, then one infinite gradient."""
    defaults = torch.amp.GradScaler("cpu")
    yield Step(
        "torch's first scale", defaults.get_scale(), 65_536.0, formula="2¹⁶", as_printed="2^{16}"
    )
    yield Step("good steps until it grows", defaults.get_growth_interval())
    scaler = torch.amp.GradScaler("cpu", init_scale=init_scale, growth_interval=growth_interval)
    early, grown = (_scale_after(scaler, 1.0, steps) for steps in (growth_interval - 1, 1))
    yield Step("factor one good step before", early / init_scale)
    yield Step("factor after the last good step", grown / init_scale)
    yield Step("then after one inf, factor", _scale_after(scaler, math.inf, 1) / grown)

    half = torch.finfo(torch.float16)
    tiny = half.smallest_normal * half.eps
    yield Step("smallest FP16 subnormal", tiny, formula="2⁻¹⁴ · 2⁻¹⁰")
    for share in (0.5, 0.75):
        kept = torch.tensor(share * tiny, dtype=torch.float64).to(torch.float16)
        yield Step(f"{share} of it in FP16", kept.item())
    survivor = torch.tensor(tiny / init_scale, dtype=torch.float64)
    yield Step(
        "smallest gradient that survives scaling", survivor, formula=f"2⁻²⁴ / {init_scale:g}"
    )
    yield Step("that gradient, scaled, in FP16", (survivor * init_scale).to(torch.float16).item())
    yield Step("that gradient, unscaled, in FP16", survivor.to(torch.float16).item())
    yield Step(
        "gradients overflow above", half.max / init_scale, formula=f"65,504 / {init_scale:,g}"
    )
    over = torch.tensor(1.0, dtype=torch.float64) * init_scale
    yield Step("a gradient of 1, scaled, in FP16", over.to(torch.float16).item())


def _scale_after(scaler: torch.amp.GradScaler, grad: float, steps: int) -> float:
    """The scale after `steps` updates whose gradient is `grad` everywhere."""
    weight = torch.zeros(1, device="cpu", requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.0)
    scaler.scale(torch.ones((), device="cpu"))  # the first loss makes the scale a tensor
    for _ in range(steps):
        weight.grad = torch.full((1,), grad, device="cpu")
        scaler.step(optimizer)
        scaler.update()
    return scaler.get_scale()


@worked(
    "N35",
    title="FP32, FP16 and BF16",
    perturb={"small": 0.01},
    figure="formats",
)
def number_formats(
    formats: tuple[str, ...] = ("FP32", "FP16", "BF16"),
    small: float = 0.001,
    large: float = 70_000.0,
) -> Iterator[Step]:
    """Bits, range and precision as torch reports them; then what rounding loses."""
    infos = [torch.finfo(getattr(torch, FORMATS[name])) for name in formats]
    for name in formats:
        bits = bit_fields(name)
        yield Step(f"{name}: bits", sum(bits), formula="sign + exponent + mantissa", **_BITS[name])
        yield Step(f"{name}: sign, exponent, mantissa", bits)
    for name, info in zip(formats, infos, strict=True):
        yield Step(f"{name}: largest", info.max, 65_504.0 if name == "FP16" else None)
        if name != "FP16":
            ten = math.floor(math.log10(info.max))
            known = {"printed": 38, "as_printed": "10³⁸"} if name == "BF16" else {}
            yield Step(f"{name}: largest, power of ten", ten, formula="⌊log₁₀ largest⌋", **known)
    yield Step("eps", [info.eps for info in infos], formula="2^−mantissa")
    for name, info in zip(formats, infos, strict=True):
        digits = -math.log10(info.eps)
        between = [math.floor(digits), math.ceil(digits)]
        yield Step(f"{name}: decimal digits", digits, formula="−log₁₀ eps")
        yield Step(f"{name}: decimal digits, as a range", between, **_DIGITS.get(name, {}))
    yield Step("smallest normal", [info.smallest_normal for info in infos])
    subnormal = [info.smallest_normal * info.eps for info in infos]
    yield Step("smallest subnormal", subnormal, formula="smallest normal · eps")
    for what, value, addend in (
        ("FP16: 65,519", 65_519.0, 0.0),
        ("FP16: 65,520", 65_520.0, 0.0),
        ("FP16: 2048 + 1", 2048.0, 1.0),
        ("BF16: FP32's largest", torch.finfo(torch.float32).max, 0.0),
        (f"BF16: 1 + {small:g}", 1.0, small),
        ("BF16: 256 + 1", 256.0, 1.0),
        (f"BF16: {large:,g}", large, 0.0),
        ("FP16: π", math.pi, 0.0),
        ("BF16: π", math.pi, 0.0),
    ):
        dtype = getattr(torch, FORMATS[what[:4]])
        total = torch.tensor(value, dtype=dtype) + torch.tensor(addend, dtype=dtype)
        yield Step(what, total.item())


_BITS = {
    name: {"printed": bits, "as_printed": f"{bits} bits", "at": place} if place else {}
    for name, bits, place in (
        ("FP32", 32, 'lecture "Why not just use full precision (FP32)?"'),
        ("FP16", 16, 'lecture "Why not just use full precision (FP32)?"'),
        ("BF16", 16, ""),
    )
}
_DIGITS = {
    "FP16": {"printed": [3, 4], "as_printed": "3-4 decimal digits"},
    "BF16": {"printed": [2, 3], "as_printed": "2-3 decimal digits"},
}


def bit_fields(name: str) -> list[int]:
    """Sign, exponent and mantissa bits of a format, from torch.finfo."""
    info = torch.finfo(getattr(torch, FORMATS[name]))
    mantissa = round(-math.log2(info.eps))
    return [1, info.bits - 1 - mantissa, mantissa]
