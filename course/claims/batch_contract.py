"""The batch contract: which wrong shapes, types and ranges the layers let pass."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.nn import functional as F

from course.claims.lab import error_of
from course.claims.registry import claim
from course.claims.settings import CONV, DIGITS
from course.claims.trial import Measured, weigh, weigh_settings


@claim(
    "F11",
    title="A missing batch dimension goes unnoticed",
    expected="holds",
    says="An input without its batch dimension is a common bug: the model may run anyway.",
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
    title="Raw uint8 pixels are a common bug",
    expected="holds if",
    says="Raw uint8 pixels are a common bug, so look for them before the model sees the batch.",
    condition="if the code converted them to float without dividing by 255, or subtracted from "
    "them as uint8, which wraps around; the layers themselves refuse uint8",
)
def raw_pixels(seed: int) -> Measured:
    pixels = torch.randint(0, 256, (8, 1, 8, 8), dtype=torch.uint8)
    paths = {
        "Linear on uint8": error_of(nn.Linear(64, 10), pixels.flatten(1)),
        "Conv2d on uint8": error_of(nn.Conv2d(1, 4, 3), pixels),
        "LSTM on uint8": error_of(nn.LSTM(8, 4), pixels[:, 0]),
        "Linear on .float()": error_of(nn.Linear(64, 10), pixels.flatten(1).float()),
        "uint8 minus 128": error_of(lambda: pixels - 128),
    }
    right = {}
    for one in (DIGITS.but(options=(), rate=0.1), CONV):
        x, y, val_x, val_y = one.make_data(seed)
        raw = ((x - x.min()) * 255 / (x.max() - x.min())).round()
        scored = []
        for data in (x, raw):
            model = one.train(100 * seed, data=(data, y, val_x, val_y)).model.eval()
            with torch.no_grad():
                scored.append((model(data).argmax(1) == y).float().mean().item())
        right[f"{one.model}, {one.optimizer}"] = scored
    evidence = {
        "paths of 5 that raise nothing": list(paths.values()).count(""),
        "raises": {name: error or "nothing" for name, error in paths.items()},
        "0 - 128 as uint8": int((torch.tensor(0, dtype=torch.uint8) - 128).item()),
        "accuracy, normalised and as .float() in 0-255": right,
    }
    return weigh_settings(
        "paths of 5 that raise nothing",
        evidence,
        {name: not error for name, error in paths.items()},
        criterion="nothing raises, so only a look at the batch reveals it",
    )


@claim(
    "F128",
    title="Asserts on a batch catch contract bugs",
    expected="holds if",
    says="Asserts on a batch turn the usual contract bugs into errors.",
    condition="if the batch holds images [B, C, H, W] and class indices; the slide's own row [B, "
    "d] fails ndim == 4, and floats in 0-255 need a range check",
)
def batch_asserts() -> Measured:
    def passes(inputs: torch.Tensor, targets: torch.Tensor, num_classes: int = 10) -> bool:
        """The slide's asserts on dimensions and types, and the module's on values and labels."""
        return bool(
            inputs.ndim == 4
            and inputs.dtype in (torch.float32, torch.bfloat16)
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
