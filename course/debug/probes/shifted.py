"""Probe on the scale of the inputs: what the model gets in training, and in evaluation."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import RandomSampler

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, pair
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
    """The model gets inputs of the same scale and kind in training and in evaluation."""
    found = list(_other_scale(session))
    if not found:
        with contextlib.suppress(NotChecked):
            found = list(told_apart(session))
    yield from found


def _other_scale(session: Session) -> Iterator[Finding]:
    """Inputs of different mean or deviation, as the model gets them."""
    a = seen_inputs(session, "train")
    b = seen_inputs(session, "val")
    if a is None or b is None or a.shape[1:] != b.shape[1:]:
        raise NotChecked("no floating-point inputs of one shape on both sides")
    shape, (a, b) = a.shape[1:], (t.flatten(1) for t in (a, b))
    varies = (a != a[0]).any(0) & (b != b[0]).any(0)  # not what is empty on one side, as padding is
    a, b = a[:, varies], b[:, varies]
    if not a.numel() or min(len(a), len(b)) < LEAST_INPUTS:
        raise NotChecked("too few or constant inputs")
    sa, sb = float(a.std()), float(b.std())
    if min(sa, sb) == 0:
        raise NotChecked("constant inputs")
    ratio = max(sa, sb) / min(sa, sb)
    shift = abs(float(a.mean() - b.mean())) / max(sa, sb)
    if ratio > SCALE_RATIO or shift > MEAN_SHIFT:
        ways = [(ratio > SCALE_RATIO, math.log(sb / sa)),
                (shift > MEAN_SHIFT, float(b.mean() - a.mean()))]  # fmt: skip
        if all(_gone(session, shape, varies, n, way) for n, (far, way) in enumerate(ways) if far):
            raise NotChecked("training inputs themselves change towards those of validation")
        yield Finding(
            "covariate-shift", "error" if max(ratio, 2 * shift) > SURELY_SHIFTED else "warning",
            "Inputs have a different scale in validation and in training: they are not "
            "preprocessed in the same way.",
            {"train_mean": float(a.mean()), "train_std": sa, "val_mean": float(b.mean()),
             "val_std": sb},
            "val_inputs = (val_inputs - train_mean) / train_std  # the same on both sides",
        )  # fmt: skip


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
    inputs = [x.float() for x in inputs if x.is_floating_point() and x.dim() > 1]
    shapes = {x.shape[1:] for x in inputs}
    return torch.cat(inputs) if len(shapes) == 1 else None
