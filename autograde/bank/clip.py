"""03a.clip: scale all gradients by one factor, so that their joint norm has a ceiling."""

from __future__ import annotations

import math

import torch
from torch import nn

from autograde.bank.common_wrong import common
from autograde.bank.harness import Watch
from autograde.exercise import Answer, Case, Draw, Exercise, Part, Wrong, as_number, kept
from course.engine import clip_by_global_norm


def draw(source: Draw, part: str) -> Case:
    """Gradients whose joint norm lies above or below the ceiling; some None; or zero.

    Zeros alternate between all gradients and one of them: `return 0.0` should earn nothing. The
    norm is large in the second case, and of three tensors in the first, of one in the third. Two of
    the three have one shape, so that what is kept by shape is kept once.
    """
    max_norm = source.uniform(0.5, 2.0)
    shapes = [(source.integer(2, 3), 2), (source.integer(1, 5),), (2, source.integer(1, 2))]
    if source.index == 0:
        shapes[2] = shapes[0]
    if source.index == 2:
        shapes = shapes[1:2]
    grads: list[torch.Tensor | None] = [source.normal(*shape) + 0.05 for shape in shapes]
    if part == "zero":
        grads[source.choice(range(len(grads)))].zero_()
    norm = torch.cat([grad.flatten() for grad in grads]).norm().item()
    below = part in ("below", "zero") or (part == "norm" and source.index == 0)
    wanted = max_norm * (source.uniform(0.3, 0.8) if below else source.choice((3, 5, 8)))
    if not below and source.index == 1:
        wanted = 1e6
    if (
        part == "below"
    ):  # of a norm above 1 the square is above the ceiling, of one below 1 it is not
        max_norm = source.uniform(2, 3) if source.index == 1 else source.uniform(0.5, 1.2)
        wanted = max_norm * source.uniform(0.75, 0.9)
    if part == "zero" and source.index % 2 == 0:
        wanted = 0.0
    grads = [grad * (wanted / norm) for grad in grads]
    if part == "missing":
        at = source.integer(1, 2) if source.index else source.integer(0, 3)
        grads.insert(at, None)  # of one case a gradient comes before it, and one after
    dtype = "float64" if source.index == 1 else "float32"
    return {"grads": grads, "max_norm": max_norm, "generator": part == "missing", "dtype": dtype}


def run(function, case: Case, device: torch.device) -> Answer:
    """The gradients after the call and the norm that was returned."""
    parameters, dtype = [], getattr(torch, case["dtype"])
    for grad in case["grads"]:
        shape = 2 if grad is None else grad.shape
        parameter = nn.Parameter(torch.ones(shape, device=device, dtype=dtype))
        parameter.grad = None if grad is None else grad.to(device, dtype)
        parameters.append(parameter)
    handed_over = (p for p in parameters) if case["generator"] else list(parameters)
    watch = Watch(data={f"parameter {i}": p for i, p in enumerate(parameters)})
    returned = function(handed_over, case["max_norm"])
    grads = [None if p.grad is None else p.grad.detach().cpu() for p in parameters]
    return {
        "norm": kept(as_number, returned, "the norm before clipping"),
        "grads": grads,
        "disturbed": watch.changed(),
    }


def _grads(parameters) -> list[torch.Tensor]:
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


def _norm(grads: list[torch.Tensor]) -> torch.Tensor:
    return torch.sqrt(sum(grad.square().sum() for grad in grads))


def _scale(grads: list[torch.Tensor], norm: torch.Tensor, max_norm: float) -> None:
    if norm > max_norm:
        for grad in grads:
            grad.mul_(max_norm / norm)


def square_compared(parameters, max_norm):
    grads = _grads(parameters)
    norm = _norm(grads)
    if norm**2 > max_norm:
        for grad in grads:
            grad.mul_(max_norm / norm)
    return norm


def one_per_shape(parameters, max_norm):
    grads = list({grad.shape: grad for grad in _grads(parameters)}.values())
    norm = _norm(grads)
    _scale(grads, norm, max_norm)
    return norm


def each_tensor(parameters, max_norm):
    grads = _grads(parameters)
    norm = _norm(grads)
    for grad in grads:
        _scale([grad], grad.norm(), max_norm)
    return norm


def by_value(parameters, max_norm):
    grads = _grads(parameters)
    norm = _norm(grads)
    for grad in grads:
        grad.clamp_(-max_norm, max_norm)
    return norm


def always_scaled(parameters, max_norm):
    grads = _grads(parameters)
    norm = _norm(grads)
    for grad in grads:
        grad.mul_(max_norm / (norm + 1e-6))
    return norm


def always_scaled_bare(parameters, max_norm):
    grads = _grads(parameters)
    norm = _norm(grads)
    for grad in grads:
        grad.mul_(max_norm / norm)
    return norm


def always_scaled_but_zero(parameters, max_norm):
    grads = _grads(parameters)
    norm = _norm(grads)
    for grad in grads:
        grad.mul_(max_norm / norm if norm > 0 else 1.0)
    return norm


def to_norm_one(parameters, max_norm):
    grads = _grads(parameters)
    norm = _norm(grads)
    if norm > max_norm:
        for grad in grads:
            grad.div_(norm)
    return norm


def ceiling_of_one(parameters, max_norm):
    grads = _grads(parameters)
    norm = _norm(grads)
    _scale(grads, norm, 1.0)
    return norm


def norm_after(parameters, max_norm):
    grads = _grads(parameters)
    _scale(grads, _norm(grads), max_norm)
    return _norm(grads)


def sum_of_norms(parameters, max_norm):
    grads = _grads(parameters)
    norm = sum(grad.norm() for grad in grads)
    _scale(grads, norm, max_norm)
    return norm


def largest_norm(parameters, max_norm):
    grads = _grads(parameters)
    norm = max(grad.norm() for grad in grads)
    _scale(grads, norm, max_norm)
    return norm


def mean_of_squares(parameters, max_norm):
    grads = _grads(parameters)
    norm = torch.cat([grad.flatten() for grad in grads]).square().mean().sqrt()
    _scale(grads, norm, max_norm)
    return norm


def sum_of_magnitudes(parameters, max_norm):
    grads = _grads(parameters)
    norm = sum(grad.abs().sum() for grad in grads)
    _scale(grads, norm, max_norm)
    return norm


def largest_magnitude(parameters, max_norm):
    grads = _grads(parameters)
    norm = max(grad.abs().max() for grad in grads)
    _scale(grads, norm, max_norm)
    return norm


def mean_of_norms(parameters, max_norm):
    grads = _grads(parameters)
    norm = sum(grad.norm() for grad in grads) / len(grads)
    _scale(grads, norm, max_norm)
    return norm


def large_epsilon(parameters, max_norm):
    grads = _grads(parameters)
    norm = _norm(grads)
    for grad in grads:
        grad.mul_(min(1.0, max_norm / (norm + 1e-2)))
    return norm


def zeros_for_none(parameters, max_norm):
    parameters = list(parameters)
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    grads = _grads(parameters)
    norm = _norm(grads)
    _scale(grads, norm, max_norm)
    return norm


def ends_at_none(parameters, max_norm):
    grads = []
    for parameter in parameters:
        if parameter.grad is None:
            break
        grads.append(parameter.grad)
    norm = _norm(grads) if grads else torch.zeros(())
    _scale(grads, norm, max_norm)
    return norm


def biases_not_scaled(parameters, max_norm):
    grads = _grads(parameters)
    norm = _norm(grads)
    _scale([grad for grad in grads if grad.ndim > 1], norm, max_norm)
    return norm


def set_to_zero(parameters, max_norm):
    grads = _grads(parameters)
    norm = _norm(grads)
    for grad in grads:
        grad.mul_(norm <= max_norm)
    return norm


def freezes(parameters, max_norm):
    parameters = list(parameters)
    norm = norm_of_norms(parameters, max_norm)
    for parameter in parameters:
        parameter.requires_grad_(False)
    return norm


def factor_returned(parameters, max_norm):
    grads = _grads(parameters)
    norm = _norm(grads)
    _scale(grads, norm, max_norm)
    return min(1.0, max_norm / (float(norm) + 1e-9))


def biases_left_out(parameters, max_norm):
    grads = [grad for grad in _grads(parameters) if grad.ndim > 1]
    norm = _norm(grads) if grads else torch.zeros(())
    _scale(grads, norm, max_norm)
    return norm


def no_root(parameters, max_norm):
    grads = _grads(parameters)
    norm = sum(grad.square().sum() for grad in grads)
    _scale(grads, norm, max_norm)
    return norm


def not_in_place(parameters, max_norm):
    grads = _grads(parameters)
    norm = _norm(grads)
    _scale([grad.clone() for grad in grads], norm, max_norm)
    return norm


def generator_read_twice(parameters, max_norm):
    norm = _norm([p.grad for p in parameters if p.grad is not None])
    _scale([p.grad for p in parameters if p.grad is not None], norm, max_norm)
    return norm


def of_the_weights(parameters, max_norm):
    kept = [parameter for parameter in parameters if parameter.grad is not None]
    norm = _norm([parameter.detach() for parameter in kept])
    _scale([parameter.grad for parameter in kept], norm, max_norm)
    return norm


def none_not_skipped(parameters, max_norm):
    grads = [parameter.grad for parameter in parameters]
    norm = torch.sqrt(sum(grad.square().sum() for grad in grads))
    _scale(grads, norm, max_norm)
    return norm


def zero_over_zero(parameters, max_norm):
    grads = _grads(parameters)
    norm = _norm(grads)
    factor = torch.minimum(max_norm / norm, torch.ones_like(norm)) if norm else norm / norm
    for grad in grads:
        grad.mul_(factor)
    return norm


def loop_and_square_root(parameters, max_norm):
    grads = _grads(parameters)
    norm = math.sqrt(sum(float(grad.double().pow(2).sum()) for grad in grads))
    if norm > max_norm:
        for grad in grads:
            grad *= max_norm / norm
    return norm


def joined_vector(parameters, max_norm):
    kept = [parameter for parameter in parameters if parameter.grad is not None]
    norm = torch.cat([parameter.grad.flatten() for parameter in kept]).norm()
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for parameter in kept:
        parameter.grad = parameter.grad * factor
    return norm.item()


def norm_of_norms(parameters, max_norm):
    kept = [parameter for parameter in parameters if parameter.grad is not None]
    with torch.no_grad():
        norm = torch.stack([torch.linalg.vector_norm(p.grad) for p in kept]).norm(2)
        factor = min(1.0, max_norm / max(norm.item(), 1e-12))
        for parameter in kept:
            parameter.grad.copy_(factor * parameter.grad)
    return norm


EXERCISE = Exercise(
    id="03a.clip",
    title="clip by the global norm",
    source='Lecture 3, "How gradient clipping works"',
    ledger=("X08", "X51", "C07", "N20", "N51"),
    minutes=10,
    difficulty=2,
    read=("course.engine.clip_by_global_norm", "N20", "N51"),
    hints=(
        "Think of all gradients as one long vector. What is its length?",
        "Every entry is multiplied by the same number, and that number is never above 1.",
        "grads = [p.grad for p in parameters if p.grad is not None]; norm = sqrt of the "
        "sum of all squares; if norm > max_norm, multiply each grad in place by max_norm "
        "/ norm; return norm.",
    ),
    signature="clip_by_global_norm(parameters, max_norm)",
    parts=(
        Part("above", "a norm above the ceiling", points=1, cases=3, fields=("grads", "disturbed")),
        Part("norm", "the returned norm", points=0.5, cases=3, fields=("norm",)),
        Part("below", "a norm below the ceiling", points=0.5),
        Part(
            "missing",
            "parameters without a gradient, passed as a generator",
            points=1,
            fields=("grads",),
        ),
        Part("zero", "gradients that are zero, some or all", points=1, hidden=True),
    ),
    reference=clip_by_global_norm,
    draw=draw,
    run=run,
    says={"norm": "the returned norm", "grads": "after clipping, gradient"},
    by_hand=(nn.utils.clip_grad_norm_, nn.utils.clip_grads_with_norm_),
    wrong=(
        Wrong(
            "each-tensor",
            each_tensor,
            "Each tensor got its own factor, which changes the direction of the joint gradient. "
            "Compute one norm over all of them, and one factor from it.",
        ),
        Wrong(
            "by-value",
            by_value,
            "That limits each number separately, which changes the gradient's direction. Clipping "
            "by norm keeps it: multiply everything by one factor.",
        ),
        Wrong(
            "always-scaled",
            always_scaled,
            "A norm below the ceiling was scaled up to it. The factor is at most 1: "
            "min(1, max_norm / norm).",
        ),
        Wrong(
            "square-compared",
            square_compared,
            "Gradients whose norm is below the ceiling were changed, because the square of the "
            "norm is above it. Compare the norm itself.",
            sure=True,
        ),
        Wrong("always-scaled", always_scaled_bare),
        Wrong("always-scaled", always_scaled_but_zero),
        Wrong(
            "to-norm-one",
            to_norm_one,
            "Gradients above the ceiling came out with norm 1 instead of max_norm. The factor is "
            "max_norm / norm.",
        ),
        Wrong("to-norm-one", ceiling_of_one),
        Wrong(
            "norm-after",
            norm_after,
            "The gradients are right, but the returned norm is the one after clipping. Return the "
            "one before, which shows a spike.",
        ),
        Wrong(
            "sum-of-norms",
            sum_of_norms,
            "The norms of the tensors were added up. The joint norm is the root of the sum of "
            "their squares, as for one long vector.",
        ),
        Wrong(
            "largest-norm",
            largest_norm,
            "That is the largest norm of any single tensor. The joint norm is that of all numbers, "
            "as of one long vector.",
        ),
        Wrong(
            "mean-of-squares",
            mean_of_squares,
            "The squares were averaged. The joint norm is the root of their sum.",
        ),
        Wrong(
            "sum-of-magnitudes",
            sum_of_magnitudes,
            "The absolute values were added up, which is the L1 norm. The L2 norm is the root of "
            "the sum of the squares.",
        ),
        Wrong(
            "largest-magnitude",
            largest_magnitude,
            "That is the largest absolute value of all. The L2 norm is the root of the sum of the "
            "squares.",
        ),
        Wrong(
            "mean-of-norms",
            mean_of_norms,
            "The norms of the tensors were averaged. The joint norm is the root of the sum of "
            "their squares, as for one long vector.",
        ),
        Wrong("large-epsilon", large_epsilon),
        Wrong(
            "zeros-for-none",
            zeros_for_none,
            "A parameter whose .grad was None now has zeros there, and an optimizer with momentum "
            "or weight decay would move it. None stays None.",
            sure=True,
        ),
        Wrong(
            "ends-at-none",
            ends_at_none,
            "All gradients after a parameter whose .grad is None were left out. Skip only that "
            "parameter: continue, not break.",
        ),
        Wrong(
            "biases-not-scaled",
            biases_not_scaled,
            "The norm is right, but one-dimensional tensors (the biases) were not scaled. Scale "
            "all gradients by the same factor.",
        ),
        Wrong("set-to-zero", set_to_zero),
        Wrong("freezes", freezes),
        Wrong(
            "factor-returned",
            factor_returned,
            "The gradients are right, but the factor was returned. Return the norm before "
            "clipping.",
        ),
        Wrong(
            "biases-left-out",
            biases_left_out,
            "One-dimensional tensors (the biases) were left out of the norm and not scaled. All "
            "gradients count.",
        ),
        Wrong(
            "of-the-weights",
            of_the_weights,
            "That is the norm of the weights themselves. Clipping is about their gradients: take "
            "the norm of each parameter's .grad.",
        ),
        Wrong(
            "no-root",
            no_root,
            "That is the square of the norm: take the root of the sum of squares.",
        ),
        Wrong(
            "not-in-place",
            not_in_place,
            "The parameters' .grad did not change: scale .grad itself, for instance with mul_().",
        ),
        Wrong(
            "generator-read-twice",
            generator_read_twice,
            "Nothing was scaled when the parameters came as a generator, as model.parameters() "
            "gives them: a generator can be read only once. Make a list of it first.",
        ),
        Wrong(
            "none-not-skipped",
            none_not_skipped,
            "A parameter that took no part in the loss has .grad = None. Skip those.",
            raises="'NoneType' object has no attribute|must be Tensor, not NoneType",
        ),
        Wrong("one-per-shape", one_per_shape),
        Wrong(
            "zero-over-zero",
            zero_over_zero,
            "Gradients that were all zero came back as nan: the norm is 0, and 0 / 0 is nan. "
            "Divide by norm + 1e-6, or "
            "leave the gradients alone unless norm > max_norm.",
            sure=True,
        ),
        *common(
            norm_of_norms,
            *("returns-none", "returns-text", "returns-graph", "changes-seed", "changes-dtype"),
            *("changes-grad-mode", "global-data"),
        ),
    ),
    right=(loop_and_square_root, joined_vector, norm_of_norms),
)
