"""Gradient clipping: once per window, after unscaling; reports the norm before clipping.

    norm   = √(Σ over all parameters of ‖grad‖²)
    factor = min(1, max_norm / (norm + 1e-6))          grad ← factor · grad

One factor for all parameters keeps the direction. Clipping each number (`clip_by_value`) or each
layer (`clip_per_layer`) changes it.

Source: Lecture 3, "How gradient clipping works"; ledger C07, N20, F39-F42, F136.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor
from torch.optim import Optimizer

Parameters = Tensor | Iterable[Tensor]


Ceiling = float | Callable[[Parameters], Tensor]
"""A number limits the joint norm; a function clips in its own way and returns the norm before."""


def parameters_of(optimizer: Optimizer) -> list[Tensor]:
    """The parameters that the optimizer moves; no other gradients matter."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def grad_norm(parameters: Parameters) -> Tensor:
    """Joint L2 norm of all gradients, as a 0-d tensor; 0 where there are none."""
    return _joint_norm(_grads(parameters))


@torch.no_grad()
def clip_(parameters: Parameters, norm: Tensor, max_norm: Ceiling) -> None:
    """Clip gradients whose joint norm is known, according to the trainer's `max_norm`."""
    if callable(max_norm):
        max_norm(parameters)
    else:
        _check_ceiling("max_norm", max_norm)
        _scale_(_grads(parameters), norm, max_norm)


@torch.no_grad()
def clip_by_global_norm(parameters: Parameters, max_norm: float, *, eps: float = 1e-6) -> Tensor:
    """Scale all gradients by one factor so that their joint norm is at most `max_norm`.

    Args:
        parameters: Those whose `.grad` is scaled in place; those without one are skipped. A
            generator is read once.
        max_norm: The ceiling; infinity only measures and does not change the gradients.
        eps: Added to the norm before dividing, as torch does: a gradient of exactly norm 1 becomes
            0.999999 under `max_norm=1`.

    Returns:
        The norm before clipping, a 0-d tensor: reading it as a number would wait for the
        accelerator. It is inf or nan if any gradient is; the gradients are then useless.

    Source: Lecture 3, "How gradient clipping works"; N20.
    """
    _check_ceiling("max_norm", max_norm)
    grads = _grads(parameters)
    norm = _joint_norm(grads)
    _scale_(grads, norm, max_norm, eps)
    return norm


@torch.no_grad()
def clip_by_value(parameters: Parameters, max_value: float) -> Tensor:
    """Limit every gradient's numbers to [-max_value, max_value]; returns the norm before clipping.

    Changes the gradient's direction: [3, 4] at 1 becomes [1, 1], cosine 0.98995 (N20).
    """
    _check_ceiling("max_value", max_value)
    grads = _grads(parameters)
    norm = _joint_norm(grads)
    for grad in grads:
        grad.clamp_(-max_value, max_value)
    return norm


@torch.no_grad()
def clip_per_layer(parameters: Parameters, max_norm: float, *, eps: float = 1e-6) -> Tensor:
    """Limit the norm of each parameter tensor's gradient; returns the joint norm before clipping.

    With T tensors the joint norm may still be √T times `max_norm` (N51).
    """
    _check_ceiling("max_norm", max_norm)
    grads = _grads(parameters)
    norm = _joint_norm(grads)
    for grad in grads:
        grad.mul_(torch.clamp(max_norm / (grad.norm() + eps), max=1.0))
    return norm


def _scale_(grads: list[Tensor], norm: Tensor, max_norm: float, eps: float = 1e-6) -> None:
    """Multiply all gradients by min(1, max_norm / (norm + eps))."""
    if not grads or max_norm == math.inf:
        return
    factor = torch.clamp(max_norm / (norm + eps), max=1.0)
    for group in _by_device(grads):
        torch._foreach_mul_(group, factor.to(group[0].device))


def _grads(parameters: Parameters) -> list[Tensor]:
    if isinstance(parameters, Tensor):
        parameters = [parameters]
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


def _by_device(grads: list[Tensor]) -> list[list[Tensor]]:
    devices = {grad.device for grad in grads}
    if len(devices) == 1:
        return [grads]
    return [[grad for grad in grads if grad.device == device] for device in devices]


def _joint_norm(grads: list[Tensor]) -> Tensor:
    if not grads:
        return torch.tensor(0.0)
    groups = _by_device(grads)
    norms = [norm for group in groups for norm in torch._foreach_norm(group)]
    if len(groups) > 1:
        norms = [norm.to(norms[0].device) for norm in norms]
    return torch.linalg.vector_norm(torch.stack(norms))


def _check_ceiling(name: str, value: float) -> None:
    if not value > 0:
        raise ValueError(
            f"{name} = {value}: the ceiling must be above 0. Usual values are 0.5 to 5; "
            "math.inf measures without clipping."
        )
