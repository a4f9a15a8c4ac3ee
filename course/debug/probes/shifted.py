"""Probe on the scale of the inputs: what the model gets in training, and in evaluation."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import RandomSampler

from course.debug.probes.fed import inputs_of_data
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, clone, pair
from course.debug.probes.splits import told_apart
from course.debug.probes.thresholds import TINY
from course.state.nested import tensors_in

SCALE_RATIO, MEAN_SHIFT = 2.0, 1.0
"""Ratio of the standard deviations, and distance of the means in standard deviations, from which
inputs were preprocessed differently; the 91 sound set-ups that have both
stay below 1.24 and 0.07."""
SURELY_SHIFTED = 5.0
"""The ratio (or twice the distance) that no honest difference between two samples reaches."""
SEEN_BATCHES = 8
"""Batches of either side whose inputs are compared."""
GONE = 0.2
"""Part of the way from the scale of training's first inputs to that of validation's which its last
ones must have gone, for a stream to be on that way by itself: chance goes 0.05 in 8 batches."""
LEAST_INPUTS = 16
"""Rows per side below which their means and standard deviations say little."""


def covariate_shift(session: Session) -> Iterator[Finding]:
    """The model gets inputs of the same scale and kind in training and in evaluation.

    What it is fed from its own outputs, e.g. while it denoises step by step, is left out.
    """
    found = list(_other_scale(session))
    if not found:
        with contextlib.suppress(NotChecked):
            found = list(told_apart(session))
    yield from found


def _other_scale(session: Session) -> Iterator[Finding]:
    """Inputs of different mean or deviation, as the model gets them."""
    a = seen_inputs(session, "train")
    b = seen_inputs(session, "val")
    shape, varies, found = _distance(a, b)
    if _are_far(found):
        a, b = (_without_own(session, side, t) for side, t in (("train", a), ("val", b)))
        shape, varies, found = _distance(a, b)
    if _are_far(found):
        sa, sb = found["train_std"], found["val_std"]
        ratio, shift = _ratio(found), _shift(found)
        ways = [(ratio > SCALE_RATIO, math.log(sb / sa)),
                (shift > MEAN_SHIFT, found["val_mean"] - found["train_mean"])]  # fmt: skip
        if all(_gone(session, shape, varies, n, way) for n, (far, way) in enumerate(ways) if far):
            raise NotChecked("training inputs themselves change towards those of validation")
        yield Finding(
            "covariate-shift", "error" if max(ratio, 2 * shift) > SURELY_SHIFTED else "warning",
            "Inputs have a different scale in validation and in training: they are not "
            "preprocessed in the same way.",
            found,
            "val_inputs = (val_inputs - train_mean) / train_std  # the same on both sides",
        )  # fmt: skip


def _distance(a: Tensor | None, b: Tensor | None) -> tuple[torch.Size, Tensor, dict[str, float]]:
    """The shape of a row, which of its numbers vary, and mean and spread of these on both sides."""
    if a is None or b is None or a.shape[1:] != b.shape[1:]:
        raise NotChecked("no floating-point inputs of one shape on both sides")
    shape, (a, b) = a.shape[1:], (t.flatten(1) for t in (a, b))
    varies = (a != a[0]).any(0) & (b != b[0]).any(0)  # not what is empty on one side, as padding is
    a, b = a[:, varies], b[:, varies]
    if not a.numel() or min(len(a), len(b)) < LEAST_INPUTS:
        raise NotChecked("too few or constant inputs")
    sides = {"train": a, "val": b}
    found = {f"{side}_{name}": float(getattr(t, name)())
             for side, t in sides.items() for name in ("mean", "std")}  # fmt: skip
    if min(found["train_std"], found["val_std"]) == 0:
        raise NotChecked("constant inputs")
    return shape, varies, found


def _ratio(found: dict[str, float]) -> float:
    spreads = found["train_std"], found["val_std"]
    return max(spreads) / min(spreads)


def _shift(found: dict[str, float]) -> float:
    far = abs(found["train_mean"] - found["val_mean"])
    return far / max(found["train_std"], found["val_std"])


def _are_far(found: dict[str, float]) -> bool:
    return _ratio(found) > SCALE_RATIO or _shift(found) > MEAN_SHIFT


def _without_own(session: Session, side: str, inputs: Tensor) -> Tensor | None:
    """The same inputs without those that the model is fed from its own outputs."""
    step, evaluate = session.setup.train_step, session.setup.evaluate
    if (step if side == "train" else evaluate) is None:
        return inputs  # they are the loader's

    def steps() -> None:
        for batch in session.epoch.batches[:SEEN_BATCHES]:
            step(clone(batch))

    run = steps if side == "train" else evaluate
    found = inputs_of_data(session, run, SEEN_BATCHES)
    return _joined(found) if found else inputs


def _gone(session: Session, shape: torch.Size, columns: Tensor, number: int, way: float) -> bool:
    """What a loader that does not shuffle yields has gone a part of this way, of the logarithm of
    its spread (0) or of its mean (1), to validation: e.g. examples that get harder."""
    if isinstance(getattr(session.setup.train_loader, "sampler", None), RandomSampler):
        return False
    found = [
        next((t for t in tensors_in(b) if t.is_floating_point() and t.shape[1:] == shape), None)
        for b in session.epoch.batches
    ]
    if len(found) < 2 or any(t is None for t in found):
        return False
    half = min(SEEN_BATCHES, len(found) // 2)
    ends = (torch.cat(part).flatten(1).float()[:, columns.cpu()]
            for part in (found[:half], found[-half:]))  # fmt: skip
    first, last = ((t.std().clamp_min(TINY).log(), t.mean())[number] for t in ends)
    return float(last - first) * math.copysign(1, way) > GONE * abs(way) > 0


def seen_inputs(session: Session, side: str) -> Tensor | None:
    """What the model itself received if a callable shows it, else what the loader yields."""
    if side == "train" and session.setup.train_step is not None:
        events = session.loop.tape.of("forward")[:SEEN_BATCHES]
    elif side == "val" and session.setup.evaluate is not None:
        events = [e for e in session.evaluation.tape.of("forward") if e.call == 0][:SEEN_BATCHES]
    else:
        events = []
    inputs = [e.inputs for e in events if e.inputs is not None]
    if not inputs:
        epoch = session.epoch if side == "train" else session.val_epoch
        inputs = [session.place(pair(b)[0]) for b in epoch.batches[:SEEN_BATCHES]]
    return _joined(inputs)


def _joined(inputs: list[Tensor]) -> Tensor | None:
    """Rows of one shape; None where they are not, or not of floats."""
    inputs = [x.float() for x in inputs if x.is_floating_point() and x.dim() > 1]
    shapes = {x.shape[1:] for x in inputs}
    return torch.cat(inputs) if len(shapes) == 1 else None
