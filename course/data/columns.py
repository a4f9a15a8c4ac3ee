"""Columns of any kind, made comparable: the two sides of a split may hold anything.

A column may be a tensor of any dtype, an array, or a list with text, dates or gaps in it. Two cells
are equal if Python says so: 1, 1.0 and True are one value, 1 and "1" are two; but nan equals nan
here, because a copied row with a gap is still a copy. What cannot be compared raises an error.

Source: Lecture 3, "Splits and shift"; ledger T24.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Hashable, Iterable
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

NUMBERS = "fiub"
TIMES = "mM"
LARGE = 1e100
"""Columns beyond this are scaled down before they are squared."""
KINDS = {"f": "numbers", "i": "numbers", "u": "numbers", "b": "numbers", "c": "complex numbers",
         "U": "text", "S": "bytes", "M": "dates", "m": "durations", "V": "records",
         "O": "objects"}  # fmt: skip
NOTHING = ("", "nothing")
"""The key of nan, None, NaT and pandas' NA."""


class NotComparable(ValueError):
    """A column holds values that cannot be compared; the message says which."""


def as_array(values: Any) -> np.ndarray:
    """Convert a column to an array: half precision to float32, objects that are numbers to numbers.

    Args:
        values: [N, ...]: a tensor of any dtype or layout, an array, or a sequence of rows.
    """
    if isinstance(values, Tensor):
        return _of_tensor(values)
    if isinstance(values, (list, tuple)) and values and isinstance(values[0], Tensor):
        return _of_rows([as_array(row) for row in values])
    if isinstance(values, np.ma.MaskedArray):
        values = np.array(values.tolist(), dtype=object)  # None where it is masked
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths
        return _of_rows(list(values))
    if array.dtype.kind in "US" and isinstance(values, (list, tuple)):
        array = _of_mixed(values, array)  # NumPy has made text of the numbers among them
    if array.dtype.kind == "O":
        return _of_objects(array)
    if array.dtype.kind in "fc" and array.dtype.itemsize > (8 if array.dtype.kind == "f" else 16):
        return array.astype(np.float64 if array.dtype.kind == "f" else np.complex128)
    return array


def _of_tensor(values: Tensor) -> np.ndarray:
    values = values.detach().cpu()
    if values.is_quantized:
        values = values.dequantize()
    if values.layout != torch.strided:
        values = values.to_dense()
    values = values.resolve_conj().resolve_neg()
    if values.dtype is torch.complex32:
        return values.to(torch.complex64).numpy()
    try:
        return values.numpy()
    except TypeError:  # bfloat16 and the kinds of 8 bits: float32 holds each of their numbers
        return values.float().numpy()


def _of_rows(rows: list[Any]) -> np.ndarray:
    shapes = {np.shape(row) if isinstance(row, np.ndarray) else None for row in rows}
    if len(shapes) == 1 and None not in shapes:
        return np.stack(rows)
    array = np.empty(len(rows), dtype=object)
    for place, row in enumerate(rows):
        array[place] = row
    return array


def _of_mixed(values: Iterable[Any], array: np.ndarray) -> np.ndarray:
    mixed = np.array(values, dtype=object)
    alike = mixed.shape == array.shape and all(isinstance(v, (str, bytes)) for v in mixed.flat)
    return array if alike else mixed


def _of_objects(array: np.ndarray) -> np.ndarray:
    """Objects that are all numbers, or nothing, as numbers, unless they are too large for it."""
    cells = array.ravel().tolist()
    numbers = [cell for cell in cells if not is_nothing(cell)]
    if not numbers or not all(isinstance(cell, Real) for cell in numbers):
        return array
    integers = [abs(cell) for cell in numbers if isinstance(cell, Integral)]
    most = 2**63 if len(integers) == len(cells) else 2**53
    if max(integers, default=0) >= most:
        return array  # as float64 they would lose digits, and two of them be taken for one
    try:
        return np.array([np.nan if is_nothing(c) else c for c in cells]).reshape(array.shape)
    except (OverflowError, ValueError):
        return array


def is_nothing(cell: Any) -> bool:
    """Whether a cell is a gap: None, nan, NaT, or pandas' NA."""
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(cell, (np.datetime64, np.timedelta64)):
        return bool(np.isnat(cell))
    return isinstance(cell, (float, np.floating)) and cell != cell


def key_of(cell: Any) -> Hashable:
    """A key that is the same for equal cells, whatever they are.

    Raises:
        NotComparable: An object has neither numbers nor a hash.
    """
    if is_nothing(cell):
        return NOTHING
    if isinstance(cell, (Tensor, np.ndarray)):
        array = as_array(cell)
        return array.shape, tuple(key_of(item) for item in array.ravel().tolist())
    if isinstance(cell, dict):
        return frozenset((key_of(name), key_of(item)) for name, item in cell.items())
    if isinstance(cell, (list, tuple)):
        return tuple(key_of(item) for item in cell)
    if isinstance(cell, (set, frozenset)):
        return frozenset(key_of(item) for item in cell)
    try:
        hash(cell)
    except TypeError as error:
        raise NotComparable(f"{type(cell).__name__} objects cannot be compared") from error
    return cell


def keys_of(values: Any) -> list[Hashable]:
    """A key for each example of a column.

    Raises:
        NotComparable: As `key_of`.
    """
    return [key_of(cell) for cell in as_array(values).tolist()]


def kind_of(array: np.ndarray) -> str:
    """What a column holds, in one or two words."""
    return KINDS.get(array.dtype.kind, str(array.dtype))


def alike(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether cells of two columns can be equal at all: text never equals a number."""
    kinds = {KINDS.get(part.dtype.kind) for part in (one, other)}
    return len(kinds) == 1 or "objects" in kinds or kinds == {"numbers", "complex numbers"}


def in_order(values: Any) -> np.ndarray:
    """Times [N] as an array that can be sorted: numbers, dates, or ISO dates as text.

    Raises:
        NotComparable: They are of a kind without an order.
    """
    times = as_array(values)
    times = times.reshape(-1) if times.ndim == 2 and times.shape[1] == 1 else times
    if times.ndim != 1:
        raise NotComparable(f"times are {list(times.shape)}: expected one time per example, [N]")
    if times.dtype.kind in NUMBERS + TIMES:
        return times
    if times.dtype.kind == "U":
        try:
            return times.astype("datetime64[us]")
        except ValueError as error:
            raise NotComparable(
                f"times are text but not ISO dates, e.g. {str(times[0])!r}"
            ) from error
    dates = (datetime.date, np.datetime64, type(None))
    if times.dtype.kind == "O" and all(isinstance(t, dates) or is_nothing(t) for t in times):
        zoned = {getattr(time, "tzinfo", None) is not None for time in times if time is not None}
        if len(zoned) > 1:
            raise NotComparable("some times have a time zone and some do not")
        return np.array([_as_utc(time) for time in times], dtype="datetime64[us]")
    raise NotComparable(f"times are {kind_of(times)}, which have no order")


def _as_utc(time: Any) -> Any:
    if is_nothing(time):
        return np.datetime64("NaT")
    if getattr(time, "tzinfo", None) is not None:
        return time.astimezone(datetime.UTC).replace(tzinfo=None)
    return time


def gaps(array: np.ndarray) -> np.ndarray:
    """Which cells are nan, NaT or None, as bools of the array's shape."""
    if array.dtype.kind in "fc":
        return np.isnan(array)
    if array.dtype.kind in TIMES:
        return np.isnat(array)
    if array.dtype.kind == "O":
        return np.array([is_nothing(cell) for cell in array.flat], bool).reshape(array.shape)
    return np.zeros(array.shape, bool)


def filled(
    rows: np.ndarray, reference: np.ndarray, *, marks: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """Rows [N, D] and [R, D] as finite float64 numbers, small enough to be squared.

    A nan or inf becomes the median of the reference's column, and with `marks` a further column
    says where it was, because rows with different gaps are different rows.
    """
    parts = [part.astype(np.float64) for part in (rows, reference)]
    holes = [~np.isfinite(part) for part in parts]
    holed = np.flatnonzero(holes[0].any(0) | holes[1].any(0))
    if len(holed):
        holes = [hole[:, holed] for hole in holes]
        known = [
            column[~hole] for column, hole in zip(parts[1][:, holed].T, holes[1].T, strict=True)
        ]
        middle = np.array([np.median(column) if len(column) else 0.0 for column in known])
        signs = [np.nan_to_num(p[:, holed], nan=2.0, posinf=1.0, neginf=-1.0) for p in parts]
        marked = [np.where(hole, sign, 0.0) for hole, sign in zip(holes, signs, strict=True)]
        for part, hole in zip(parts, holes, strict=True):
            part[:, holed] = np.where(hole, middle, part[:, holed])
        if marks:
            parts = [np.hstack(pair) for pair in zip(parts, marked, strict=True)]
    largest = np.maximum(*(abs(part).max(0, initial=0.0) for part in parts))
    if (largest > LARGE).any():
        parts = [part / np.where(largest > LARGE, largest, 1.0) for part in parts]
    return tuple(parts)


def row_keys(rows: np.ndarray, others: np.ndarray) -> tuple[list[Hashable], list[Hashable]]:
    """A key for each row [N, D] of two tables, the same for equal rows of any dtype; -0.0 is 0.0.

    Raises:
        NotComparable: As `key_of`, or one holds text and the other numbers.
    """
    if not alike(rows, others):
        raise NotComparable(f"one side holds {kind_of(rows)} and the other {kind_of(others)}")
    pair = (rows, others)
    if any(part.dtype.kind in "OV" for part in pair):
        return tuple([key_of(row) for row in part.tolist()] for part in pair)
    kind = np.result_type(rows, others)
    if kind.kind in "fc" and any(_has_large_integers(part) for part in pair):
        return tuple([key_of(row) for row in part.tolist()] for part in pair)  # float64 would round
    return tuple([_row_hash(row) for row in _one_spelling(part.astype(kind))] for part in pair)


def _has_large_integers(part: np.ndarray) -> bool:
    if part.dtype.kind not in "iu" or not part.size or part.dtype.itemsize < 8:
        return False
    return int(part.max()) > 2**53 or int(part.min()) < -(2**53)


def _one_spelling(part: np.ndarray) -> np.ndarray:
    """-0.0 as 0.0, and every nan as the same one, in place."""
    if part.dtype.kind in "fc":
        part += 0.0
        part[np.isnan(part)] = np.nan
    return part


def _row_hash(row: np.ndarray) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(row).tobytes(), digest_size=12).digest()


def codes_of(*columns: np.ndarray) -> tuple[list[np.ndarray], list[Any]]:
    """A number for each cell of each column [N], the same for equal cells, and their names.

    Raises:
        NotComparable: As `key_of`.
    """
    numbers: dict[Hashable, int] = {}
    names: list[Any] = []
    coded = []
    for column in columns:
        codes = []
        for cell in column.tolist():
            key = key_of(cell)
            if key not in numbers:
                numbers[key] = len(numbers)
                names.append(cell)
            codes.append(numbers[key])
        coded.append(np.array(codes, dtype=np.int64))
    return coded, names


def as_column(values: np.ndarray) -> np.ndarray:
    """[N] of a single column [N, 1]; anything else as it is."""
    return values.reshape(-1) if values.ndim == 2 and values.shape[1] == 1 else values
