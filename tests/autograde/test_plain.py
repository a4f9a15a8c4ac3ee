"""Plain data crosses unchanged; what is not plain, or does not fit together, is refused."""

import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from autograde import plain
from autograde.compare import first_difference

numbers = st.one_of(st.booleans(), st.integers(-(2**40), 2**40), st.floats(), st.text(), st.none())
values = st.recursive(
    numbers,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(values)
def test_nested_values_come_back_as_they_went(value):
    back = plain.from_bytes(plain.to_bytes({"x": value}))["x"]
    assert repr(back) == repr(value)


@pytest.mark.parametrize("dtype", plain.DTYPES.values(), ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4), (2, 3)])
def test_tensors_come_back_bit_for_bit(dtype, shape):
    tensor = (torch.randn(shape) * 3).to(dtype)
    back = plain.from_bytes(plain.to_bytes({"t": tensor}))["t"]
    assert back.dtype == dtype and back.shape == tensor.shape
    assert torch.equal(back, tensor)


def test_nan_and_infinity_survive():
    back = plain.from_bytes(plain.to_bytes([math.inf, -math.inf, math.nan]))
    assert back[:2] == [math.inf, -math.inf] and math.isnan(back[2])


def test_a_tensor_that_requires_grad_travels_without_its_graph():
    back = plain.from_bytes(plain.to_bytes(torch.nn.Parameter(torch.ones(2))))
    assert not back.requires_grad


class Liar(torch.Tensor):
    """A subclass could answer anything."""


@pytest.mark.parametrize(
    "value",
    [
        object(),
        {1: 2},
        {"f": print},
        torch.ones(2).to_sparse(),
        torch.ones(2, dtype=torch.complex64),
        torch.ones(2).as_subclass(Liar),
        torch.ones(2, device="meta"),
    ],
)
def test_what_is_not_plain_is_refused(value):
    with pytest.raises(plain.PlainDataError):
        plain.to_bytes(value)


def deep(levels: int) -> list:
    return [deep(levels - 1)] if levels else []


def test_depth_is_bounded_both_ways():
    with pytest.raises(plain.PlainDataError, match="deeper"):
        plain.to_bytes(deep(40))
    with pytest.raises(plain.PlainDataError):
        plain.from_bytes(b"[" * 100_000)


@pytest.mark.parametrize(
    "forged",
    [
        b"not json",
        b"\xff\xfe",
        json.dumps({"__tensor__": "float32", "shape": [10**12], "data": ""}).encode(),
        json.dumps({"__tensor__": "float32", "shape": [-1], "data": "AAAA"}).encode(),
        json.dumps({"__tensor__": "object", "shape": [1], "data": "AAAA"}).encode(),
        json.dumps({"__tensor__": "float32", "shape": "x", "data": "AAAA"}).encode(),
        json.dumps({"__tensor__": "float32", "shape": [1], "data": "!!"}).encode(),
        json.dumps({"__tensor__": "float32"}).encode(),
        json.dumps({"__float__": "1e9"}).encode(),
    ],
)
def test_forged_bytes_are_refused_in_words(forged):
    with pytest.raises(plain.PlainDataError):
        plain.from_bytes(forged)


def test_size_is_bounded():
    with pytest.raises(plain.PlainDataError, match="at most 10 are read"):
        plain.from_bytes(b"[1, 2, 3, 4]", max_bytes=10)


def test_comparison_names_field_place_and_both_values():
    expected = {"weights": {"0.bias": torch.tensor([1.0, 2.0])}, "loss": 1.0}
    got = {"weights": {"0.bias": torch.tensor([1.0, 2.5])}, "loss": 1.0}
    difference = first_difference(expected, got)
    assert (difference.field, difference.where) == ("weights", "0.bias[1]")
    assert (difference.expected, difference.got) == ("2", "2.5")
    assert first_difference(expected, got, fields=("loss",)) is None
    assert first_difference(expected, got, fields=("of another part",)) is None
    assert first_difference({}, got, fields=("loss",)).expected == "nothing"


@pytest.mark.parametrize(
    "expected,got",
    [
        (torch.ones(2), torch.ones(3)),
        (torch.ones(2), torch.ones(2, dtype=torch.float64)),
        (torch.ones(2), torch.full((2,), math.nan)),
        (torch.ones(2), [1.0, 1.0]),
        ([1, 2], [1, 2, 3]),
        ({"a": 1}, {"a": 1, "b": 2}),
        (True, 1),
        (1.0, True),
        (None, 0.0),
        ("a", "b"),
        (1.0, math.inf),
        (math.inf, 1.0),
        ([-math.inf], [math.inf]),
    ],
)
def test_what_is_not_the_same_differs(expected, got):
    assert first_difference({"x": expected}, {"x": got}) is not None


@pytest.mark.parametrize(
    "expected,got",
    [(1.0, 1.00001), (1.0, 1), (math.nan, math.nan), (torch.ones(2), torch.ones(2) + 1e-5)],
)
def test_rounding_is_no_difference(expected, got):
    assert first_difference({"x": expected}, {"x": got}) is None


@pytest.mark.parametrize(
    ("own", "off", "differs"),
    [
        ({}, 5e-4, False),
        ({}, 5e-3, True),
        ({torch.float32: (0.05, 0.0)}, 0.04, False),
        ({torch.float32: (0.05, 0.0)}, 0.1, True),
        ({torch.float32: (1e-6, 1e-8)}, 5e-5, True),
    ],
)
def test_a_gpus_rounding_widens_only_what_allows_for_rounding(own, off, differs):
    given = {"x": 1.0}, {"x": 1.0 + off}
    assert (first_difference(*given, tolerance=own, on_gpu=True) is not None) == differs
