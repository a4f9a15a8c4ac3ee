"""Relations between training and validation windows of a series: what is predicted was not seen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from course.debug.probes.answers import COPIED, LEAST_ROWS
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.thresholds import OFTEN, ZERO
from course.debug.relations.joining import read_by_the_model
from course.debug.relations.program import program_of
from course.state.nested import tensors_in

LEAST_LENGTH = 8
"""Steps of a window, of which half have to come again elsewhere: so many numbers of a measured
series are equal by nothing but being the same."""
WINDOWS = 200
"""Validation windows that are looked up."""
DIFFERENT = 0.9
"""Share of the halves at one place that are unlike any other, from which a series is measured."""


def windows(session: Session) -> Iterator[Finding]:
    """Validation windows of a series do not overlap with training windows.

    Only windows shifted in time count: `splits.split` judges whole rows that occur again.
    """
    train, val = (_series(epoch.batches) for epoch in (session.epoch, session.val_epoch))
    length = train.shape[1]
    if val.shape[1:] != train.shape[1:] or length < LEAST_LENGTH:
        raise NotChecked("no windows of a series of one length on both sides")
    half = length // 2
    places: dict[bytes, set[int]] = defaultdict(set)
    for row in train:
        for start in range(length - half + 1):
            places[_bytes(row[start : start + half])].add(start)
    looked_up = val[:WINDOWS]
    ends = (0, length - half)  # both: a forecast's window may begin where training ended
    shared = sum(
        all(places.get(_bytes(row[start : start + half]), {start}) - {start} for start in ends)
        for row in looked_up
    )
    if shared > OFTEN * len(looked_up):
        yield Finding(
            "leak-overlap", "error",
            f"{shared} of {len(looked_up)} validation windows share at least half of their steps "
            "with a training window: windows of one series were split at random.",
            {"windows_shared": shared, "windows": len(looked_up), "steps": length},
            "train, val = windows[:cut], windows[cut + length:]  # by time, with a gap",
        )  # fmt: skip


def _series(batches: list[Any]) -> Tensor:
    """The first tensor [B, T] or [B, T, D] of measured numbers, joined over the batches."""
    if not batches:
        raise NotChecked("a loader is empty")
    places = [
        n for n, t in enumerate(tensors_in(batches[0]))
        if t.is_floating_point() and t.dim() in (2, 3) and t.shape[1] >= LEAST_LENGTH
    ]  # fmt: skip
    if not places:
        raise NotChecked("no windows of measured numbers")
    parts = [list(tensors_in(batch))[places[0]].detach().cpu() for batch in batches]
    if len({p.shape[1:] for p in parts}) > 1:
        raise NotChecked("windows of different lengths")
    joined = torch.cat(parts)
    half = joined.shape[1] // 2
    for end in (joined[:, :half], joined[:, -half:]):
        if len({_bytes(row) for row in end}) < DIFFERENT * len(joined):
            raise NotChecked("halves of windows that repeat are not measured series")
    return joined


def _bytes(values: Tensor) -> bytes:
    return values.contiguous().numpy().tobytes()


def target_seen(session: Session) -> Iterator[Finding]:
    """The number that is predicted is not in the last step of the window that the model gets.

    An earlier one may be asked for, e.g. to test a memory.
    """
    losses = program_of(session).first().losses
    if len(losses) != 1 or not losses[0].targets.is_floating_point():
        raise NotChecked("no single loss with numbers as targets")
    met, batches = losses[0].targets, session.epoch.batches
    leaves = list(tensors_in(batches[0]))
    targets = [n for n, t in enumerate(leaves)
               if t.numel() == met.numel() == len(t) and torch.equal(t.flatten(), met.flatten())
               ] if met.dim() else []  # fmt: skip
    inputs = [n for n in read_by_the_model(session)
              if leaves[n].is_floating_point() and leaves[n].dim() > 2
              and len(leaves[n]) == met.numel()]  # fmt: skip
    if not targets or not inputs:
        raise NotChecked("no inputs [B, T, ...] with one number per example as target")
    x, y = (_column(batches, n) for n in (inputs[0], targets[0]))
    if len(y) < LEAST_ROWS or len(x) != len(y) or not bool(torch.isfinite(x).all()):
        raise NotChecked(f"fewer than {LEAST_ROWS} examples, or inputs of different lengths")
    x, y = x - x.mean(0), y[:, 0] - y.mean()
    told = ((x.T @ y).abs() > COPIED * x.norm(dim=0) * y.norm()) & (x.norm(dim=0) > ZERO)
    told[: -leaves[inputs[0]][0, -1].numel()] = False
    if bool(told.any()) and float(y.norm()) > ZERO:
        yield Finding(
            "target-in-inputs", "warning",
            "The last step of the window that the model gets contains the target, up to scale: the "
            "forecast copies what it is given.",
            {"numbers": told.nonzero()[:5, 0].tolist(), "numbers_in_all": x.shape[1],
             "examples": len(y)},
            "inputs, target = window[:-1], window[-1]  # the target comes after the inputs",
        )  # fmt: skip


def _column(batches: list[Any], place: int) -> Tensor:
    column = [list(tensors_in(batch))[place].detach().cpu().double() for batch in batches]
    parts = [t.flatten(1) if t.dim() > 1 else t[:, None] for t in column]
    if len({p.shape[1] for p in parts}) > 1:
        raise NotChecked("examples of different lengths")
    return torch.cat(parts)
