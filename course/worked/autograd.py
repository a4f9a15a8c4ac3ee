"""Autograd by hand: small graphs, their gradients, and what `.grad` keeps between two backwards."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from course.worked.registry import worked
from course.worked.step import Step


def _leaf(value: float | tuple[float, ...]) -> Tensor:
    return torch.tensor(value, dtype=torch.float64, requires_grad=True)


@worked(
    "N14",
    title="A graph by hand: L = a·x + b",
    perturb={"x": 4.0},
    reconstructed=(
        "The slide's formula and all its numbers are missing; L = a·x + b with a = 2, x = 3, b = 1 "
        "is from an earlier public version. Any other numbers would fit the remaining words."
    ),
)
def graph_by_hand(a: float = 2.0, x: float = 3.0, b: float = 1.0) -> Iterator[Step]:
    """One product, one sum, and the chain rule backwards."""
    leaf_a, leaf_x, leaf_b = _leaf(a), _leaf(x), _leaf(b)
    c = leaf_a * leaf_x
    loss = c + leaf_b
    loss.backward()
    yield Step("c", c, rebuilt=6.0, formula="a · x")
    yield Step("L", loss, rebuilt=7.0, formula="c + b")
    yield Step("dL/da", leaf_a.grad, rebuilt=3.0, formula="dL/dc · dc/da = 1 · x")
    yield Step("dL/db", leaf_b.grad, rebuilt=1.0, formula="1")
    yield Step("dL/dx", leaf_x.grad, formula="1 · a")


@worked(
    "N15",
    title="The tape of (w·x + b)²",
    perturb={"b": 2.0},
    reconstructed=(
        "Only the figure's title is left; the numbers are from the figure in an earlier public "
        "version and may have changed since."
    ),
    figure="tape",
)
def tape(x: float = 2.0, w: float = 3.0, b: float = 1.0) -> Iterator[Step]:
    """What the forward pass records, and what backward reads from it."""
    leaf_x, leaf_w, leaf_b = _leaf(x), _leaf(w), _leaf(b)
    z = leaf_w * leaf_x
    h = z + leaf_b
    loss = h**2
    z.retain_grad()
    h.retain_grad()
    loss.backward()
    yield Step("z", z, rebuilt=6.0, formula="w · x")
    yield Step("h", h, rebuilt=7.0, formula="z + b")
    yield Step("L", loss, rebuilt=49.0, formula="h²")
    yield Step("dL/dh", h.grad, formula="2h")
    yield Step("dL/dz", z.grad, formula="2h · 1")
    yield Step("dL/dw", leaf_w.grad, rebuilt=28.0, formula="2h · x")
    yield Step("dL/dx", leaf_x.grad, rebuilt=42.0, formula="2h · w")
    yield Step("dL/db", leaf_b.grad, rebuilt=14.0, formula="2h · 1")


@worked(
    "N16",
    title="Backward through two layers",
    perturb={"w1": 1.0},
    reconstructed=(
        "Only “both gates open” is left of the slide; the numbers are from an earlier public "
        "version. Any positive w1, w2 and x would open both gates."
    ),
)
def two_layers(x: float = 2.0, y: float = 1.0, w1: float = 0.5, w2: float = 0.5) -> Iterator[Step]:
    """(relu(w2 · relu(w1 · x)) − y)², forward and back."""
    leaf_1, leaf_2 = _leaf(w1), _leaf(w2)
    h = torch.relu(leaf_1 * x)
    prediction = torch.relu(leaf_2 * h)
    prediction.retain_grad()
    loss = (prediction - y) ** 2
    loss.backward()
    yield Step("h", h, rebuilt=1.0, formula="relu(w1 · x)")
    yield Step("ŷ", prediction, rebuilt=0.5, formula="relu(w2 · h)")
    yield Step("L", loss, rebuilt=0.25, formula="(ŷ − y)²")
    gates = ["both", "one", "none"][2 - int(h > 0) - int(prediction > 0)]
    yield Step("gates open", gates, "both", as_printed="both gates open")
    yield Step("dL/dŷ", prediction.grad, rebuilt=-1.0, formula="2 (ŷ − y)")
    yield Step("dL/dw2", leaf_2.grad, rebuilt=-1.0, formula="dL/dŷ · h")
    yield Step("dL/dw1", leaf_1.grad, rebuilt=-1.0, formula="dL/dŷ · w2 · x")


@worked(
    "N17",
    title="backward() adds to .grad",
    tells="then after 5x",
    perturb={"factors": (3.0, 4.0, 7.0)},
)
def accumulating_grad(
    x: float = 2.0, factors: tuple[float, float, float] = (3.0, 5.0, 7.0)
) -> Iterator[Step]:
    """Backward of 3x, then of 5x, then of 7x after a reset."""
    leaf = _leaf(x)
    first, second, third = factors
    (first * leaf).backward()
    yield Step(f".grad after {first:g}x", leaf.grad.item(), formula=f"{first:g}")
    (second * leaf).backward()
    yield Step(f"then after {second:g}x", leaf.grad.item(), formula=f"{first:g} + {second:g}")
    leaf.grad.zero_()
    (third * leaf).backward()
    yield Step(f"reset, then {third:g}x", leaf.grad.item(), formula=f"0 + {third:g}")


@worked(
    "N18",
    title="Four gradients to predict",
    tells="max",
    perturb={"x": (1.0, 2.0, 4.0)},
)
def four_gradients(
    x: tuple[float, ...] = (1.0, 2.0, 3.0), tie: tuple[float, ...] = (3.0, 3.0, 1.0)
) -> Iterator[Step]:
    """Gradients of sum, squared sum, mean and max, with and without a reset; then a tie."""
    functions: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
        "sum": (Tensor.sum, "1 for each"),
        "squared sum": (lambda v: v.square().sum(), "2x"),
        "mean": (Tensor.mean, "1/n for each"),
        "max": (Tensor.max, "1 where the largest is"),
    }
    never_reset = _leaf(x)
    cumulative = []
    for name, (function, formula) in functions.items():
        yield Step(name, _grad(function, x), formula=formula)
        function(never_reset).backward()
        cumulative.append(never_reset.grad.tolist())
    yield Step("without a reset", cumulative, formula="running sum of the four gradients")
    yield Step("tie: max() splits", _grad(Tensor.max, tie), formula="1 / number of tied maxima")
    yield Step("tie: amax splits", _grad(Tensor.amax, tie))
    yield Step("tie: max(dim) picks one", _grad(lambda v: v.max(dim=0).values, tie))


def _grad(function: Callable[[Tensor], Tensor], values: tuple[float, ...]) -> Tensor:
    leaf = _leaf(values)
    function(leaf).backward()
    return leaf.grad


@worked(
    "N58",
    title="Without zero_grad(): the gradient at step N",
    perturb={"steps": 50},
)
def never_cleared(steps: int = 100, lr: float = 0.01, slope: float = 1.0) -> Iterator[Step]:
    """SGD without zero_grad on a straight line, where every gradient is the same, and on a bowl."""
    used, travelled = _train_uncleared(lambda w: slope * w, steps, lr, start=0.0)
    yield Step(
        "gradient used at the last step, in g",
        used[-1] / used[0],
        100.0,
        1e-6,
        formula="N · g",
        as_printed="100x",
    )
    yield Step("distance travelled, in lr · g", travelled / (lr * slope), formula="N (N + 1) / 2")
    bowl, _ = _train_uncleared(lambda w: 0.5 * w**2, steps, lr, start=1.0)
    largest = max(abs(grad / bowl[0]) for grad in bowl)
    yield Step(
        "on the bowl ½w²: largest gradient, relative to the first",
        largest,
        formula="the sum swings back once w has passed 0",
    )


def _train_uncleared(
    loss: Callable[[Tensor], Tensor], steps: int, lr: float, start: float
) -> tuple[list[float], float]:
    """The .grad that each step used, and the distance from start to end."""
    weight = _leaf(start)
    optimizer = torch.optim.SGD([weight], lr=lr)
    used = []
    for _ in range(steps):
        loss(weight).backward()
        used.append(weight.grad.item())
        optimizer.step()
    return used, abs(weight.item() - start)
