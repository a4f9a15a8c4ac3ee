"""Optimizers by hand: momentum, Adam and AdamW, each next to torch's."""

import math
from collections.abc import Iterator

import torch

from course.worked.registry import worked
from course.worked.step import Step


@worked(
    "N30",
    title="SGD with momentum under a constant gradient",
    tells="θ",
    perturb={"momentum": 0.5},
)
def momentum_sgd(
    lr: float = 0.1, momentum: float = 0.9, grad: float = 1.0, steps: int = 4
) -> Iterator[Step]:
    """Velocity and weight of torch's SGD, and the step size that it approaches."""
    theta = torch.zeros((), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([theta], lr=lr, momentum=momentum)
    thetas, velocities = [], []
    for _ in range(steps):
        theta.grad = torch.full_like(theta, grad)
        optimizer.step()
        thetas.append(theta.item())
        velocities.append(optimizer.state[theta].get("momentum_buffer", theta.grad).item())
    yield Step("v", velocities, formula="μ v + g")
    yield Step("θ", thetas, formula="θ − lr · v")
    yield Step("terminal step", lr * grad / (1 - momentum), formula="lr · g / (1 − μ)")


GRADS = (0.5, -0.2, 0.1)


@worked(
    "N31",
    title="Three steps of Adam",
    perturb={"lr": 0.01},
)
def adam(theta: float = 1.0, lr: float = 0.1, grads: tuple[float, ...] = GRADS) -> Iterator[Step]:
    """The essay's formula, step by step, and torch."""
    trace = _adam_by_hand(theta, lr, grads)
    yield Step("m", [m for _, m, _ in trace], formula="β₁ m + (1 − β₁) g")
    yield Step("v", [v for _, _, v in trace], formula="β₂ v + (1 − β₂) g²")
    yield Step("θ", [t for t, _, _ in trace], formula="θ − lr · m̂ / (√v̂ + ε)")
    by_torch = _run(torch.optim.Adam, theta, grads, lr=lr)
    yield Step("θ, torch", by_torch)
    off = max(abs(a - b) for (a, _, _), b in zip(trace, by_torch, strict=True))
    yield Step("largest difference below 1e-15", off < 1e-15)


@worked(
    "N32",
    title="AdamW against Adam with L2",
    perturb={"decay": 0.2},
)
def adamw_and_l2(
    theta: float = 1.0, lr: float = 0.1, decay: float = 0.1, grads: tuple[float, ...] = GRADS
) -> Iterator[Step]:
    """Decay of the weight itself, or decay added to the gradient and divided by √v with it."""
    adamw = _run(torch.optim.AdamW, theta, grads, lr=lr, weight_decay=decay)
    l2 = _run(torch.optim.Adam, theta, grads, lr=lr, weight_decay=decay)
    yield Step("AdamW: θ", adamw, formula="θ (1 − lr · λ) − lr · m̂ / (√v̂ + ε)")
    hand = [t for t, _, _ in _adam_by_hand(theta, lr, grads, decoupled=decay)]
    yield Step("AdamW by hand: θ", hand)
    yield Step("Adam with L2: θ", l2, formula="g + λ θ in place of g")
    hand = [t for t, _, _ in _adam_by_hand(theta, lr, grads, l2=decay)]
    yield Step("Adam with L2 by hand: θ", hand)


@worked(
    "N33",
    title="Adam's first step for gradients from 1e-6 to 1e3",
    tells="size of the step, in lr",
    perturb={"lr": 0.01},
)
def adam_first_step(
    lr: float = 0.1, grads: tuple[float, ...] = (1e-6, 1e-3, 1.0, 1e3)
) -> Iterator[Step]:
    """The size of the step hardly depends on the size of the gradient."""
    after = [_run(torch.optim.Adam, 1.0, (grad,), lr=lr)[0] for grad in grads]
    yield Step("θ after one step from 1", after, formula="1 − lr · g / (|g| + ε)")
    yield Step("size of the step, in lr", [(1 - theta) / lr for theta in after])
    beta1, beta2 = torch.optim.Adam([torch.zeros(1)]).defaults["betas"]
    uncorrected = (1 - beta1) / math.sqrt(1 - beta2)
    yield Step("without bias correction, in lr", uncorrected, formula="(1 − β₁) / √(1 − β₂)")


def _run(
    optimizer_class: type, theta: float, grads: tuple[float, ...], **options: float
) -> list[float]:
    """θ after each step of torch's optimizer, float64."""
    weight = torch.tensor(theta, dtype=torch.float64, requires_grad=True)
    optimizer = optimizer_class([weight], **options)
    trace = []
    for grad in grads:
        weight.grad = torch.full_like(weight, grad)
        optimizer.step()
        trace.append(weight.item())
    return trace


def _adam_by_hand(
    theta: float,
    lr: float,
    grads: tuple[float, ...],
    *,
    l2: float = 0.0,
    decoupled: float = 0.0,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
) -> list[tuple[float, float, float]]:
    """(θ, m, v) after each step of the essay's formula."""
    m = v = 0.0
    trace = []
    for step, grad in enumerate(grads, start=1):
        theta *= 1 - lr * decoupled
        grad += l2 * theta
        m = betas[0] * m + (1 - betas[0]) * grad
        v = betas[1] * v + (1 - betas[1]) * grad**2
        m_hat, v_hat = m / (1 - betas[0] ** step), v / (1 - betas[1] ** step)
        theta -= lr * m_hat / (math.sqrt(v_hat) + eps)
        trace.append((theta, m, v))
    return trace
