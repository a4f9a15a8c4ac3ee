"""One complete training step of a linear layer with two outputs, and a second loss to compute."""

from collections.abc import Iterator

import torch
from torch import nn

from course.worked.registry import worked
from course.worked.step import Step

W = ((0.5, -0.3), (0.2, 0.8))
X, T = (1.0, 2.0), (1.0, 0.0)


def _check_sizes(w: tuple[tuple[float, ...], ...], x: tuple[float, ...], t: tuple) -> None:
    """t needs one number per row of W, and x one per column: nothing is broadcast."""
    if {len(row) for row in w} != {len(x)} or len(t) != len(w):
        raise ValueError(
            f"W has rows of {[len(row) for row in w]} numbers, x has {len(x)}, t has {len(t)}; "
            "each row needs as many numbers as x has, and t needs one number per row."
        )


def _layer(w: tuple[tuple[float, ...], ...], dtype: torch.dtype) -> nn.Linear:
    layer = nn.Linear(len(w[0]), len(w), dtype=dtype)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(w, dtype=dtype))
        layer.bias.zero_()
    return layer


@worked(
    "N09",
    title="One complete training step",
    perturb={"lr": 0.02},
    reconstructed=(
        "The second row of the updated W is missing; it follows from lr and the printed gradient."
    ),
)
def one_training_step(
    w: tuple[tuple[float, ...], ...] = W,
    x: tuple[float, ...] = X,
    t: tuple[float, ...] = T,
    lr: float = 0.01,
) -> Iterator[Step]:
    """Forward, loss, backward and update with b = 0, MSE and SGD."""
    _check_sizes(w, x, t)
    weight, inputs, target = (torch.tensor(v, dtype=torch.float64) for v in (w, x, t))
    outputs = weight @ inputs
    residual = outputs - target
    yield Step("y", outputs, [-0.1, 1.8], formula="W x + b, b = 0")
    yield Step("loss", 0.5 * residual.square().sum(), 2.225, formula="½ Σ (y − t)²")
    yield Step("dL/dy", residual, [-1.1, 1.8], formula="y − t")
    grad = torch.outer(residual, inputs)
    yield Step("dL/dW", grad, [[-1.1, -2.2], [1.8, 3.6]], formula="(y − t) xᵀ")
    updated = weight - lr * grad
    yield Step("W after the step, row 0", updated[0], [0.511, -0.278], formula="W − lr · dL/dW")
    for number, row in enumerate(updated[1:], start=1):
        known = [0.182, 0.764] if number == 1 else None
        yield Step(f"W after the step, row {number}", row, rebuilt=known, formula="W − lr · dL/dW")
    yield Step("b after the step", -lr * residual, [0.011, -0.018], formula="b − lr · dL/db")

    layer = _layer(w, torch.float32)
    outputs32 = layer(torch.tensor(x))
    loss32 = nn.functional.mse_loss(outputs32, torch.tensor(t))
    yield Step("torch, float32: y", outputs32)
    yield Step("torch, float32: loss", loss32, formula="MSELoss of two outputs is ½ Σ")


def on_paper(
    a: float,
    b: float,
    c: float,
    d: float,
    x: float,
    z: float,
    t: float,
    u: float,
    lr: float,
    *,
    of: float = 1.0,
    sign: float = -1.0,
    bias: float = 1.0,
    power: int = 2,
    turned: bool = False,
    rate: float = 0.0,
    goal: float = 1.0,
) -> dict[str, float]:
    """The step of N09 and N10 for W = [[a, b], [c, d]], input [x, z], target [t, u], by arithmetic.

    Args:
        a, b, c, d, x, z, t, u, lr: The layer, whose bias is 0, the example, and the rate.
        of, sign, bias, power, turned, rate, goal: Common slips, each as a switch: the loss times
            `of`; a step uphill; a bias that does not move; the second loss by the factor instead of
            its square; the wrong input in the gradient; another rate for the weight; the target
            times `goal`.

    Returns:
        `loss`, `grad` (of b), `weight` (b after the step), `second` (the loss after it).

    >>> {name: round(value, 5) for name, value in
    ...  on_paper(0.5, -0.3, 0.2, 0.8, 1, 2, 1, 0, 0.01).items()}
    {'loss': 2.225, 'grad': -2.2, 'weight': -0.278, 'second': 1.96601}

    Source: Training-loop chapter, c3; ledger X37.
    """
    residuals = a * x + b * z - goal * t, c * x + d * z - goal * u
    loss = of * 0.5 * (residuals[0] ** 2 + residuals[1] ** 2)
    grad = of * residuals[0] * (x if turned else z)
    shrink = 1 + sign * lr * of * (x**2 + z**2 + bias)
    weight = b + sign * (rate or lr) * grad
    return {"loss": loss, "grad": grad, "weight": weight, "second": loss * shrink**power}


@worked(
    "N10",
    title="Compute it yourself: the second loss",
    perturb={"lr": 0.02},
)
def second_loss(
    w: tuple[tuple[float, ...], ...] = W,
    x: tuple[float, ...] = X,
    t: tuple[float, ...] = T,
    lr: float = 0.01,
) -> Iterator[Step]:
    """The forward pass after the step of N09; each step multiplies the loss by the same factor."""
    _check_sizes(w, x, t)
    losses, outputs = _train(w, x, t, lr, torch.float64, steps=100)
    yield Step("y after one step", outputs[1], formula="W′ x + b′")
    yield Step("y[0] after one step", outputs[1][0], -0.034, formula="the first output")
    yield Step("loss after one step", losses[1], formula="½ Σ (y′ − t)²")
    yield Step("torch, float32: loss", _train(w, x, t, lr, torch.float32, steps=1)[0][1])

    shrink = 1 - lr * (torch.tensor(x, dtype=torch.float64).square().sum().item() + 1)
    yield Step("each residual is multiplied by", shrink, formula="1 − lr (‖x‖² + 1)")
    yield Step("the loss is multiplied by", shrink**2, formula="the same, squared")
    for steps in (2, 10, 100):
        yield Step(f"loss after {steps} steps", losses[steps], formula=f"loss · factor^{steps}")
    yield Step("stable for lr below", 2 * lr / (1 - shrink), formula="2 / (‖x‖² + 1)")


def _train(
    w: tuple[tuple[float, ...], ...],
    x: tuple[float, ...],
    t: tuple[float, ...],
    lr: float,
    dtype: torch.dtype,
    steps: int,
) -> tuple[list[float], list[list[float]]]:
    """Losses and outputs before the first and after each of `steps` SGD steps."""
    layer = _layer(w, dtype)
    optimizer = torch.optim.SGD(layer.parameters(), lr=lr)
    inputs, target = torch.tensor(x, dtype=dtype), torch.tensor(t, dtype=dtype)
    losses, outputs = [], []
    for _ in range(steps + 1):
        optimizer.zero_grad()
        y = layer(inputs)
        loss = nn.functional.mse_loss(y, target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        outputs.append(y.tolist())
    return losses, outputs


@worked(
    "N11",
    title="½ Σ or the mean: why they agree here",
    perturb={"x": (1.0, 3.0)},
)
def half_sum_or_mean(
    w: tuple[tuple[float, ...], ...] = W,
    x: tuple[float, ...] = X,
    t: tuple[float, ...] = T,
) -> Iterator[Step]:
    """The chapter writes ½ Σ and calls MSELoss; the two are equal only for two outputs."""
    _check_sizes(w, x, t)
    inputs, target = torch.tensor(x, dtype=torch.float64), torch.tensor(t, dtype=torch.float64)
    losses, grads = {}, {}
    for reduction in ("mean", "sum"):
        layer = _layer(w, torch.float64)
        loss = nn.functional.mse_loss(layer(inputs), target, reduction=reduction)
        loss.backward()
        losses[reduction], grads[reduction] = loss, layer.weight.grad
    half_sum = 0.5 * (_layer(w, torch.float64)(inputs) - target).square().sum()
    yield Step("½ Σ", half_sum, formula="½ Σ (y − t)²")
    yield Step("reduction='mean'", losses["mean"], formula=f"Σ (y − t)² / {len(t)} outputs")
    yield Step("reduction='sum'", losses["sum"], formula="Σ (y − t)²")
    ratio = (grads["sum"] / grads["mean"]).unique()
    yield Step("gradient of 'sum' / gradient of 'mean'", ratio, formula="number of outputs")
    three = torch.cat([inputs, inputs[:1]])  # any three numbers: a third output breaks the equality
    yield Step(
        "with three outputs: ½ Σ / mean",
        0.5 * three.square().sum() / three.square().mean(),
        formula="½ · 3",
    )
