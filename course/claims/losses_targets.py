"""Losses and the targets they take; inputs on the wrong scale."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from course.claims.lab import (
    accuracy,
    digits,
    error_of,
    fit,
    flat_grad,
    grad_norm,
    mlp,
    warnings_of,
)
from course.claims.registry import Measured, claim, weigh


@claim(
    "F05",
    title="Cross-entropy is log-softmax plus NLL",
    source="All: Lecture 3, engineering module §3, training-loop chapter c3, annotated-loop essay",
    expected="holds",
    says="Cross-entropy equals log-softmax followed by the negative log-likelihood.",
)
def cross_entropy_is_nll() -> Measured:
    logits, targets = torch.randn(64, 10), torch.randint(0, 10, (64,))
    joined = F.cross_entropy(logits, targets)
    composed = F.nll_loss(F.log_softmax(logits, dim=1), targets)
    by_hand = (logits.logsumexp(1) - logits[range(64), targets]).mean()
    evidence = {
        "difference": abs(joined - composed),
        "difference from log-sum-exp by hand": abs(joined - by_hand),
    }
    stated = joined == composed and abs(joined - by_hand) < 1e-5
    return weigh("difference", evidence, stated=stated)


@claim(
    "F06",
    title="Softmax before cross-entropy weakens learning",
    source='Lecture 3, "Loss functions"; engineering module, §3',
    expected="holds",
    says="A softmax before cross-entropy, which holds one already, weakens the gradient.",
)
def softmax_twice(seed: int) -> Measured:
    targets = torch.arange(12) % 3
    inputs = torch.eye(4)[targets] + 0.2 * torch.randn(12, 4)
    norms, final = {}, {}
    for name, twice in (("logits", False), ("softmax", True)):
        model = mlp(4, 16, 3, seed=seed)
        model = nn.Sequential(model, nn.Softmax(dim=1)) if twice else model
        F.cross_entropy(model(inputs), targets).backward()
        norms[name] = grad_norm(model)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        run = fit(model, optimizer, inputs, targets, steps=300, batch_size=12)
        final[name] = run.losses[-1]
        right = accuracy(model, inputs, targets)
    floor = math.log(1 + 2 / math.e)  # three classes, all probability on the right one
    evidence = {
        "first gradient norm, softmax / logits": norms["softmax"] / norms["logits"],
        "gradient of a confident mistake": _confident_mistake(),
        "loss after 300 steps": final,
        "floor ln(1 + (C − 1)/e)": floor,
        "accuracy at the floor": right,
    }
    weaker = norms["softmax"] < 0.7 * norms["logits"]
    return weigh(
        "first gradient norm, softmax / logits",
        evidence,
        stated=weaker and final["softmax"] >= floor - 1e-4 and final["logits"] < 0.05,
        note="Its signature: the loss stops at the floor while the accuracy reaches 1.",
    )


def _confident_mistake() -> dict[str, float]:
    """Gradient norm at the logits [10, 0, 0] when class 1 is right."""
    norms = {}
    for name, link in (("logits", lambda z: z), ("softmax", lambda z: z.softmax(1))):
        logits = torch.tensor([[10.0, 0.0, 0.0]], requires_grad=True)
        F.cross_entropy(link(logits), torch.tensor([1])).backward()
        norms[name] = logits.grad.norm().item()
    return norms


@claim(
    "F07",
    title="Cross-entropy needs long targets of shape [B]",
    source="All: Lecture 3, engineering module §3, training-loop chapter c3, annotated-loop essay",
    expected="holds if",
    says="Cross-entropy takes class indices as a long tensor of shape [B], and nothing else.",
    condition="if uint8 indices are set aside, which pass too, and floats [B, C], which are read "
    "as probabilities",
)
def cross_entropy_targets() -> Measured:
    logits, targets = torch.randn(8, 3), torch.arange(8) % 3
    errors = {
        "long [B]": error_of(F.cross_entropy, logits, targets),
        "uint8 [B]": error_of(F.cross_entropy, logits, targets.to(torch.uint8)),
        "int32 [B]": error_of(F.cross_entropy, logits, targets.int()),
        "float [B]": error_of(F.cross_entropy, logits, targets.float()),
        "bool [B]": error_of(F.cross_entropy, logits, targets.bool()),
        "long [B, 1]": error_of(F.cross_entropy, logits, targets[:, None]),
    }
    accepted = [name for name, error in errors.items() if not error]
    others = [error for name, error in errors.items() if name not in ("long [B]", "uint8 [B]")]
    evidence = {"forms accepted, of 6": len(accepted), "accepted": accepted, "raises": errors}
    return weigh(
        "forms accepted, of 6",
        evidence,
        stated=accepted == ["long [B]"],
        conditioned=not errors["long [B]"] and all(others),
    )


@claim(
    "F08",
    title="One-hot float targets break cross-entropy",
    source='Lecture 3, "Loss functions"; engineering module, quiz 3',
    expected="does not hold",
    says="One-hot targets as floats make cross-entropy crash or learn something else.",
)
def one_hot_targets() -> Measured:
    logits, targets = torch.randn(32, 5), torch.randint(0, 5, (32,))
    one_hot = F.one_hot(targets, 5)
    error = error_of(F.cross_entropy, logits, one_hot.float())
    indices = F.cross_entropy(logits, targets)
    floats = F.cross_entropy(logits, one_hot.float())
    difference = abs(indices - floats).item()
    evidence = {
        "loss differs from that of indices by": difference,
        "float one-hot raises": error or "nothing",
        "integer one-hot raises": error_of(F.cross_entropy, logits, one_hot) or "nothing",
    }
    return weigh(
        "loss differs from that of indices by",
        evidence,
        stated=bool(error) or difference > 1e-5,
        note="Since torch 1.10 floats [B, C] are class probabilities; one-hot is a special case.",
    )


_BAD_LABEL_ON_GPU = """
import sys, torch
logits, targets = torch.randn(4, 3, device="cuda"), torch.tensor([int(sys.argv[1])] * 4).cuda()
torch.nn.functional.cross_entropy(logits, targets).item()
"""


@claim(
    "F09",
    title="Out-of-range labels are caught",
    source="Engineering module, §3",
    expected="holds",
    says="A label outside 0 .. C − 1 is an error that must be caught, and it is.",
    gpu=True,
)
def out_of_range_labels(device: torch.device) -> Measured:
    logits = torch.randn(4, 3)
    errors = {
        str(label): error_of(F.cross_entropy, logits, torch.full((4,), label)) for label in (3, -1)
    }
    evidence = {"bad labels that pass, of 2": list(errors.values()).count(""), "raises": errors}
    stated = all(errors.values())
    if device.type == "cuda":  # in a process of its own, which the device-side assert kills
        import subprocess
        import sys

        codes = {}
        for label in errors:
            command = [sys.executable, "-c", _BAD_LABEL_ON_GPU, label]
            codes[label] = subprocess.run(command, capture_output=True).returncode
        evidence["exit code on the GPU"] = codes
        stated = stated and all(codes.values())
    return weigh("bad labels that pass, of 2", evidence, stated=stated)


@claim(
    "F12",
    title="MSE for two classes misbehaves",
    source="Engineering module, §3",
    expected="holds",
    says="MSE between outputs of a classifier and class labels misbehaves.",
)
def mse_for_classes() -> Measured:
    labels = torch.arange(4.0)
    column = labels[:, None].clone()  # a perfect prediction, of shape [4, 1]
    loss = F.mse_loss(column, labels).item()
    warned = warnings_of(F.mse_loss, column, labels)
    by_broadcast = (column - labels).square().mean().item()
    evidence = {
        "loss of a perfect prediction [4, 1] against [4]": loss,
        "warnings": len(warned),
        "[4, 2] against [4] raises": error_of(F.mse_loss, torch.randn(4, 2), labels) or "nothing",
        "[2, 2] against [2] raises": error_of(F.mse_loss, torch.randn(2, 2), labels[:2])
        or "nothing",
    }
    return weigh(
        "loss of a perfect prediction [4, 1] against [4]",
        evidence,
        stated=loss == by_broadcast > 0,
        note="Broadcasting compares every output with every label: 16 differences, not 4.",
    )


@claim(
    "F13",
    title="BCE-with-logits takes [B, 1] or [B], in float",
    source="Engineering module, §3",
    expected="holds if",
    says="BCE-with-logits takes outputs [B, 1] or [B] and float targets.",
    condition="if outputs and targets have exactly the same shape",
)
def bce_targets() -> Measured:
    bce = F.binary_cross_entropy_with_logits
    outputs, targets = torch.randn(8, 1), (torch.arange(8) % 2).float()
    errors = {
        "[B] and [B]": error_of(bce, outputs[:, 0], targets),
        "[B, 1] and [B, 1]": error_of(bce, outputs, targets[:, None]),
        "[B, 1] and [B]": error_of(bce, outputs, targets),
        "[B] and long [B]": error_of(bce, outputs[:, 0], targets.long()),
    }
    equal = not errors["[B] and [B]"] and not errors["[B, 1] and [B, 1]"]
    needs_float = bool(errors["[B] and long [B]"])
    evidence = {"pairs of shapes that raise": sum(map(bool, errors.values())), "raises": errors}
    return weigh(
        "pairs of shapes that raise",
        evidence,
        stated=equal and needs_float and not errors["[B, 1] and [B]"],
        conditioned=equal and needs_float,
    )


@claim(
    "F14",
    title="Unnormalised pixels make training unstable",
    source='Lecture 3, "The batch contract"',
    expected="holds if",
    says="Pixels in 0-255 instead of normalised ones make training unstable.",
    condition="if the learning rate is one for normalised pixels; a smaller one, or Adam, copes",
)
def unnormalised_pixels(seed: int) -> Measured:
    inputs, targets, val_inputs, val_targets = digits(seed)
    offset, scale = inputs.min(), 255 / (inputs.max() - inputs.min())

    def reached(optimizer: type[torch.optim.Optimizer], lr: float, raw: bool) -> list[float]:
        model = mlp(64, 32, 10, seed=seed)
        move = (lambda x: (x - offset) * scale) if raw else (lambda x: x)
        run = fit(
            model, optimizer(model.parameters(), lr), move(inputs), targets, steps=900
        )  # 20 epochs of 45
        return [accuracy(model, move(val_inputs), val_targets), run.losses[0]]

    sgd, adam = torch.optim.SGD, torch.optim.Adam
    same_lr, small_lr = reached(sgd, 0.1, True), reached(sgd, 0.001, True)
    by_adam, normalised = reached(adam, 1e-3, True), reached(sgd, 0.1, False)
    evidence = {
        "accuracy, 0-255, SGD 0.1": same_lr[0],
        "accuracy, normalised, SGD 0.1": normalised[0],
        "accuracy, 0-255, SGD 0.001": small_lr[0],
        "accuracy, 0-255, Adam 0.001": by_adam[0],
        "first loss, 0-255 and normalised": [same_lr[1], normalised[1]],
    }
    fails = same_lr[0] < 0.5 and normalised[0] > 0.9
    return weigh(
        "accuracy, 0-255, SGD 0.1",
        evidence,
        stated=fails and small_lr[0] < 0.8 and by_adam[0] < 0.8,
        conditioned=fails,
    )


@claim(
    "F71",
    title="Mean reduction divides by the batch size",
    source="Annotated-loop essay",
    expected="holds if",
    says="With reduction='mean' the loss is the sum over examples divided by the batch size.",
    condition="if there are no class weights and nothing is ignored",
)
def mean_reduction() -> Measured:
    logits = torch.randn(32, 3, requires_grad=True)
    targets = torch.arange(32) % 3
    weight = torch.tensor([1.0, 2.0, 5.0])
    masked = targets.clone()
    masked[:8] = -100

    def times(**kwargs: object) -> float:
        """Divisor of the mean: sum-reduced over mean-reduced loss."""
        chosen = kwargs.pop("targets", targets)
        total = F.cross_entropy(logits, chosen, reduction="sum", **kwargs)
        return (total / F.cross_entropy(logits, chosen, **kwargs)).item()

    nothing = F.cross_entropy(logits, torch.full((32,), -100)).item()
    divisors = {
        "plain": times(),
        "class weights": times(weight=weight),
        "8 of 32 ignored": times(targets=masked),
    }
    (by_sum,) = torch.autograd.grad(F.cross_entropy(logits, targets, reduction="sum"), logits)
    (by_mean,) = torch.autograd.grad(F.cross_entropy(logits, targets), logits)
    evidence = {
        "divisor with class weights, 32 examples": divisors["class weights"],
        "divisors": divisors,
        "sum of the class weights": weight[targets].sum(),
        "gradient norm, sum / mean": by_sum.norm() / by_mean.norm(),
        "all ignored": str(nothing),
    }
    right = {name: abs(value - 32) < 1e-2 for name, value in divisors.items()}
    return weigh(
        "divisor with class weights, 32 examples",
        evidence,
        stated=all(right.values()),
        conditioned=right["plain"],
    )


@claim(
    "F133",
    title="Label smoothing as printed is torch's",
    source="Annotated-loop essay",
    expected="holds",
    says="Smoothed targets are (1 − ε) one-hot + ε/C, and the loss is their cross-entropy.",
)
def label_smoothing() -> Measured:
    differences = []
    for num_classes in (3, 10):
        logits = torch.randn(16, num_classes, dtype=torch.float64)
        targets = torch.randint(0, num_classes, (16,))
        smooth = 0.9 * F.one_hot(targets, num_classes).double() + 0.1 / num_classes
        by_hand = -(smooth * logits.log_softmax(1)).sum(1).mean()
        differences.append(abs(by_hand - F.cross_entropy(logits, targets, label_smoothing=0.1)))
    evidence = {"largest difference": max(differences)}
    return weigh("largest difference", evidence, stated=max(differences) < 1e-12)


@claim(
    "F83",
    title="Smaller batches give noisier gradients",
    source="Annotated-loop essay",
    expected="holds",
    says="The gradient of a smaller batch lies farther from the full gradient.",
)
def gradient_noise(seed: int) -> Measured:
    inputs, targets, _, _ = digits(seed)
    model = mlp(64, 32, 10, seed=seed)

    def gradient(rows: torch.Tensor) -> torch.Tensor:
        model.zero_grad()
        F.cross_entropy(model(inputs[rows]), targets[rows]).backward()
        return flat_grad(model)

    full = gradient(torch.arange(len(targets)))
    noise = {}
    for size in (16, 64, 256):
        draws = [gradient(torch.randint(0, len(targets), (size,))) for _ in range(40)]
        noise[size] = (torch.stack([(g - full).norm() for g in draws]).mean() / full.norm()).item()
    evidence = {
        "noise at 16 / noise at 256": noise[16] / noise[256],
        "relative distance from the full gradient": noise,
        "1/√B says": math.sqrt(256 / 16),
    }
    stated = noise[16] > 1.5 * noise[64] > 1.5**2 * noise[256]
    return weigh("noise at 16 / noise at 256", evidence, stated=stated)
