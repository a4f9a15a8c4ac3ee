"""Relation on images that the step flips itself: what belongs to them is flipped, too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.thresholds import LEAST_STEPS, NEARLY_ALL
from course.debug.relations.flips import (
    FOLLOWS,
    LEAST_PLAIN,
    MOST_PLAIN,
    follows,
    is_picture,
    numbered,
)

AXES = {-1: "left to right", -2: "upside down"}
MOST_NUMBERS = 24
"""Numbers next to an image; more are an image themselves."""


def in_the_step(session: Session) -> Iterator[Finding]:
    """When a step flips its images, the targets that the loss gets are not those of the batch.

    Of numbers this is asked where in validation they follow the place of what is in the image.
    """
    if session.loop.unit != "step":
        raise NotChecked("needs train_step")
    seen = [_call(session, number) for number in range(len(session.loop.losses))]
    calls = [call for call in seen if call is not None]
    if not calls:
        raise NotChecked("no step in which the model gets a batch's images and a loss its targets")
    flips = 0
    for axis, way in AXES.items():
        rows = [_flipped(shown, images, axis) for shown, images, *_ in calls]
        flips += (moved := sum(int(r.sum()) for r in rows))
        if moved < LEAST_STEPS:
            continue
        left = _columns_left(calls, rows)
        if calls[0][2].shape[1:] == calls[0][3].shape[1:] and is_picture(calls[0][3]):
            told = "its target" if bool(left.all()) and not _alike(calls, rows, axis) else ""
        else:
            places = _places(session, axis)
            moves = (left & (places.abs() > FOLLOWS)).nonzero() if len(places) == len(left) else ()
            told = f"number {int(moves[0])} next to it" if len(moves) else ""
        if told:
            yield Finding(
                "augmentation-mismatch", "error",
                f"The steps turned {moved} images {way} before the model got them, but the loss "
                f"got {told} as it is in the batch: it says where things were before the flip.",
                {"flips": moved, "way": way},
                "if flip:\n    image, box[:, 0] = image.flip(-1), 1 - box[:, 0]  # with the image",
            )  # fmt: skip
            return
    if not flips:
        raise NotChecked("no step flips images")


def _call(session: Session, number: int) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
    """What the model and the loss got in a step, each after what the batch holds of it."""
    events = session.loop.tape.in_call(number)
    shown = [e.inputs for e in events if e.kind == "forward" and e.inputs is not None]
    met = [e.targets for e in events if e.kind == "loss" and e.graph]
    leaves = [t for t in tree_leaves(session.loop.batches[number]) if isinstance(t, Tensor)]
    images = [t for t in leaves if t.dim() > 2 and is_picture(t)]
    if len(shown) != 1 or len(met) != 1 or not images or images[0].shape != shown[0].shape:
        return None
    others = [t for t in leaves if t is not images[0] and t.dim() and len(t) == len(images[0])]
    if len(met[0]) != len(images[0]) or not others:
        return None
    same = [t for t in others if t.shape == met[0].shape and is_picture(t)]
    held = same[0] if same else torch.cat([t.reshape(len(t), -1).double() for t in others], 1)
    return shown[0].to(images[0]), images[0], held, met[0].to(held)


def _flipped(shown: Tensor, images: Tensor, axis: int) -> Tensor:
    """Which rows [B] the model gets turned over, and which show that they are."""

    def equal(a: Tensor, b: Tensor) -> Tensor:
        return (a == b).flatten(1).all(1)

    return equal(shown, images.flip(axis)) & ~equal(shown, images)


def _columns_left(calls: list[Any], rows: list[Tensor]) -> Tensor:
    """Which numbers of a batch's rows the loss gets as they are where the image is turned over."""
    pairs = [(_rows(held[r]), _rows(met[r]))
             for (*_, held, met), r in zip(calls, rows, strict=True) if bool(r.any())]  # fmt: skip
    held, met = (torch.cat(parts) for parts in zip(*pairs, strict=True))
    if held.shape == met.shape and held.shape[1] > MOST_NUMBERS:  # a picture, point by point
        return (held == met).all(1).double().mean(0, keepdim=True) > NEARLY_ALL
    same = (held[:, :, None] == met[:, None, :]).double().mean(0)
    return same.amax(1) > NEARLY_ALL


def _rows(t: Tensor) -> Tensor:
    return t.reshape(len(t), t[:1].numel())


def _alike(calls: list[Any], rows: list[Tensor], axis: int) -> bool:
    """Most targets are the same turned over."""
    own = torch.cat([(held == held.flip(axis)).flatten(1).all(1)[r]
                     for (*_, held, _met), r in zip(calls, rows, strict=True)])  # fmt: skip
    return bool(own.double().mean() > 1 - NEARLY_ALL)


def _places(session: Session, axis: int) -> Tensor:
    """How far each number of a validation item follows the place of what is in its image."""
    plain = getattr(session.setup.val_loader, "dataset", None)
    if not hasattr(plain, "__getitem__") or not hasattr(plain, "__len__"):
        raise NotChecked("the val_loader has no data set that can be asked for an item")
    with session.observe():
        rows = [numbered(plain, i) for i in range(min(len(plain), MOST_PLAIN))]
    if len(rows) < LEAST_PLAIN:
        raise NotChecked("too few images")
    return follows(rows, axis)
