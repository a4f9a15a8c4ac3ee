"""Bits and values against Python's own half and single formats, and BF16 as the front of FP32."""

import math
import struct

import pytest
import torch

from course.widgets.precision.state import CURVE, VALUES, Settings, frame

CODES = {"FP32": ("f", "I", 32), "FP16": ("e", "H", 16)}


def pattern(name: str, value: float) -> str:
    """The bits of a float32, a half, or a bfloat16 (the upper half of a float32, to even)."""
    if name == "BF16":
        bits = struct.unpack("I", struct.pack("f", value))[0]
        bits += 0x7FFF + ((bits >> 16) & 1)
        return f"{bits >> 16:016b}"
    code, integer, size = CODES[name]
    return f"{struct.unpack(integer, struct.pack(code, value))[0]:0{size}b}"


def number(name: str, bits: str) -> float:
    if name == "BF16":
        name, bits = "FP32", bits + "0" * 16
    code, integer, _ = CODES[name]
    return struct.unpack(code, struct.pack(integer, int(bits, 2)))[0]


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("scale", [1.0, 2.0**16])
def test_bits_and_values_are_those_of_pythons_formats(value, scale):
    for row in frame(Settings(value=value, scale=scale))["rows"]:
        name, exact = row["format"], value * scale
        try:
            expected = pattern(name, exact)
        except OverflowError:  # Python refuses what torch makes inf
            assert row["stored"] == math.inf and row["verdict"] == "becomes inf"
            continue
        assert row["bits"] == expected
        assert row["stored"] == number(name, expected)
        assert row["error"] == pytest.approx(abs(number(name, expected) / exact - 1))
        assert len(row["bits"]) == sum(row["fields"])


@pytest.mark.parametrize("of", ["FP32", "FP16", "BF16"])
@pytest.mark.parametrize("place", [1, 2, 6, 9, 10, 16])
def test_a_flipped_bit_is_the_number_with_that_bit_turned(of, place):
    shown = frame(Settings(value=0.1, of=of, flip=place))
    kept = next(row["bits"] for row in shown["rows"] if row["format"] == of)
    other = kept[: place - 1] + str(1 - int(kept[place - 1])) + kept[place:]
    assert shown["flipped"]["bits"] == other
    assert shown["flipped"]["value"] == number(of, other)
    mantissa = {"FP32": 23, "FP16": 10, "BF16": 7}[of]
    ratio = shown["flipped"]["value"] / number(of, kept)
    if shown["flipped"]["field"] == "sign":
        assert place == 1 and ratio == -1
    elif shown["flipped"]["field"] == "exponent":
        assert place <= len(kept) - mantissa and math.log2(ratio).is_integer()
    else:
        assert place > len(kept) - mantissa and 0.5 < ratio < 2


def test_a_loss_scale_saves_a_small_gradient_in_fp16_and_no_scale_saves_70_000():
    def half(**about):
        return frame(Settings(**about))["rows"][1]

    assert half(value=1e-8)["verdict"] == "becomes 0" and half(value=1e-8)["back"] == 0.0
    assert half(value=1e-8, scale=2.0**16)["back"] == pytest.approx(1e-8, rel=1e-3)
    assert half(value=70_000.0)["verdict"] == "becomes inf"
    assert half(value=65_504.0)["verdict"] == "exact" and half(value=1e-7)["verdict"] == "subnormal"
    assert half(value=2049.0)["stored"] == 2048.0
    brain = frame(Settings(value=70_000.0))["rows"][2]
    assert brain["verdict"] == "rounded" and brain["error"] < 2**-8


def test_the_next_number_is_where_torch_says():
    for value in (0.1, 1.0, 257.0):
        rows = {row["format"]: row for row in frame(Settings(value=value))["rows"]}
        now = torch.tensor(value)
        gap = torch.nextafter(now, torch.tensor(math.inf)) - now
        assert rows["FP32"]["gap"] == gap.item()
    at_one = {row["format"]: row["gap"] for row in frame(Settings(value=1.0))["rows"]}
    assert at_one == {"FP32": 2.0**-23, "FP16": 2.0**-10, "BF16": 2.0**-7}


def test_the_curve_is_flat_at_half_a_gap_where_the_format_is_normal_and_all_is_lost_outside():
    curves = frame(Settings())["curves"]
    for name, dtype in (("FP32", "float32"), ("FP16", "float16"), ("BF16", "bfloat16")):
        info = torch.finfo(getattr(torch, dtype))
        low, high = math.log2(info.smallest_normal), math.log2(info.max)
        for exponent, error in zip(CURVE, curves[name], strict=True):
            if low <= exponent < high - 1:
                assert 0.97 * info.eps / 2 < error <= info.eps / 2, (name, exponent)
            elif exponent < low + math.log2(info.eps) - 1 or exponent > high:
                assert error == 1.0, (name, exponent)
