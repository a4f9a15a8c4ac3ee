"""Gradient clipping: a 3-4-5 gradient clipped by its joint norm, per tensor, and by value."""

from collections.abc import Iterator

import torch
from torch import nn

from course.worked.registry import worked
from course.worked.seeded import seeded
from course.worked.step import Step


@worked(
    "N20",
    title="Clipping a 3-4-5 gradient",
    perturb={"max_norm": 2.0},
    reconstructed=(
        "Of the slide's numbers only max_norm = 1.0 is left; the others are from an earlier public "
        "version. Any two numbers with a norm above 1 would fit the remaining words."
    ),
)
def gradient_clipping(g: tuple[float, ...] = (3.0, 4.0), max_norm: float = 1.0) -> Iterator[Step]:
    """Norm, factor and clipped gradient; then the effect of torch's 1e-6 in the denominator."""
    grad = torch.tensor(g, dtype=torch.float64)
    norm = grad.norm().item()
    factor = 1.0 if norm <= max_norm else max_norm / norm
    yield Step("norm before", norm, rebuilt=5.0, formula="√(g₁² + g₂²)")
    yield Step("factor", factor, rebuilt=0.2, formula="min(1, max_norm / norm)")
    yield Step("clipped gradient", factor * grad, rebuilt=[0.6, 0.8], formula="factor · g")
    after = (factor * grad).norm()
    yield Step("norm after", after, rebuilt=1.0, formula="max_norm where norm > max_norm")

    for dtype in (torch.float64, torch.float32):
        clipped = _torch_clip(grad.to(dtype), max_norm)
        name = str(dtype).removeprefix("torch.")
        yield Step(f"torch, {name}", clipped, formula="g · max_norm / (norm + 1e-6)")
        if dtype == torch.float64:
            yield Step("torch, float64: norm", clipped.norm())
    unit = torch.zeros_like(grad)
    unit[0] = max_norm
    yield Step("torch: a norm equal to max_norm becomes", _torch_clip(unit, max_norm).norm())

    by_value = grad.clamp(-max_norm, max_norm)
    yield Step("clip by value", by_value, formula="each gᵢ to [−max_norm, max_norm]")
    cosine = nn.functional.cosine_similarity(grad, by_value, dim=0)
    yield Step("clip by value: cosine with g", cosine, formula="1 would mean the same direction")


def _torch_clip(grad: torch.Tensor, max_norm: float) -> torch.Tensor:
    parameter = nn.Parameter(torch.zeros_like(grad))
    parameter.grad = grad.clone()
    nn.utils.clip_grad_norm_([parameter], max_norm)
    return parameter.grad


@worked(
    "N51",
    title="Clipping by the global norm or per tensor",
    tells="per tensor: norm of both",
    perturb={"limit": 0.25},
)
def global_or_per_tensor(
    early: tuple[float, ...] = (300.0, 400.0),
    late: tuple[float, ...] = (0.3, 0.4),
    limit: float = 1.0,
    num_tensors: int = 9,
    num_elements: int = 100_000_000,
) -> Iterator[Step]:
    """Does one exploding tensor also shrink a healthy one, and what norm does each rule allow?"""
    grads = [torch.tensor(g, dtype=torch.float64) for g in (early, late)]
    names = [f"[{', '.join(f'{value:g}' for value in g)}]" for g in (early, late)]
    together = _clipped(grads, limit)
    yield Step(f"global: {names[0]}", together[0], formula="g · limit / √(Σ norms²)")
    yield Step(f"global: {names[1]}", together[1], formula="the same factor")
    apart = [_clipped([grad], limit)[0] for grad in grads]
    yield Step(f"per tensor: {names[0]}", apart[0], formula="g · min(1, limit / norm)")
    yield Step(f"per tensor: {names[1]}", apart[1])
    squares = " + ".join(f"{grad.norm():.3g}²" for grad in apart)
    yield Step("per tensor: norm of both", torch.cat(apart).norm(), formula=f"√({squares})")
    many = [torch.full((2,), 1e3, dtype=torch.float64) for _ in range(num_tensors)]
    joint = torch.cat([_clipped([grad], limit)[0] for grad in many]).norm()
    yield Step(
        f"per tensor, {num_tensors} large tensors: norm / limit", joint / limit, formula="√T"
    )
    for count in (10_000, num_elements):
        # one clipped number seen `count` times: nothing of that size is stored
        by_value = torch.tensor(1e3 * limit, dtype=torch.float64).clamp(-limit, limit)
        norm = by_value.expand(count).norm()
        yield Step(f"by value, {count:.0e} large numbers: norm / limit", norm / limit, formula="√n")


def _clipped(grads: list[torch.Tensor], max_norm: float) -> list[torch.Tensor]:
    parameters = [nn.Parameter(torch.zeros_like(grad)) for grad in grads]
    for parameter, grad in zip(parameters, grads, strict=True):
        parameter.grad = grad.clone()
    nn.utils.clip_grad_norm_(parameters, max_norm)
    return [parameter.grad for parameter in parameters]


@worked(
    "N56",
    title="The printed grad_norm and the norm of the gradient",
    tells="ratio",
    perturb={"lr": 0.05},
    reconstructed=(
        "The module prints the loop with its model, data and learning rate, but neither a seed nor "
        "any output. Seed 0 is our choice; another seed gives other numbers and nearly the same "
        "ratio."
    ),
)
def printed_norm(
    num_examples: int = 16, lr: float = 0.1, steps: int = 3, seed: int = 0
) -> Iterator[Step]:
    """The loop adds the norms of the tensors; the joint norm is the root of their squares' sum."""
    with seeded(seed):
        model = nn.Linear(4, 2)
        inputs, targets = torch.randn(num_examples, 4), torch.randint(0, 2, (num_examples,))
    device = torch.get_default_device()
    model, inputs, targets = model.to(device), inputs.to(device), targets.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    printed, joint = [], []
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        norms = torch.stack([parameter.grad.norm() for parameter in model.parameters()])
        printed.append(norms.sum().item())
        joint.append(norms.norm().item())
        optimizer.step()
    yield Step("as the loop prints it", printed, formula="‖dW‖ + ‖db‖")
    yield Step("norm of the gradient", joint, formula="√(‖dW‖² + ‖db‖²)")
    ratios = [p / j for p, j in zip(printed, joint, strict=True)]
    yield Step("ratio", ratios, formula="up to √2 for two tensors")
