"""The batch contract: shapes, types and ranges that layers let pass."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.nn import functional as F

from course.claims.lab import error_of
from course.claims.registry import Measured, claim, weigh


@claim(
    "F11",
    title="A missing batch dimension goes unnoticed",
    source='Lecture 3, "The batch contract"',
    expected="holds",
    says="An input without its batch dimension is a common bug, since most layers accept it.",
)
def missing_batch_dimension() -> Measured:
    errors = {
        "Linear on [4]": error_of(nn.Linear(4, 2), torch.randn(4)),
        "Conv2d on [3, 8, 8]": error_of(nn.Conv2d(3, 4, 3), torch.randn(3, 8, 8)),
        "BatchNorm2d on [3, 8, 8]": error_of(nn.BatchNorm2d(3), torch.randn(3, 8, 8)),
    }
    silent = [name for name, error in errors.items() if not error]
    evidence = {"layers that accept it, of 3": len(silent), "raises": errors}
    stated = not errors["Linear on [4]"] and not errors["Conv2d on [3, 8, 8]"]
    return weigh("layers that accept it, of 3", evidence, stated=stated)


@claim(
    "F10",
    title="Raw uint8 pixels are a silent bug",
    source='Lecture 3, "The batch contract"',
    expected="holds if",
    says="Pixels left as raw uint8 numbers enter the network without an error.",
    condition="if they were made float without dividing by 255; uint8 and float64 raise",
)
def raw_pixels() -> Measured:
    layer = nn.Linear(16, 10)
    pixels = torch.randint(0, 256, (32, 16), dtype=torch.uint8)
    targets = torch.randint(0, 10, (32,))
    raw, double = error_of(layer, pixels), error_of(layer, pixels.double())
    unscaled = error_of(layer, pixels.float())
    scaled_loss = F.cross_entropy(layer(pixels.float() / 255), targets).item()
    unscaled_loss = F.cross_entropy(layer(pixels.float()), targets).item()
    evidence = {
        "first loss unscaled / scaled": unscaled_loss / scaled_loss,
        "uint8 raises": raw or "nothing",
        "float64 raises": double or "nothing",
        "float32 in 0-255 raises": unscaled or "nothing",
    }
    return weigh(
        "first loss unscaled / scaled",
        evidence,
        stated=not raw,
        conditioned=not unscaled and unscaled_loss > 3 * scaled_loss,
    )


@claim(
    "F128",
    title="Asserts on a batch catch contract bugs",
    source='Lecture 3, "The batch contract"; engineering module, §5',
    expected="holds if",
    says="A few asserts on the first batch catch the usual contract bugs.",
    condition="for images [B, C, H, W] with class indices; the slide's own row [B, d] fails "
    "ndim == 4, and 0-255 floats need a range of their own",
)
def batch_asserts() -> Measured:
    def passes(inputs: torch.Tensor, targets: torch.Tensor, num_classes: int = 10) -> bool:
        """The asserts of the slide."""
        return bool(
            inputs.ndim == 4
            and inputs.dtype == torch.float32
            and torch.isfinite(inputs).all()
            and targets.dtype == torch.long
            and targets.ndim == 1
            and targets.min() >= 0
            and targets.max() < num_classes
        )

    images, labels = torch.randn(8, 1, 4, 4), torch.arange(8)
    broken = copy.deepcopy(images)
    broken[0] = torch.nan
    bugs = {
        "no batch dimension": (images[0], labels),
        "uint8": (torch.zeros(8, 1, 4, 4, dtype=torch.uint8), labels),
        "nan": (broken, labels),
        "float labels": (images, labels.float()),
        "one-hot labels": (images, F.one_hot(labels, 10)),
        "label too large": (images, labels + 10),
    }
    caught = [name for name, batch in bugs.items() if not passes(*batch)]
    unscaled = passes(images.abs() * 255, labels)
    points = passes(torch.randn(8, 5), labels)
    evidence = {
        "image bugs caught, of 6": len(caught),
        "good images pass": passes(images, labels),
        "good points [B, d] pass": points,
        "unscaled 0-255 floats pass": unscaled,
    }
    catches = len(caught) == len(bugs) and passes(images, labels)
    return weigh(
        "image bugs caught, of 6",
        evidence,
        stated=catches and points and not unscaled,
        conditioned=catches,
    )
