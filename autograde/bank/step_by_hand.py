"""01c.step-by-hand: a step of SGD for a linear layer and squared error, without autograd."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor

from autograde.bank.common_wrong import common
from autograde.bank.harness import Watch
from autograde.exercise import Answer, Case, Draw, Exercise, Part, Wrong, as_number, kept
from autograde.kinds.fix import variant
from course.from_scratch.layers import linear, linear_backward
from course.from_scratch.losses import mse, mse_backward
from course.from_scratch.optimizers import sgd_step

RATIO = 0.01
"""Up to which a ratio of two moves in float32 is told."""


def draw(source: Draw, part: str) -> Case:
    """A layer and a batch. Where the mean's factor is not asked about, B · outputs is 2.

    In float64 the outputs are large and the errors small, so that float32 would lose its digits.
    """
    batch, outputs = (1, 2) if part == "one" else (source.integer(3, 5), 3)
    if part == "bias":
        batch, outputs = ((2, 1), (1, 2))[source.index % 2]
    if part == "batch" and source.index == 1:
        outputs = 1
    features = source.integer(2, 4)
    scale = 100.0 if source.index in (1, 2) else 1.0
    weight, bias = source.normal(outputs, features), source.normal(outputs)
    inputs = source.normal(batch, features, scale=scale)
    targets = source.normal(batch, outputs, scale=scale)
    if source.index == 1:
        targets = (inputs @ weight.T + bias).round() + targets / scale
    return {
        "weight": weight,
        "bias": bias,
        "inputs": inputs,
        "targets": targets,
        "lr": source.uniform(0.05, 0.2),
        "dtype": "float64" if source.index == 1 else "float32",
    }


def run(function, case: Case, device: torch.device) -> Answer:
    """Weight and bias after the call, and the returned loss."""
    names = ("weight", "bias", "inputs", "targets")
    dtype = getattr(torch, case["dtype"])
    weight, bias, inputs, targets = (case[name].to(device, dtype) for name in names)
    watch = Watch(data={"inputs": inputs, "targets": targets})
    returned = function(weight, bias, inputs, targets, case["lr"])
    disturbed = watch.changed()
    if weight.requires_grad or bias.requires_grad:
        disturbed.append("requires_grad of the layer's tensors")
    return {
        "weight": weight.detach().cpu(),
        "bias": bias.detach().cpu(),
        "loss": kept(as_number, returned, "the loss before the step"),
        "disturbed": disturbed,
        "bias_scaled": _bias_scaled(case, weight, bias),
    }


def _bias_scaled(case: Case, weight: Tensor, bias: Tensor) -> str:
    """Whether the bias moved by a multiple of its sum that is the weight's without 2 / B · outputs.

    The part `bias` has two squared errors, where that is 1, so that one mistake costs one part.
    """
    w, b, x, t = (case[name].double() for name in ("weight", "bias", "inputs", "targets"))
    error = x @ w.T + b - t
    sums, moves = (error.T @ x, error.sum(dim=0)), (weight.cpu() - w, bias.cpu() - b)
    of_weight, of_bias = (
        ((m * s).sum() / s.square().sum()).item() for m, s in zip(moves, sums, strict=True)
    )
    times = of_bias / (of_weight or math.nan)
    alike = math.isclose(times, error.numel() / 2, rel_tol=RATIO)
    alike &= torch.allclose(moves[1], of_bias * sums[1], rtol=RATIO)
    return "not by the weight's factor" if alike and error.numel() > 2 else "as it should be"


def reference(weight: Tensor, bias: Tensor, inputs: Tensor, targets: Tensor, lr: float) -> float:
    """Forward, loss, backward and step from scratch, in float64."""
    w, b, x, t = (one.double().cpu().numpy() for one in (weight, bias, inputs, targets))
    y = linear(x, w, b)
    _, grad_w, grad_b = linear_backward(x, w, mse_backward(y, t))
    weight.copy_(torch.from_numpy(sgd_step(w, grad_w, {}, lr=lr)[0]))
    bias.copy_(torch.from_numpy(sgd_step(b, grad_b, {}, lr=lr)[0]))
    return mse(y, t)


def in_matrices(weight, bias, inputs, targets, lr):
    error = inputs @ weight.T + bias - targets
    slope = 2 * error / error.numel()
    weight -= lr * slope.T @ inputs
    bias -= lr * slope.sum(dim=0)
    return error.square().mean().item()


def example_by_example(weight, bias, inputs, targets, lr):
    grad_w, grad_b, total = torch.zeros_like(weight), torch.zeros_like(bias), 0.0
    for x, t in zip(inputs, targets, strict=True):
        error = torch.mv(weight, x) + bias - t
        grad_w += torch.outer(error, x)
        grad_b += error
        total += float((error**2).sum())
    weight.sub_(grad_w, alpha=2 * lr / targets.numel())
    bias.sub_(grad_b, alpha=2 * lr / targets.numel())
    return total / targets.numel()


def bias_as_a_column(weight, bias, inputs, targets, lr):
    with_ones = torch.cat([inputs, torch.ones_like(inputs[:, :1])], dim=1)
    joined = torch.cat([weight, bias[:, None]], dim=1)
    error = torch.einsum("bi,oi->bo", with_ones, joined) - targets
    moved = joined - lr * 2 * torch.einsum("bo,bi->oi", error, with_ones) / targets.numel()
    weight.copy_(moved[:, :-1])
    bias.copy_(moved[:, -1])
    return torch.mean(error**2)


SCRIPT = """
def step_by_hand(weight, bias, inputs, targets, lr):
    error = inputs @ weight.T + bias - targets
    slope = 2 * error / error.numel()
    weight -= lr * slope.T @ inputs
    bias -= lr * slope.sum(dim=0)
    return error.square().mean().item()
"""
SLOPE, ERROR = "2 * error / error.numel()", "    error = inputs @ weight.T + bias - targets\n"
WEIGHT, BIAS = "    weight -= lr * slope.T @ inputs\n", "    bias -= lr * slope.sum(dim=0)\n"
LOSS = "error.square().mean().item()"
AGAIN = ERROR.replace("error =", "later =") + "    slope = 2 * later / later.numel()\n"

slip = partial(variant, SCRIPT, __file__)
no_factor = slip((SLOPE, "error"))
not_divided = slip((SLOPE, "2 * error"))
mean_over_examples = slip((SLOPE, "2 * error / len(error)"))
mean_over_outputs = slip((SLOPE, "2 * error / error.shape[1]"))
half_per_example = slip((SLOPE, "error / len(error)"))
half_per_example_throughout = slip(
    (SLOPE, "error / len(error)"), (LOSS, LOSS.replace("mean", "sum") + " / 2 / len(inputs)")
)
half_a_gradient = slip((SLOPE, "error / error.numel()"))
uphill = slip((SLOPE, "-" + SLOPE))
whole_gradient = slip((WEIGHT, WEIGHT.replace("lr * ", "")), (BIAS, BIAS.replace("lr * ", "")))
bias_left = slip((BIAS, ""))
bias_summed_over_all = slip((BIAS, BIAS.replace("dim=0", "")))
bias_mean = slip((BIAS, BIAS.replace("sum", "mean")))
bias_not_divided = slip((BIAS, "    bias -= lr * error.sum(dim=0)\n"))
bias_over_examples = slip((BIAS, "    bias -= lr * 2 * error.mean(dim=0)\n"))
first_example = slip((WEIGHT, "    weight -= lr * slope[:1].T @ inputs[:1]\n"),
                     (BIAS, "    bias -= lr * slope[0]\n"))  # fmt: skip
weight_not_in_place = slip((WEIGHT, WEIGHT.replace("weight -=", "weight = weight -")))
neither_in_place = slip((WEIGHT, WEIGHT.replace("weight -=", "weight = weight -")),
                        (BIAS, BIAS.replace("bias -=", "bias = bias -")))  # fmt: skip
bias_from_moved_weight = slip((WEIGHT, WEIGHT + AGAIN))
weight_from_moved_bias = slip((WEIGHT + BIAS, BIAS + AGAIN + WEIGHT))
bias_not_in_forward = slip((" + bias", ""))
loss_after = slip((LOSS, LOSS.replace("error", "(inputs @ weight.T + bias - targets)")))
loss_summed = slip((LOSS, LOSS.replace("mean", "sum")))
loss_halved = slip((LOSS, LOSS.replace("mean", "sum") + " / 2"))
loss_per_example = slip((LOSS, LOSS.replace("mean", "sum") + " / len(inputs)"))
loss_half_per_example = slip((LOSS, LOSS.replace("mean", "sum") + " / 2 / len(inputs)"))
root = slip((LOSS, LOSS + " ** 0.5"))
outer_of_means = slip(
    (WEIGHT, "    weight -= lr * torch.outer(slope.sum(dim=0), inputs.mean(dim=0))\n")
)


def mean_of_the_first(weight, bias, inputs, targets, lr):
    loss = (inputs @ weight.T + bias - targets).square().mean()
    in_matrices(weight, bias, inputs[:1], targets[:1], lr)
    return loss


def a_step_per_example(weight, bias, inputs, targets, lr):
    loss = (inputs @ weight.T + bias - targets).square().mean()
    for x, t in zip(inputs, targets, strict=True):
        in_matrices(weight, bias, x[None], t[None], lr)
    return loss


def a_share_per_example(weight, bias, inputs, targets, lr):
    return a_step_per_example(weight, bias, inputs, targets, lr / len(inputs))


def in_float32(weight, bias, inputs, targets, lr):
    w, b = weight.float(), bias.float()
    loss = in_matrices(w, b, inputs.float(), targets.float(), lr)
    weight.copy_(w)
    bias.copy_(b)
    return loss


def spoils_targets(weight, bias, inputs, targets, lr):
    moved = targets.clone()
    targets -= inputs @ weight.T + bias
    return in_matrices(weight, bias, inputs, moved, lr)


def spoils_inputs(weight, bias, inputs, targets, lr):
    loss = in_matrices(weight, bias, inputs, targets, lr)
    inputs *= lr
    return loss


EXERCISE = Exercise(
    id="01c.step-by-hand",
    title="one step, without autograd",
    source='Chapter 3, "One complete step"',
    ledger=("T14", "N09", "N10", "N11", "K37"),
    minutes=15,
    difficulty=2,
    read=("N09", "N11", "course.from_scratch.layers"),
    hints=(
        "Write the shapes next to each other: error [B, out], inputs [B, in], weight [out, in].",
        "By how many squared errors does the mean divide? The same number divides every slope.",
        "slope = 2 · error / (B · outputs); the weight's gradient is slope transposed times "
        "inputs, the bias's is the sum of slope over the batch. Compute both, then move both.",
    ),
    signature="step_by_hand(weight, bias, inputs, targets, lr)",
    parts=(
        Part("one", "the weight, one example and two outputs", points=1,
             fields=("weight", "disturbed")),
        Part("batch", "the weight, more examples and outputs", points=1, cases=3,
             fields=("weight", "bias_scaled")),
        Part("bias", "the bias, two examples or two outputs", points=1, cases=4,
             fields=("bias",)),
        Part("loss", "the returned loss", points=1, fields=("loss",)),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "weight": "after the step, the weight",
        "bias": "after the step, the bias",
        "bias_scaled": "the bias's slope, compared with the weight's:",
        "loss": "the returned loss",
    },
    by_hand=(
        Tensor.backward, torch.autograd.backward, torch.autograd.grad, "torch.autograd",
        "torch.autograd.graph", "torch.autograd.forward_ad", "torch._functorch.eager_transforms",
    ),
    wrong=(
        Wrong("no-factor", no_factor,
              "The gradient is that of half the sum of the squares. MSELoss is a mean: its slope "
              "is 2 · error / (B · outputs), which is the same only for two squared errors."),
        Wrong("not-divided", not_divided,
              "The gradient is that of the sum of the squares, B · outputs times as large as the "
              "mean's. Divide the slope 2 · error by the number of squares."),
        Wrong("mean-over-examples", mean_over_examples,
              "The slope was divided only by the number of examples. The mean is over all B · "
              "outputs squared errors."),
        Wrong("mean-over-outputs", mean_over_outputs,
              "The slope was divided only by the number of outputs. The mean is over all B · "
              "outputs squared errors."),
        Wrong("half-per-example", half_per_example,
              "The slope is that of half the sum of squares per example, error / B. MSELoss is a "
              "mean over all B · outputs squares, whose slope is 2 · error / (B · outputs): the "
              "same only for two outputs."),
        Wrong("half-per-example", half_per_example_throughout),
        Wrong("half-a-gradient", half_a_gradient,
              "Weight and bias moved half as far as they should: the slope of a square is 2 · "
              "error."),
        Wrong("uphill", uphill,
              "Weight and bias moved along the gradient, so the loss grows. Subtract lr times it."),
        Wrong("whole-gradient", whole_gradient,
              "The whole gradient was subtracted. Multiply it by lr first."),
        Wrong("bias-left", bias_left,
              "The bias has not changed. It has a gradient, too: the sum of the slopes over the "
              "batch."),
        Wrong("bias-summed-over-all", bias_summed_over_all,
              "Every output's bias moved by the same amount: the slopes were summed over the "
              "outputs, too. Sum only over the batch, dim=0."),
        Wrong("bias-mean", bias_mean,
              "The bias got the mean of the slopes over the batch, where it should get their sum: "
              "the slope already contains the division by B · outputs."),
        Wrong("bias-not-divided", bias_not_divided,
              "The bias moved by lr times the sum of the errors. It has the weight's factor, "
              "2 / (B · outputs), which is 1 only for two squared errors.", sure=True),
        Wrong("bias-over-examples", bias_over_examples,
              "The bias's slope was divided by the number of examples alone, the weight's was not. "
              "The mean is over all B · outputs squared errors: divide both by that."),
        Wrong("first-example", first_example,
              "Weight and bias moved as for the first example alone. Sum over the batch."),
        Wrong("first-example", mean_of_the_first),
        Wrong("outer-of-means", outer_of_means,
              "The weight moved by the mean error times the mean input. Multiply within each "
              "example, and add up over the batch: slope.T @ inputs.", sure=True),
        Wrong("step-per-example", a_step_per_example,
              "There was one step per example, so later examples met a weight that had already "
              "moved. Make one step for the whole batch.", sure=True),
        Wrong("step-per-example", a_share_per_example, sure=True),
        Wrong("in-float32", in_float32),
        Wrong("spoils-what-is-handed-over", spoils_targets,
              "Inputs or targets were changed in place. Only weight and bias should be: `x = x - "
              "…` makes a new tensor, `x -= …` and methods that end in _ do not.", sure=True),
        Wrong("spoils-what-is-handed-over", spoils_inputs, sure=True),
        Wrong("weight-not-in-place", weight_not_in_place,
              "The weight that was passed in has not changed: `weight = weight - …` makes a new "
              "tensor. Use `weight -= …`, which changes the old one."),
        Wrong("neither-in-place", neither_in_place,
              "The weight and bias that were passed in have not changed. Move them in place, with "
              "`-=`, sub_() or copy_()."),
        Wrong("bias-from-moved-weight", bias_from_moved_weight,
              "The bias's gradient was computed with the weight after its move. Compute both "
              "gradients first, then move both: that is why backward() comes before step()."),
        Wrong("weight-from-moved-bias", weight_from_moved_bias,
              "The weight's gradient was computed with the bias after its move. Compute both "
              "gradients first, then move both: that is why backward() comes before step()."),
        Wrong("bias-not-in-forward", bias_not_in_forward,
              "The outputs were computed without the bias: they are inputs · weightᵀ + bias."),
        Wrong("loss-after", loss_after,
              "That is the loss after the step. Return the one from before it, whose gradient was "
              "used."),
        Wrong("loss-summed", loss_summed,
              "That is the sum of the squared errors. Return their mean."),
        Wrong("loss-halved", loss_halved,
              "That is half the sum of the squared errors, which is the mean only if there are "
              "two."),
        Wrong("loss-per-example", loss_per_example,
              "That is the sum of squared errors per example. Divide by B · outputs, not by B."),
        Wrong("loss-half-per-example", loss_half_per_example,
              "That is half the sum of the squared errors per example, which is the mean only for "
              "two outputs. Divide by B · outputs."),
        Wrong("root", root, "That is the root of the mean squared error. Leave out the root."),
        *common(in_matrices, "returns-none", "returns-text", "returns-graph", "changes-data",
                "changes-dtype", "changes-grad-mode", "changes-seed", "global-data",
                alike={"changes-data": "spoils-what-is-handed-over"}),
    ),
    right=(in_matrices, example_by_example, bias_as_a_column),
)  # fmt: skip
