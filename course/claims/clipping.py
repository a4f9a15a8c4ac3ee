"""Gradient clipping: what it preserves, what it caps, and where it comes too late."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

from course.claims.lab import error_of, flat, flat_grad, mlp
from course.claims.registry import claim
from course.claims.trial import Measured, weigh


def _parameter(grad: list[float]) -> nn.Parameter:
    """Zeros with this gradient."""
    parameter = nn.Parameter(torch.zeros(len(grad), dtype=torch.float64))
    parameter.grad = torch.tensor(grad, dtype=torch.float64)
    return parameter


@claim(
    "F39",
    title="Clipping before backward or after step does nothing",
    expected="holds",
    says="Clipping before backward() is a no-op, and after step() it has no effect.",
)
def clipping_out_of_place(seed: int) -> Measured:
    inputs, targets = torch.randn(16, 4) * 5, torch.randint(0, 3, (16,))
    first_norm = []

    def weights(place: str) -> Tensor:
        model = mlp(4, 16, 3, seed=seed)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            if place == "before backward":
                first_norm.append(clip_grad_norm_(model.parameters(), 0.01).item())
            F.cross_entropy(model(inputs), targets).backward()
            if place == "between":
                clip_grad_norm_(model.parameters(), 0.01)
            optimizer.step()
            if place == "after step":
                clip_grad_norm_(model.parameters(), 0.01)
        return flat(model)

    never = weights("nowhere")
    gaps = {
        place: (weights(place) - never).abs().max().item()
        for place in ("before backward", "between", "after step")
    }
    evidence = {
        "weights differ from no clipping by": max(gaps["before backward"], gaps["after step"]),
        "clipped between backward and step": gaps["between"],
        "norm returned before backward": first_norm[0],
    }
    stated = gaps["before backward"] == gaps["after step"] == 0 < gaps["between"]
    return weigh("weights differ from no clipping by", evidence, stated=stated)


def _adam_spike(max_norm: float) -> float:
    """How far Adam moves at a gradient of 10 after 50 of 0.1, all clipped to `max_norm`."""
    parameter = _parameter([0.0])
    optimizer = torch.optim.Adam([parameter], lr=0.1)
    for grad in [0.1] * 50 + [10.0]:
        before = parameter.item()
        parameter.grad = torch.tensor([grad], dtype=torch.float64)
        clip_grad_norm_([parameter], max_norm)
        optimizer.step()
    return abs(parameter.item() - before)


@claim(
    "F40",
    title="Clipping preserves the direction and caps the step",
    expected="holds if",
    says="Clipping by norm preserves the gradient's direction and caps the size of the step.",
    condition="if the optimizer is plain SGD; clipping caps the gradient, but Adam divides by its "
    "size",
)
def clipping_caps_the_step() -> Measured:
    def first_step(optimizer_type, max_norm: float) -> float:
        parameter = _parameter([30.0, 40.0])
        optimizer = optimizer_type([parameter], lr=0.1)
        clip_grad_norm_([parameter], max_norm)
        optimizer.step()
        return parameter.norm().item()

    parameter = _parameter([30.0, 40.0])
    before = parameter.grad.clone()
    clip_grad_norm_([parameter], 1.0)
    cosine = F.cosine_similarity(parameter.grad, before, dim=0).item()
    sgd, adam = torch.optim.SGD, torch.optim.Adam
    steps = {
        "SGD": [first_step(sgd, 1.0), first_step(sgd, math.inf)],
        "Adam": [first_step(adam, 1.0), first_step(adam, math.inf)],
    }
    adam_ratio = steps["Adam"][0] / steps["Adam"][1]
    evidence = {
        "Adam's first step, clipped / unclipped": adam_ratio,
        "cosine of clipped and unclipped gradient": cosine,
        "first step clipped and unclipped": steps,
        "Adam at a spike after 50 small gradients": {
            "clipped to 0.05": _adam_spike(0.05),
            "unclipped": _adam_spike(math.inf),
        },
    }
    keeps = abs(cosine - 1) < 1e-9
    sgd_capped = abs(steps["SGD"][0] - 0.1 * 1.0) < 1e-5
    return weigh(
        "Adam's first step, clipped / unclipped",
        evidence,
        stated=keeps and sgd_capped and adam_ratio < 0.1,
        conditioned=keeps and sgd_capped,
    )


@claim(
    "F41",
    title="Clipping keeps one bad batch from wrecking the run",
    expected="holds if",
    says="Whatever the gradient, clipping keeps one bad batch from wrecking the run.",
    condition="if the bad batch's gradient is finite; inf and nan pass through clipping into every "
    "weight",
)
def clipping_a_bad_batch() -> Measured:
    def weights_after(grad: list[float]) -> Tensor:
        parameter = _parameter(grad)
        clip_grad_norm_([parameter], 1.0)
        torch.optim.SGD([parameter], lr=0.1).step()
        return parameter.detach()

    damaged = sum(
        not weights_after(grad).isfinite().all() for grad in ([math.inf, 1.0], [math.nan, 1.0])
    )
    spikes = {f"{size:g}": weights_after([size, 1.0]).norm().item() for size in (1e2, 1e6, 1e30)}
    guarded = error_of(clip_grad_norm_, [_parameter([math.inf, 1.0])], 1.0, error_if_nonfinite=True)
    evidence = {
        "bad batches (inf, nan) that make the weights nan, of 2": damaged,
        "weights after a gradient of [inf, 1]": str(weights_after([math.inf, 1.0]).tolist()),
        "step after a finite spike, lr 0.1 and max_norm 1": spikes,
        "error_if_nonfinite=True raises": guarded or "nothing",
    }
    return weigh(
        "bad batches (inf, nan) that make the weights nan, of 2",
        evidence,
        stated=damaged == 0 and max(spikes.values()) < 0.1 + 1e-6,
        conditioned=max(spikes.values()) < 0.1 + 1e-6,
        note="To guard against inf and nan, pass error_if_nonfinite=True or skip the step.",
    )


@claim(
    "F42",
    title="The printed grad_norm is the gradient's norm",
    expected="does not hold",
    says="The grad_norm that the loop prints is the norm of the gradient.",
)
def printed_norm(seed: int) -> Measured:
    model = mlp(4, 16, 3, seed=seed)
    F.cross_entropy(model(torch.randn(12, 4)), torch.arange(12) % 3).backward()
    printed = sum(p.grad.norm().item() for p in model.parameters())  # as the loop sums it
    joint = flat_grad(model).norm().item()
    evidence = {"printed / joint norm": printed / joint, "printed": printed, "joint norm": joint}
    return weigh(
        "printed / joint norm",
        evidence,
        stated=abs(printed / joint - 1) < 1e-3,
        note="It adds the norms of the tensors; the joint norm is the root of the sum of their "
        "squares.",
    )


@claim(
    "F136",
    title="clip_grad_value_ changes the direction",
    expected="holds",
    says="Clipping each component by value does not preserve the gradient's direction.",
)
def clip_by_value() -> Measured:
    cosines = {}
    for name, clip in (("value", clip_grad_value_), ("norm", clip_grad_norm_)):
        parameter = _parameter([3.0, 4.0])
        before = parameter.grad.clone()
        clip([parameter], 1.0)
        cosines[name] = F.cosine_similarity(parameter.grad, before, dim=0).item()
    evidence = {
        "cosine after clipping [3, 4] by value 1": cosines["value"],
        "cosine after clipping by norm": cosines["norm"],
    }
    stated = cosines["value"] < 0.999 < cosines["norm"]
    return weigh("cosine after clipping [3, 4] by value 1", evidence, stated=stated)


@claim(
    "F129",
    title="The GPT-2 paper used max_norm 1.0",
    expected="not decidable",
    says="The GPT-2 paper clipped gradients at norm 1.0.",
)
def gpt2_max_norm() -> Measured:
    first = _parameter([3.0, 4.0])
    clip_grad_norm_([first], 1.0)
    return Measured(
        verdict="not decidable",
        deciding="norm of [3, 4] clipped at 1.0",
        evidence={"norm of [3, 4] clipped at 1.0": first.grad.norm().item()},
        note=(
            "Running code shows what max_norm = 1.0 does, but not what a paper says. The value is "
            "usually traced to the GPT-3 paper, so the course does not repeat it."
        ),
    )
