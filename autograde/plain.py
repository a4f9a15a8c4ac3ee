"""Plain data between processes: JSON with tensors as base64 of known dtypes. Never pickle.

What a student's process sends is untrusted: it is bounded in size and depth, and can become only
tensors, numbers, strings, lists and dicts.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from typing import Any

import torch
from torch import Tensor

DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float64, torch.float32, torch.float16, torch.bfloat16,
        torch.int64, torch.int32, torch.uint8, torch.bool,
    )
}  # fmt: skip
MAX_DEPTH = 12
UNREADABLE = (
    ArithmeticError, AttributeError, KeyError, RecursionError, RuntimeError, TypeError, ValueError,
)  # fmt: skip
MAX_DIMENSIONS = 8
MAX_INT_BITS = 64
"""Whole numbers beyond this can't be compared with a float, and nobody needs them."""
MAX_VALUES = 200_000
"""Values in one message, a tensor counting as a few: each takes a reader twenty times its bytes."""
TENSOR = "__tensor__"


class PlainDataError(ValueError):
    """Something that is not plain data, or too much of it."""


def to_bytes(value: Any, *, depth: int = MAX_DEPTH) -> bytes:
    """Encode plain data; tensors travel detached, dense, contiguous and from the CPU.

    Raises:
        PlainDataError: A value of another type, or nested too deeply.
    """
    return json.dumps(_pack(value, depth)).encode()


def from_bytes(raw: bytes, *, max_bytes: int = 64 * 2**20, depth: int = MAX_DEPTH) -> Any:
    """Decode plain data.

    Raises:
        PlainDataError: Too long, too many values, not JSON, or a tensor whose parts do not fit.
    """
    if len(raw) > max_bytes:
        raise PlainDataError(f"{len(raw):,} bytes were sent; at most {max_bytes:,} are read.")
    if (count := sum(map(raw.count, (b",", b"[", b"{")))) > MAX_VALUES:
        raise PlainDataError(f"{count:,} values were sent; at most {MAX_VALUES:,} are read.")
    try:
        return _unpack(json.loads(raw, parse_constant=_no_constant), depth)
    except UNREADABLE as fault:
        raise PlainDataError(f"What was sent is not plain data ({fault}).") from fault


def _no_constant(name: str) -> None:
    raise PlainDataError(f"{name} is not JSON; such a number travels as __float__.")


def _pack(value: Any, depth: int) -> Any:
    if depth == 0:
        raise PlainDataError(f"Nested deeper than {MAX_DEPTH} levels.")
    if isinstance(value, Tensor) and value.device.type not in ("cpu", "meta"):
        value = value.detach().cpu()
    if type(value) in (Tensor, torch.nn.Parameter):
        dtype = str(value.dtype).removeprefix("torch.")
        if dtype not in DTYPES or value.layout != torch.strided or value.is_meta:
            raise PlainDataError(f"A {value.layout} tensor of {value.dtype} is not plain data.")
        raw = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        return {TENSOR: dtype, "shape": list(value.shape), "data": base64.b64encode(raw).decode()}
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"__float__": str(value)}
    if type(value) in (list, tuple):
        return [_pack(item, depth - 1) for item in value]
    if type(value) is dict and all(type(key) is str for key in value):
        return {key: _pack(item, depth - 1) for key, item in value.items()}
    raise PlainDataError(f"A {type(value).__name__} is not plain data.")


def _unpack(value: Any, depth: int) -> Any:
    if depth == 0:
        raise PlainDataError(f"Nested deeper than {MAX_DEPTH} levels.")
    if isinstance(value, list):
        return [_unpack(item, depth - 1) for item in value]
    if isinstance(value, int) and value.bit_length() > MAX_INT_BITS:
        raise PlainDataError(
            f"A whole number of {value.bit_length()} bits; at most {MAX_INT_BITS}."
        )
    if isinstance(value, str):
        value.encode()  # half a character, which no file can hold, is a UnicodeEncodeError
    if not isinstance(value, dict):
        return value
    if TENSOR in value:
        return _unpack_tensor(value)
    if "__float__" in value:
        return float({"inf": "inf", "-inf": "-inf", "nan": "nan"}[value["__float__"]])
    return {_unpack(key, depth): _unpack(item, depth - 1) for key, item in value.items()}


def _unpack_tensor(packed: dict[str, Any]) -> Tensor:
    dtype = DTYPES[packed[TENSOR]]
    shape = packed["shape"]
    if type(shape) is not list or len(shape) > MAX_DIMENSIONS:
        raise PlainDataError(f"A tensor's shape is a list of at most {MAX_DIMENSIONS} sizes.")
    if any(type(size) is not int or not 0 <= size < 2**40 for size in shape):
        raise PlainDataError("A tensor's sizes are whole numbers from 0.")
    try:
        raw = base64.b64decode(packed["data"], validate=True)
    except binascii.Error as fault:
        raise PlainDataError(f"A tensor's data is not base64 ({fault}).") from fault
    if math.prod(shape) * dtype.itemsize != len(raw):
        raise PlainDataError(f"{len(raw)} bytes do not fill a tensor {shape} of {dtype}.")
    if not raw:
        return torch.empty(shape, dtype=dtype)
    octets = torch.frombuffer(bytearray(raw), dtype=torch.uint8)
    flat = octets.ne(0) if dtype == torch.bool else octets.view(dtype)
    return flat.reshape(shape)
