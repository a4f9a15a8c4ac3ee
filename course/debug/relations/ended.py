"""Relation on the sign that ends a sequence: it is a target, also where it serves as padding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.thresholds import NEARLY_ALL
from course.debug.relations.padding import only_behind
from course.debug.relations.program import program_of
from course.state.nested import tensors_in

LEAST_ROWS = 8
"""Padded rows, all of which end alike by no chance."""


def by_its_sign(session: Session) -> Iterator[Finding]:
    """Where a batch says that the sign of the end is read, the sign of the end counts in the loss.

    If padding is that sign too, what is left out by the token, not by the mask, is both.
    """
    program = program_of(session)
    batch = program.batches[0]
    leaves = [t.detach().cpu() for t in tensors_in(batch)]
    ids = [t for t in leaves if t.dim() == 2 and not t.is_floating_point() and t.shape[1] > 2]
    told = [(x, real) for x in ids for real in real_places(leaves, x)]
    if not told:
        raise NotChecked("a batch does not say what of its ids is real")
    for x, real in told:
        sign = _sign(x, real)
        if sign is None:
            continue
        for name in _left_out(program, ids, x, real, sign):
            rows = int((~real).any(1).sum())
            yield Finding(
                "empty-targets", "warning",
                f"All {rows} padded rows of a batch end with token {sign}, which the batch's "
                f"own mask calls real; padding is {sign} too, and {name} leaves both out of "
                "the loss: the model never learns to end a sequence.",
                {"token": sign, "rows": rows},
                "labels = input_ids.masked_fill(attention_mask == 0, -100)  # not by the token",
            )  # fmt: skip
            return


def real_places(leaves: list[Tensor], x: Tensor) -> Iterator[Tensor]:
    """What the batch says is no padding of these ids [B, T]: by a mask or by lengths."""
    places = torch.arange(x.shape[1])
    for t in leaves:
        if t.shape == x.shape and bool(((t == 0) | (t == 1)).all()):
            if only_behind(t == 0):
                yield t != 0
        elif _are_lengths(t, x):
            yield places < t[:, None]


def _are_lengths(t: Tensor, x: Tensor) -> bool:
    whole = t.shape == x.shape[:1] and not t.is_floating_point()
    return whole and 1 <= int(t.min()) < int(t.max()) <= x.shape[1]


def _sign(x: Tensor, real: Tensor) -> int | None:
    """The one value of the padding, if each padded row's last real token is it, and only that."""
    padded = (~real).any(1)
    if int(padded.sum()) < LEAST_ROWS:
        return None
    values = x[~real].unique()
    last = real.sum(1) - 1
    if len(values) != 1 or int(values[0]) < 0 or bool((last < 1).any()):  # -100 is no token
        return None
    sign = values[0]
    at_end = x.gather(1, last[:, None])[:, 0] == sign
    once = ((x == sign) & real).sum(1) == 1
    return int(sign) if bool((at_end & once)[padded].all()) else None


def _left_out(program: Any, ids: list[Tensor], x: Tensor, real: Tensor, sign: int) -> Iterator[str]:
    """Where every sign is left out of the targets, and nearly all else is not."""
    others = real & (x != sign)
    for y in ids:
        if y.shape != x.shape or y is x or not bool((y[x == sign] < 0).all()):
            continue
        if float((y == x)[others].double().mean()) > NEARLY_ALL:
            yield "the label -100 in its place"
    for event in program.first().losses:
        again = event.call_again
        options = again.keywords if again is not None else {}
        met = event.targets.detach().cpu().flatten()
        if options.get("ignore_index") == sign and torch.equal(met, x[:, 1:].flatten()):
            yield f"ignore_index={sign}"
