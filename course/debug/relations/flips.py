"""Relations on images that are flipped when they are read: what belongs to them is flipped, too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils._pytree import tree_leaves

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.thresholds import LEAST_STEPS, NEARLY_ALL, ROUNDED, TINY
from course.debug.relations.program import exchanged, program_of
from course.state.nested import tensors_in

DRAWN = 8
"""Times that an item is asked for: a flip with a chance of one half is missed in 1 of 128."""
ASKED = 8
"""Items that are asked for so often."""
MOVES: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda t: t.flip(-1), lambda t: t.flip(-2), lambda t: t.flip((-1, -2)),
    lambda t: t.transpose(-1, -2),
)  # fmt: skip
LEAST_PLAIN, MOST_PLAIN = 24, 200
"""Pictures of validation that are looked at; of fewer a correlation says little."""
FOLLOWS = 0.7
"""Correlation of a number with where the contents of its picture lie, from which it says where they
are: of 24 pictures one in 7000 by chance."""
MOST_ORDERS = 2000
"""Pairs of numbers that may be in one order: those of 64 positions are about as many."""
Reading = tuple[Tensor, Tensor]
"""The picture of an item and the numbers beside it."""
LEAST_SIDE = 5
"""Pixels of a side below which numbers are no picture: points have two columns, boxes four."""


def moved_alike(session: Session) -> Iterator[Finding]:
    """When an image is flipped, a target that is an image is flipped with it."""
    data = getattr(session.setup.train_loader, "dataset", None)
    if data is None or not hasattr(data, "__getitem__") or not hasattr(data, "__len__"):
        raise NotChecked("the loader has no data set that can be asked for an item")
    left = moved = 0
    with session.observe():
        for index in range(min(ASKED, len(data))):
            one, others = _pair(data, index), [_pair(data, index) for _ in range(DRAWN - 1)]
            for other in others:
                for move in MOVES:
                    if not _turned(one[0], other[0], move) or _fits(move, one[1], one[1]):
                        continue
                    moved += 1
                    left += torch.equal(one[1], other[1])
    if moved < LEAST_STEPS:
        raise NotChecked("no image is flipped, or targets are not images")
    if left > NEARLY_ALL * moved:  # a second view that is flipped by itself stays in half of them
        yield Finding(
            "augmentation-mismatch", "error",
            f"In {left} of {moved} cases where an item came back flipped, its target was not "
            "flipped: the target belongs to the original image.",
            {"flips": moved, "targets_left": left},
            "if flip:\n    image, mask = image.flip(-1), mask.flip(-1)  # one draw for both",
        )  # fmt: skip


def drawn_apart(session: Session) -> Iterator[Finding]:
    """An image and a target that is an image are not flipped by two separate draws.

    A second view that some network reads may be flipped independently.
    """
    data = getattr(session.setup.train_loader, "dataset", None)
    if data is None or not hasattr(data, "__getitem__") or not hasattr(data, "__len__"):
        raise NotChecked("the loader has no data set that can be asked for an item")
    for move in MOVES:
        with session.observe():
            torch.manual_seed(0)
            seen = [[_pair(data, i) for _ in range(DRAWN)] for i in range(min(ASKED, len(data)))]
        ways = Counter(way for item in seen for way in _ways(item, move))
        if min(ways[True, False], ways[False, True]) < LEAST_STEPS or ways[None]:
            continue
        if _is_read(session, seen[0][0][1].shape[-2:]):
            raise NotChecked("a network reads both images of an item")
        yield Finding(
            "augmentation-mismatch", "error",
            f"Of {sum(ways.values())} pairs of readings of one item, only the image was flipped in "
            f"{ways[True, False]}, and only the target in {ways[False, True]}: two draws decide "
            "where one should.",
            {"picture_alone": ways[True, False], "target_alone": ways[False, True],
             "both": ways[True, True]},
            "if flip:\n    image, mask = image.flip(-1), mask.flip(-1)  # one draw for both",
        )  # fmt: skip
        return


def _ways(item: list[tuple[Tensor, Tensor]], move: Callable[[Tensor], Tensor]) -> list[Any]:
    """Whether picture and target are flipped in each reading against the first; None where either
    is otherwise changed."""
    found: list[Any] = []
    for other in item[1:]:
        turned = []
        for one, now in zip(item[0], other, strict=True):
            if not torch.equal(one, now) and not _fits(move, one, now):
                return [None]
            turned.append(not torch.equal(one, now))
        if any(_fits(move, one, one) for one in item[0]):
            continue  # a picture that is the same turned over
        found.append(tuple(turned))
    return found


def _is_read(session: Session, size: torch.Size) -> bool:
    """Some layer gets something else where the second picture of a batch is turned over."""
    program = program_of(session)
    batch = program.batches[0]
    pictures = [t for t in tensors_in(batch) if t.dim() > 2 and t.shape[-2:] == size]
    if len(pictures) != 2:
        raise NotChecked("a batch does not hold the two images of its items")
    heard: list[list[Tensor]] = []

    def listen(module: nn.Module, args: tuple) -> None:
        if any(True for _ in module.parameters(recurse=False)):
            heard[-1] += [a.detach().clone() for a in args if isinstance(a, Tensor)]

    for other in (pictures[1], pictures[1].flip(-1).flip(-2)):
        heard.append([])
        handle = register_module_forward_pre_hook(listen)
        try:
            program.step(exchanged(batch, pictures[1], other))
        finally:
            handle.remove()
    return len(heard[0]) != len(heard[1]) or not all(map(torch.equal, *heard))


def _pair(data: Any, index: int) -> tuple[Tensor, Tensor]:
    leaves = [t for t in tensors_in(data[index]) if t.dim() >= 2]
    if len(leaves) != 2 or leaves[0].shape[-2:] != leaves[1].shape[-2:]:
        raise NotChecked("items are not an image with a target of its size")
    return leaves[0].detach().clone(), leaves[1].detach().clone()


def _fits(move: Callable[[Tensor], Tensor], one: Tensor, other: Tensor) -> bool:
    turned = move(one)
    return turned.shape == other.shape and torch.equal(turned, other)


def _turned(one: Tensor, other: Tensor, move: Callable[[Tensor], Tensor]) -> bool:
    return not torch.equal(one, other) and _fits(move, one, other)


def left_behind(session: Session) -> Iterator[Finding]:
    """When an image is flipped, a number that says where something is in it changes.

    That it does is seen in validation, where nothing is flipped: the number follows the mean
    position of the image's contents along that axis.
    """
    drawn, rows = _read(session)
    pairs = [(item[0], other) for item in drawn for other in item[1:]]
    seen = 0
    for axis in (-1, -2):
        flips = [(a, b) for (one, a), (other, b) in pairs
                 if _turned(one, other, lambda t, axis=axis: t.flip(axis))]  # fmt: skip
        seen += len(flips)
        if len(flips) < LEAST_STEPS:
            continue
        stays = torch.stack([a == b for a, b in flips]).double().mean(0) > NEARLY_ALL
        place = follows(rows, axis)
        left = (stays & (place.abs() > FOLLOWS)).nonzero()[:, 0].tolist()
        if left:
            yield Finding(
                "augmentation-mismatch", "error",
                f"In {len(flips)} cases an item came back with its image flipped but number "
                f"{left[0]} next to it unchanged; in validation that number follows the position "
                "of what is in the image, so after a flip it gives the old position.",
                {"flips": len(flips), "number": left[0],
                 "correlation_with_the_place": float(place[left[0]])},
                "if flip:\n    image, box[0] = image.flip(-1), 1 - box[0]  # one draw for both",
            )  # fmt: skip
            return
    if not seen:
        raise NotChecked("no image is flipped")


def turned_over(session: Session) -> Iterator[Finding]:
    """When an image is flipped, what was the smaller of two numbers beside it remains so.

    Two corners of a box, or an eye on the left and one on the right: in all of validation, where
    nothing is flipped, the one is smaller, and so it is for another pair, which no flip changes.
    Of two numbers that say where something looks, there may be but one pair. Both are mirrored:
    before and after a flip they add up to one sum.
    """
    drawn, rows = _read(session)
    plain = torch.stack([n for _, n in rows])
    below = (plain[:, :, None] < plain[:, None, :]).all(0)
    smaller, larger = below.nonzero().unbind(1)
    if len(smaller) < 2 or len(smaller) > MOST_ORDERS:
        raise NotChecked("no two pairs of numbers are in one order in all of validation")
    for axis in (-1, -2):
        flips = [(a, b) for item in drawn for (one, a), (other, b) in combinations(item, 2)
                 if _turned(one, other, lambda t, axis=axis: t.flip(axis))]  # fmt: skip
        if len(flips) < LEAST_STEPS:
            continue
        a, b = (torch.stack(side) for side in zip(*flips, strict=True))
        held = torch.stack([t[:, smaller] < t[:, larger] for t in (a, b)])
        turned = (held[0] != held[1]).double().mean(0) > NEARLY_ALL
        turned &= _mirrored(a, b)[torch.stack([smaller, larger])].all(0)
        stays = held.all(0).double().mean(0) > NEARLY_ALL
        for n in turned.nonzero()[:, 0].tolist():
            one, two = int(smaller[n]), int(larger[n])
            apart = ~torch.isin(torch.stack([smaller, larger]), torch.tensor([one, two])).any(0)
            if bool((stays & apart).any()):
                yield Finding(
                    "augmentation-mismatch", "error",
                    f"Beside each of {len(rows)} images of validation number {one} is smaller than "
                    f"number {two}, but where an image came back flipped, number {one} is the "
                    f"larger ({len(flips)} cases): the two have to change places, as the left and "
                    "right corners of a box.",
                    {"flips": len(flips), "smaller": one, "larger": two, "images": len(rows)},
                    "x1, x2 = width - x2, width - x1  # not width - x1, width - x2",
                )  # fmt: skip
                return


def _mirrored(one: Tensor, other: Tensor) -> Tensor:
    """Which numbers add up to the same in all flips, as far as it is the commonest of such sums."""
    total = one + other
    moved = (one - other).abs().amax(0)
    steady = (moved > 0) & ((total - total[:1]).abs().amax(0) <= ROUNDED * moved)
    if not bool(steady.any()):
        return steady
    middle = total[0, steady].mode().values
    return steady & ((total[0] - middle).abs() <= ROUNDED * middle.abs())


def _read(session: Session) -> tuple[list[list[Reading]], list[Reading]]:
    """Some items of training, each read several times, and those of validation.

    Raises:
        NotChecked: They are not images with as many numbers each, or too few.
    """
    data, plain = (getattr(loader, "dataset", None) for loader in (
        session.setup.train_loader, session.setup.val_loader))  # fmt: skip
    if any(not hasattr(one, "__getitem__") or not hasattr(one, "__len__") for one in (data, plain)):
        raise NotChecked("the loaders have no data sets that can be asked for an item")
    if "images with numbers" not in session.memory:
        with session.observe():
            drawn = [
                [numbered(data, i) for _ in range(DRAWN)] for i in range(min(ASKED, len(data)))
            ]
            rows = [numbered(plain, i) for i in range(min(len(plain), MOST_PLAIN))]
        session.memory["images with numbers"] = drawn, rows
    drawn, rows = session.memory["images with numbers"]
    if len(rows) < LEAST_PLAIN or len({len(n) for item in [*drawn, rows] for _, n in item}) != 1:
        raise NotChecked("too few images, or different numbers of values with them")
    return drawn, rows


def numbered(data: Any, index: int) -> tuple[Tensor, Tensor]:
    """The one picture of an item, and all numbers beside it in a row."""
    leaves = [torch.as_tensor(t).detach().clone() for t in tree_leaves(data[index])
              if isinstance(t, (Tensor, int, float))]  # fmt: skip
    pictures = [t for t in leaves if is_picture(t)]
    numbers = [t.double().flatten() for t in leaves if not is_picture(t)]
    if len(pictures) != 1 or not numbers:
        raise NotChecked("items are not one image with numbers")
    return pictures[0], torch.cat(numbers)


def is_picture(t: Tensor) -> bool:
    return t.dim() >= 2 and min(t.shape[-2:]) >= LEAST_SIDE


def follows(rows: list[tuple[Tensor, Tensor]], axis: int) -> Tensor:
    """Correlation of each number with the mean place of what is unlike the rest of its picture."""
    places = []
    for picture, _ in rows:
        weight = (picture.double() - picture.double().median()).square()
        along = weight.movedim(axis, 0).flatten(1).sum(1)
        places.append((along @ torch.arange(len(along)).double()) / along.sum().clamp_min(TINY))
    place, numbers = torch.stack(places), torch.stack([n for _, n in rows])
    place, numbers = place - place.mean(), numbers - numbers.mean(0)
    return (place @ numbers) / (place.norm() * numbers.norm(dim=0)).clamp_min(TINY)
