"""Losses and the targets they accept; inputs on the wrong scale."""

from __future__ import annotations

import math
import statistics
from functools import lru_cache

import torch
from torch import nn
from torch.nn import functional as F

from course.claims.lab import (
    cycle_batches,
    digits,
    error_of,
    flat_grad,
    mlp,
    spirals,
    warnings_of,
)
from course.claims.registry import claim
from course.claims.settings import DIABETES, DIGITS, SPIRAL, Data, Setting
from course.claims.trial import Measured, weigh, weigh_settings


@claim(
    "F05",
    title="Cross-entropy is log-softmax plus NLL",
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
    expected="holds",
    says="A softmax before cross-entropy, which already contains one, weakens the gradient.",
)
def softmax_twice(seed: int) -> Measured:
    norms, final, right, held = {}, {}, {}, {}
    for one, classes in ((SPIRAL.but(optimizer="Adam", rate=0.01), 3), (DIGITS, 10)):
        floor = math.log(1 + (classes - 1) / math.e)  # all probability on the right class
        for name, twice in (("logits", False), ("softmax", True)):
            model = one.make_model(100 * seed)
            model = nn.Sequential(model, nn.Softmax(dim=1)) if twice else model
            run = one.train(100 * seed, model=model).run
            norms[name], final[name] = run.norms[0], statistics.fmean(run.losses[-20:])
            right[f"{one.data}, {name}"] = one.score(model, 100 * seed)
        held[one] = (
            norms["softmax"] < 0.7 * norms["logits"] and final["softmax"] > floor > final["logits"]
        )
    evidence = {
        "first gradient norm, softmax / logits": norms["softmax"] / norms["logits"],
        "gradient of a confident mistake": _confident_mistake(),
        "late loss on digits": final,
        "floor ln(1 + (C − 1)/e), ten classes": floor,
        "accuracy": right,
    }
    return weigh_settings(
        "first gradient norm, softmax / logits",
        evidence,
        held,
        criterion="the first gradient is less than 0.7 times as long, and the loss ends above a "
        "floor that logits get below",
        note="The symptom: the loss stops near the floor while the accuracy is high.",
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
    expected="holds if",
    says="Cross-entropy takes class indices as a long tensor of shape [B], and nothing else.",
    condition="if one ignores uint8 indices, which also pass, and floats [B, C], which are read as "
    "probabilities",
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
    expected="does not hold",
    says="One-hot targets as floats make cross-entropy crash or learn the wrong thing.",
)
def one_hot_targets() -> Measured:
    logits, targets = torch.randn(32, 5), torch.randint(0, 5, (32,))
    one_hot = F.one_hot(targets, 5)
    error = error_of(F.cross_entropy, logits, one_hot.float())
    indices = F.cross_entropy(logits, targets)
    floats = F.cross_entropy(logits, one_hot.float())
    difference = abs(indices - floats).item()
    evidence = {
        "loss differs from the loss with indices by": difference,
        "float one-hot raises": error or "nothing",
        "integer one-hot raises": error_of(F.cross_entropy, logits, one_hot) or "nothing",
    }
    return weigh(
        "loss differs from the loss with indices by",
        evidence,
        stated=bool(error) or difference > 1e-5,
        note="Since torch 1.10, floats [B, C] are class probabilities; one-hot targets are a "
        "special case.",
    )


_BAD_LABEL_ON_GPU = """
import sys, torch
logits, targets = torch.randn(4, 3, device="cuda"), torch.tensor([int(sys.argv[1])] * 4).cuda()
torch.nn.functional.cross_entropy(logits, targets).item()
"""


@claim(
    "F09",
    title="Out-of-range labels silently corrupt training unless checked",
    expected="holds if",
    says="A label outside the expected classes silently corrupts training, unless a check turns it "
    "into an error.",
    condition="if the loss is not cross-entropy, or if the label is -100, which cross-entropy "
    "ignores; it raises for any other",
    gpu=True,
)
def out_of_range_labels(device: torch.device) -> Measured:
    logits = torch.randn(4, 3)
    yes_no, outputs = torch.full((4,), 2.0), torch.randn(4, 1)
    errors = {
        "cross-entropy, 3 of 3 classes": error_of(F.cross_entropy, logits, torch.full((4,), 3)),
        "cross-entropy, -1": error_of(F.cross_entropy, logits, torch.full((4,), -1)),
        "cross-entropy, one of four -100": error_of(
            F.cross_entropy, logits, torch.tensor([0, 1, 2, -100])
        ),
        "BCE with logits, 2.0": error_of(F.binary_cross_entropy_with_logits, outputs[:, 0], yes_no),
        "squared error, 3.0": error_of(F.mse_loss, outputs[:, 0], torch.full((4,), 3.0)),
        "one-hot, 3 of 3 classes": error_of(F.one_hot, torch.tensor([3]), 3),
    }
    below = F.binary_cross_entropy_with_logits(torch.full((4,), 5.0), yes_no).item()
    evidence = {
        "bad labels that pass silently, of 6": list(errors.values()).count(""),
        "raises": {name: error or "nothing" for name, error in errors.items()},
        "BCE of the label 2.0 at logit 5 (a valid loss is never below 0)": below,
    }
    if device.type == "cuda":  # in a process of its own, which the device-side assert kills
        import subprocess
        import sys

        codes = {}
        for label in ("3", "-1"):
            command = [sys.executable, "-c", _BAD_LABEL_ON_GPU, label]
            codes[label] = subprocess.run(command, capture_output=True).returncode
        evidence["exit code on the GPU"] = codes
    return weigh_settings(
        "bad labels that pass silently, of 6",
        evidence,
        {name: not error for name, error in errors.items()},
        criterion="the bad label raises nothing",
        note="A label that passes is learnt or ignored: fail early, before the loss, as the source "
        "advises.",
    )


@claim(
    "F12",
    title="MSE for two classes misbehaves",
    expected="holds if",
    says="Squared error on two classes shows symptoms during training.",
    condition="if outputs [B, 1] are broadcast against labels [B]; with equal shapes it learns the "
    "classes nearly as well as the loss designed for them",
)
def mse_for_classes(seed: int) -> Measured:
    labels = torch.arange(4.0)
    column = labels[:, None].clone()  # a perfect prediction, of shape [4, 1]
    loss = F.mse_loss(column, labels).item()
    right, held = {}, {}
    for name, data, width in (
        ("spirals, two arms", _two_classes(spirals(seed)), 2),
        ("digits below 5 or not", _two_classes(digits(seed)), 64),
    ):
        reached = {
            kind: _yes_no_accuracy(data, width, kind, seed)
            for kind in ("matching", "broadcast", "cross-entropy")
        }
        right[name] = reached
        for kind in ("matching", "broadcast"):
            held[f"{name}, shapes {kind}"] = reached[kind] < reached["cross-entropy"] - 0.05
    evidence = {
        "loss of a perfect prediction [4, 1] against [4]": loss,
        "accuracy": right,
        "warnings": len(warnings_of(F.mse_loss, column, labels)),
        "[4, 2] against [4] raises": error_of(F.mse_loss, torch.randn(4, 2), labels) or "nothing",
        "[2, 2] against [2] raises": error_of(F.mse_loss, torch.randn(2, 2), labels[:2])
        or "nothing",
    }
    return weigh_settings(
        "loss of a perfect prediction [4, 1] against [4]",
        evidence,
        held,
        criterion="it ends more than 5 points of accuracy below cross-entropy",
        note="Broadcasting compares every output with every label: 16 differences, not 4.",
    )


def _two_classes(data: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """The training part with 0 for the lower half of the classes and 1 for the upper."""
    inputs, targets, *_ = data
    if targets.max() == 2:  # of three spirals the first two
        inputs, targets = inputs[targets < 2], targets[targets < 2]
    return inputs, (targets >= (targets.max() + 1) / 2).float()


def _yes_no_accuracy(
    data: tuple[torch.Tensor, torch.Tensor], width: int, kind: str, seed: int
) -> float:
    """Accuracy after 300 steps of Adam with squared error or BCE."""
    inputs, targets = data
    model = mlp(width, 64, 64, 1, seed=seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    for _, rows in zip(range(300), cycle_batches(len(targets), 64), strict=False):
        outputs, labels = model(inputs[rows]), targets[rows]
        if kind == "cross-entropy":
            loss = F.binary_cross_entropy_with_logits(outputs[:, 0], labels)
        else:
            loss = F.mse_loss(outputs, labels[:, None] if kind == "matching" else labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    threshold = 0.0 if kind == "cross-entropy" else 0.5
    with torch.no_grad():
        return ((model(inputs)[:, 0] > threshold) == (targets == 1)).float().mean().item()


@claim(
    "F13",
    title="BCE-with-logits takes [B, 1] or [B], as floats",
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
    expected="holds if",
    says="Pixels in 0-255, instead of normalised pixels, make training unstable.",
    condition="if the learning rate was chosen for normalised pixels; a smaller one, or Adam, "
    "copes",
)
def unnormalised_pixels(seed: int) -> Measured:
    def reached(one: Setting, raw: bool) -> float:
        x, y, val_x, val_y = one.make_data(seed)
        low, high = x.min(), x.max()
        move = (lambda v: (v - low) * 255 / (high - low)) if raw else (lambda v: v)
        run = one.train(100 * seed, data=(move(x), y, move(val_x), val_y))
        with torch.no_grad():
            return (run.model(move(x)).argmax(1) == y).float().mean().item()

    settings = (
        DIGITS.but(rate=0.1, options=(), steps=300),
        DIGITS.but(rate=0.001, options=(), steps=300),
        DIGITS.but(rate=0.001, optimizer="Adam", options=(), steps=300),
        SPIRAL.but(rate=0.1),
    )
    pairs = {one: (reached(one, True), reached(one, False)) for one in settings}
    evidence = {
        "accuracy, digits in 0-255, SGD 0.1": pairs[settings[0]][0],
        "accuracy in 0-255 and normalised": {
            f"{one.data}, {one.optimizer} {one.rate:g}": list(pair) for one, pair in pairs.items()
        },
    }
    return weigh_settings(
        "accuracy, digits in 0-255, SGD 0.1",
        evidence,
        {one: raw < normal - 0.2 for one, (raw, normal) in pairs.items()},
        criterion="with inputs in 0-255, accuracy ends more than 20 points lower than with "
        "normalised ones",
    )


@claim(
    "F71",
    title="Mean reduction divides by the batch size",
    expected="holds if",
    says="With reduction='mean', the loss is the sum over examples divided by the batch size.",
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
    title="The printed label smoothing is torch's",
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
    expected="holds",
    says="The gradient of a smaller batch is further from the full gradient.",
)
def gradient_noise(seed: int) -> Measured:
    noise, held = {}, {}
    for one in (DIGITS, DIABETES):
        inputs, targets, *_ = one.make_data(seed)
        model = one.make_model(100 * seed)

        def gradient(rows: torch.Tensor, one=one, model=model, x=inputs, y=targets) -> torch.Tensor:
            model.zero_grad()
            one.loss_fn(model(x[rows]), y[rows]).backward()
            return flat_grad(model)

        full = gradient(torch.arange(len(targets)))
        found = {}
        for size in (16, 64, 256):
            draws = [gradient(torch.randint(0, len(targets), (size,))) for _ in range(40)]
            far = torch.stack([(g - full).norm() for g in draws]).mean()
            found[size] = (far / full.norm()).item()
        noise[one.data] = found
        held[one] = found[16] > 1.5 * found[64] > 1.5**2 * found[256]
    evidence = {
        "noise at 16 / noise at 256, digits": noise["digits"][16] / noise["digits"][256],
        "relative distance from the full gradient": noise,
        "predicted by 1/√B": math.sqrt(256 / 16),
    }
    return weigh_settings(
        "noise at 16 / noise at 256, digits",
        evidence,
        held,
        criterion="with a quarter of the batch size, the gradient is at least 1.5 times as far "
        "from the full one",
    )


@claim(
    "F150",
    title="Squared error gives outliers more weight than absolute error",
    expected="holds",
    says="Squared error penalises large deviations heavily; absolute error is robust to outliers.",
)
def outliers(seed: int) -> Measured:
    found, held = {}, {}
    for one in (
        DIABETES.but(optimizer="Adam", rate=0.01, options=(), steps=300),
        DIABETES.but(
            model="linear",
            make_model=_linear,
            data="wine",
            make_data=_alcohol,
            rate=0.02,
            options=(),
            steps=300,
        ),
    ):
        x, y, *rest = one.make_data(seed)
        wrong = y.clone()
        wrong[: len(y) // 17] += 30  # standard deviations, as from a misplaced decimal point
        errors = {}
        for name, loss_fn in (("squared", F.mse_loss), ("absolute", F.l1_loss)):
            kind = one.but(loss_fn=loss_fn)
            for which, targets in (("clean", y), ("outliers", wrong)):
                model = kind.train(100 * seed, data=(x, targets, *rest)).model
                with torch.no_grad():
                    errors[f"{name}, {which}"] = F.l1_loss(model(rest[0]), rest[1]).item()
        found[one.model] = errors
        harm = {
            k: errors[f"{k}, outliers"] - errors[f"{k}, clean"] for k in ("squared", "absolute")
        }
        held[one] = harm["squared"] > 3 * max(harm["absolute"], 0.01)
    evidence = {
        "linear: mean error with squared loss and outliers": found["linear"]["squared, outliers"],
        "mean absolute error on validation, in standard deviations": found,
    }
    return weigh_settings(
        "linear: mean error with squared loss and outliers",
        evidence,
        held,
        criterion="outliers, one example in 17, harm squared error more than 3 times as much as "
        "absolute error",
    )


def _linear(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Linear(12, 1)


@lru_cache
def _alcohol(seed: int) -> Data:
    """Twelve standardised measurements of 178 wines [N, 12], their alcohol [N, 1], in two parts."""
    from sklearn.datasets import load_wine

    table = torch.tensor(load_wine().data, dtype=torch.float32)
    table = table[torch.randperm(len(table), generator=torch.Generator().manual_seed(seed))]
    table = (table - table[:136].mean(0)) / table[:136].std(0)
    return table[:136, 1:], table[:136, :1], table[136:, 1:], table[136:, :1]
