"""What a number becomes in FP32, FP16 and BF16: its bits, its error, the effect of a loss scale.

torch does the rounding: a number times the loss scale is stored in each format, read back, and
divided by the scale in FP32, as a gradient would be. The bits are those that torch stores, and a
flip acts on them. The curve is also measured: the worst relative error of random numbers in each
power of two.

Source: Lecture 3, "Mixed precision · BF16 is the 2026 default"; ledger S14, N34, N35, F112-F117.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from course.widgets.base.settings import Checked, choice, slider, steps
from course.worked.precision import FORMATS, bit_fields

VALUES = (
    1e-40, 1e-12, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 0.1, 1.0, 1.001, math.pi, 257.0, 2049.0,
    65_504.0, 70_000.0, 1e10, 1e38,
)  # fmt: skip
"""A gradient too small for FP16, pi, the first whole numbers that 16 bits miss, and overflows."""
FLIPS = 16
"""Bits that can be flipped, starting with the sign; FP32 has 16 more at its end."""
CURVE = range(-152, 130, 2)
"""Powers of two over which the error is measured: from below FP32's smallest to its largest."""
PER_OCTAVE = 4096
"""Random numbers in each: enough for one to be near the middle between two neighbours."""
INTEGERS = {"FP32": torch.int32, "FP16": torch.int16, "BF16": torch.int16}


@dataclass(frozen=True, kw_only=True)
class Settings(Checked):
    """The number, its factor before it is stored, and a bit to flip in one of the formats."""

    value: float = slider(1e-8, VALUES, "number")
    scale: float = choice(
        1.0,
        (1.0, 2.0**10, 2.0**16, 2.0**24),
        "loss scale",
        names=("1 (none)", "2¹⁰ = 1,024", "2¹⁶ = 65,536", "2²⁴ = 16,777,216"),
        hint="multiplied by this when stored, divided by it afterwards",
    )
    flip: int = slider(0, steps(0, FLIPS, 1), "flip bit", hint="counted from the left; 0: none")
    of: str = choice("FP16", tuple(FORMATS), "of format", hint="the format whose bit is flipped")


def frame(settings: Settings) -> dict[str, Any]:
    """The stored number, its bits and error per format; the flipped bit; errors by magnitude."""
    exact = settings.value * settings.scale
    return {
        "exact": exact,
        "rows": [_landed(name, settings.value, settings.scale) for name in FORMATS],
        "flipped": _flipped(settings.of, exact, settings.flip) if settings.flip else None,
        "curves": _curves(),
    }


def stored(name: str, value: float) -> Tensor:
    """The nearest number in the format, as a tensor without dimensions."""
    return torch.tensor(value, dtype=torch.float64).to(getattr(torch, FORMATS[name]))


def bits_of(number: Tensor, name: str) -> str:
    """The stored bits, sign first."""
    size = torch.finfo(number.dtype).bits
    return f"{number.view(INTEGERS[name]).item() & (2**size - 1):0{size}b}"


def _landed(name: str, value: float, scale: float) -> dict[str, Any]:
    number = stored(name, value * scale)
    back = (number.float() / scale).item()
    error = abs(number.double().item() / (value * scale) - 1)
    return {
        "format": name,
        "bits": bits_of(number, name),
        "fields": bit_fields(name),
        "stored": number.double().item(),
        "back": back,
        "error": error,
        "gap": _gap(number, name),
        "verdict": _verdict(number, error),
    }


def _gap(number: Tensor, name: str) -> float:
    """The gap to the next larger number in the format: one more in the stored bits."""
    following = (number.view(INTEGERS[name]) + 1).view(number.dtype)
    return (following.double() - number.double()).item()


def _verdict(number: Tensor, error: float) -> str:
    info = torch.finfo(number.dtype)
    if number.isinf():
        return "becomes inf"
    if number == 0:
        return "becomes 0"
    if error == 0:
        return "exact"
    return "subnormal" if number < info.smallest_normal else "rounded"


def _flipped(name: str, exact: float, place: int) -> dict[str, Any]:
    """The stored number with one bit turned over, the first being the sign."""
    number = stored(name, exact)
    size = torch.finfo(number.dtype).bits
    mask = 1 << (size - place)
    mask -= 2**size if place == 1 else 0  # the sign bit of a signed integer
    turned = (number.view(INTEGERS[name]) ^ torch.tensor(mask, dtype=INTEGERS[name])).view(
        number.dtype
    )
    sign, exponent, _ = bit_fields(name)
    field = "sign" if place <= sign else "exponent" if place <= sign + exponent else "mantissa"
    return {
        "place": place,
        "field": field,
        "bits": bits_of(turned, name),
        "value": turned.double().item(),
    }


@lru_cache
def _curves() -> dict[str, Any]:
    """The worst relative error of each format over the magnitude; lost numbers have error 1."""
    errors: dict[str, list[float]] = {name: [] for name in FORMATS}
    drawn = torch.rand(PER_OCTAVE, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for exponent in CURVE:
        exact = (1 + drawn) * 2.0**exponent
        for name, found in errors.items():
            kept = exact.to(getattr(torch, FORMATS[name])).double()
            error = (kept / exact - 1).abs().clamp(max=1.0)  # inf counts as all lost
            found.append(error.max().item())
    return {"magnitude": [2.0**exponent for exponent in CURVE], **errors}


def says(settings: Settings, frame: dict[str, Any]) -> str:
    """What the number becomes in each format."""
    words = [f"{row['format']} {row['verdict']}" for row in frame["rows"]]
    times = f" times {settings.scale:,.0f}" if settings.scale != 1 else ""
    told = f"{_short(settings.value)}{times}: {', '.join(words)}."
    if frame["flipped"]:
        place, turned = frame["flipped"]["place"], _short(frame["flipped"]["value"])
        told += f" Bit {place} of {settings.of} flipped gives {turned}."
    return told


def _short(value: float | str) -> str:
    """1e-8, where Python writes 1e-08."""
    return f"{float(value):.4g}".replace("e-0", "e-").replace("e+", "e")
