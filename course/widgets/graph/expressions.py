"""The expressions on the page: functions that run, and where their tensors are drawn.

The code on the page is the source of the functions. Each returns all its tensors by name, inputs
first, the loss last.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Number = float | tuple[float, ...]


def product(a: Tensor, x: Tensor, b: Tensor) -> dict[str, Tensor]:
    c = a * x
    loss = c + b
    return locals()


def square(w: Tensor, x: Tensor, b: Tensor) -> dict[str, Tensor]:
    z = w * x
    h = z + b
    loss = h**2
    return locals()


def twice(a: Tensor, x: Tensor) -> dict[str, Tensor]:
    c = a * x
    loss = c + a
    return locals()


def layers(w1: Tensor, x: Tensor, w2: Tensor, y: Tensor) -> dict[str, Tensor]:
    z1 = w1 * x
    h = torch.relu(z1)
    z2 = w2 * h
    p = torch.relu(z2)
    e = p - y
    loss = e**2
    return locals()


def branch(x: Tensor) -> dict[str, Tensor]:
    m = x.mean()
    if m > 0:
        s = x.square()
        t = s.sum()
        loss = 0.5 * t
    else:
        u = x.sum()
        loss = -0.5 * u
    return locals()


@dataclass(frozen=True)
class Place:
    """Where a tensor is drawn, how its operation is shown, and what its inputs are."""

    at: tuple[float, float]
    symbol: str
    sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class Expression:
    """A function with its inputs."""

    function: Callable[..., dict[str, Tensor]]
    leaves: dict[str, Number]
    """The lecture's values; the page scales the first."""
    data: tuple[str, ...]
    """Leaves that require a gradient only if told to; the others are weights."""
    places: dict[str, Place]

    def code(self) -> list[str]:
        """The function's lines without its head and its return."""
        lines = inspect.getsource(self.function).splitlines()[1:-1]
        return textwrap.dedent("\n".join(lines)).splitlines()


PRODUCT = Expression(
    product, {"a": 2.0, "x": 3.0, "b": 1.0}, ("x",),
    {"a": Place((0, 0), "a"), "x": Place((1, -1), "x"), "b": Place((2, -1), "b"),
     "c": Place((1, 0), "×", ("a", "x")), "loss": Place((2, 0), "+", ("c", "b"))},
)  # fmt: skip
SQUARE = Expression(
    square, {"w": 3.0, "x": 2.0, "b": 1.0}, ("x",),
    {"w": Place((0, 0), "w"), "x": Place((1, -1), "x"), "b": Place((2, -1), "b"),
     "z": Place((1, 0), "×", ("w", "x")), "h": Place((2, 0), "+", ("z", "b")),
     "loss": Place((3, 0), "²", ("h",))},
)  # fmt: skip
TWICE = Expression(
    twice, {"a": 2.0, "x": 3.0}, ("x",),
    {"a": Place((0, -1), "a"), "x": Place((0, 0), "x"),
     "c": Place((1, 0), "×", ("a", "x")), "loss": Place((2, 0), "+", ("c", "a"))},
)  # fmt: skip
LAYERS = Expression(
    layers, {"w1": 0.5, "x": 2.0, "w2": 0.5, "y": 1.0}, ("x", "y"),
    {"w1": Place((0, 0), "w1"), "x": Place((1, -1), "x"), "w2": Place((3, -1), "w2"),
     "y": Place((5, -1), "y"), "z1": Place((1, 0), "×", ("w1", "x")),
     "h": Place((2, 0), "relu", ("z1",)), "z2": Place((3, 0), "×", ("w2", "h")),
     "p": Place((4, 0), "relu", ("z2",)), "e": Place((5, 0), "−", ("p", "y")),
     "loss": Place((6, 0), "²", ("e",))},
)  # fmt: skip
BRANCH = Expression(
    branch, {"x": (1.0, 2.0)}, (),
    {"x": Place((0, 0), "x"), "m": Place((1, -1), "mean", ("x",)),
     "s": Place((1, 0), "²", ("x",)), "t": Place((2, 0), "sum", ("s",)),
     "u": Place((1.5, 0), "sum", ("x",)), "loss": Place((3, 0), "×", ("t", "u"))},
)  # fmt: skip

EXPRESSIONS = {
    "product": PRODUCT, "square": SQUARE, "twice": TWICE, "layers": LAYERS, "branch": BRANCH,
}  # fmt: skip
NAMES = (
    "a·x + b",
    "(w·x + b)²",
    "a·x + a: a is used twice",
    "two layers: (relu(w2·relu(w1·x)) − y)²",
    "a branch: ½Σx² or −½Σx",
)
