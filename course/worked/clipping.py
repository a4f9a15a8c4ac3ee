"""Gradient clipping: a 3-4-5 gradient scaled to norm 1, by global norm and by value."""

from collections.abc import Iterator

import torch
from torch import nn

from course.worked.registry import Step, worked


@worked(
    "N20",
    title="Clipping a 3-4-5 gradient",
    source='Lecture 3, "How gradient clipping works"',
    perturb={"max_norm": 2.0},
    reconstructed=(
        "All numbers of the slide are lost; these stand in an earlier public revision of it."
        " Any multiple of 3-4-5 fits the words that are left."
    ),
)
def gradient_clipping(g: tuple[float, ...] = (3.0, 4.0), max_norm: float = 1.0) -> Iterator[Step]:
    """Norm, factor and clipped gradient; then what torch's 1e-6 in the denominator changes."""
    grad = torch.tensor(g, dtype=torch.float64)
    norm = grad.norm().item()
    factor = min(1.0, max_norm / norm)
    yield Step("norm before", norm, 5.0, formula="√(g₁² + g₂²)")
    yield Step("factor", factor, 0.2, formula="min(1, max_norm / norm)")
    yield Step("clipped gradient", factor * grad, [0.6, 0.8], formula="factor · g")
    yield Step("norm after", (factor * grad).norm(), 1.0, formula="max_norm where norm > max_norm")

    for dtype in (torch.float64, torch.float32):
        clipped = _torch_clip(grad.to(dtype), max_norm)
        name = str(dtype).removeprefix("torch.")
        yield Step(f"torch, {name}", clipped, formula="g · max_norm / (norm + 1e-6)")
        if dtype == torch.float64:
            yield Step("torch, float64: norm", clipped.norm())
    unit = torch.zeros_like(grad)
    unit[0] = max_norm
    yield Step("torch: a norm at the ceiling becomes", _torch_clip(unit, max_norm).norm())

    by_value = grad.clamp(-max_norm, max_norm)
    yield Step("clip by value", by_value, formula="each gᵢ to [−max_norm, max_norm]")
    cosine = nn.functional.cosine_similarity(grad, by_value, dim=0)
    yield Step("clip by value: cosine to g", cosine, formula="1 would keep the direction")


def _torch_clip(grad: torch.Tensor, max_norm: float) -> torch.Tensor:
    parameter = nn.Parameter(torch.zeros_like(grad))
    parameter.grad = grad.clone()
    nn.utils.clip_grad_norm_([parameter], max_norm)
    return parameter.grad
