"""Optimizers, one step at a time: parameter, gradient and state in, parameter and state out.

    theta, state = adam_step(theta, grad, state, lr=0.1)     # state is {} before the first step

They work on floats, NumPy arrays and torch tensors alike, since they use only arithmetic. Nothing
is changed in place.

Source: ledger X52-X54, X62, N30-N33.
"""

from __future__ import annotations

from typing import Any, TypeVar

Value = TypeVar("Value")
State = dict[str, Any]


def sgd_step(
    theta: Value,
    grad: Value,
    state: State,
    *,
    lr: float,
    momentum: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
) -> tuple[Value, State]:
    """One step of SGD as torch defines it: v ← μ·v + g, θ ← θ - lr·v.

    The learning rate multiplies the velocity, not the gradient, so a change takes effect at once.
    With Nesterov the step is g + μ·v, which looks ahead along the velocity. The first v is g
    itself.
    """
    if nesterov and not momentum:
        raise ValueError("nesterov looks ahead along the velocity: give a momentum, e.g. 0.9.")
    grad = grad + weight_decay * theta
    if not momentum:
        return theta - lr * grad, state
    velocity = momentum * state["velocity"] + grad if "velocity" in state else grad
    move = grad + momentum * velocity if nesterov else velocity
    return theta - lr * move, {"velocity": velocity}


def adam_step(
    theta: Value,
    grad: Value,
    state: State,
    *,
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
) -> tuple[Value, State]:
    """One step of Adam; `weight_decay` is L2: added to the gradient, so it is normalised too.

    >>> theta, _ = adam_step(1.0, 0.5, {}, lr=0.1)
    >>> round(theta, 9)  # N31
    0.900000002
    """
    return _adam(theta, grad + weight_decay * theta, state, lr, betas, eps)


def adamw_step(
    theta: Value,
    grad: Value,
    state: State,
    *,
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 1e-2,
) -> tuple[Value, State]:
    """One step of AdamW: the weights shrink by a share of lr·decay, apart from the gradient."""
    return _adam(theta * (1 - lr * weight_decay), grad, state, lr, betas, eps)


def _adam(theta, grad, state, lr, betas, eps):
    beta1, beta2 = betas
    step = state.get("step", 0) + 1
    m = beta1 * state.get("m", 0 * grad) + (1 - beta1) * grad
    v = beta2 * state.get("v", 0 * grad) + (1 - beta2) * grad * grad
    m_hat = m / (1 - beta1**step)  # the averages start at 0: without this they are too small
    v_hat = v / (1 - beta2**step)
    theta = theta - lr * m_hat / (v_hat**0.5 + eps)
    return theta, {"step": step, "m": m, "v": v}
