"""Relation on label maps: ids are names, and there is nothing between two of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.relations.joining import read_by_the_model
from course.state.nested import tensors_in

WIDEST = 3
"""Places over which a border is looked at: maps that were made four times as large have as many."""
LEAST_BORDERS, LEAST_IDS, MOST_IDS, LEAST_SIDE = 100, 3, 64, 6
"""More ids are grey levels."""
SHARE = 0.15
"""Share of the borders between ids that are not neighbours in number that lead through an id in
between; where maps were halved by averaging it is 0.4."""
TIMES = 5.0
"""By so many times it is larger than in validation, where things may lie in each other, too."""


def interpolated(session: Session) -> Iterator[Finding]:
    """Borders in label maps do not lead through the ids in between, if those of validation do not.

    Resizing a map like a picture averages its ids: along every border of 0 and 3 a thin line of
    1 or 2 appears, of a class that is not there. Classes that do lie in rings, or that mark
    borders, do so on both sides.
    """
    maps, others = _maps(session.epoch.batches), _maps(session.val_epoch.batches)
    read = read_by_the_model(session)
    place = next((n for n in maps if n in others and n not in read), None)
    if place is None:
        raise NotChecked("no maps [B, H, W] of three or more ids on both sides")
    (thin, all_thin), (val_thin, val_all) = (_borders(m[place]) for m in (maps, others))
    if min(all_thin, val_all) < LEAST_BORDERS:
        raise NotChecked("few borders between ids that are not neighbours in number")
    share, val_share = thin / all_thin, val_thin / val_all
    if share > SHARE and share > TIMES * val_share:
        yield Finding(
            "wrong-targets", "error",
            f"{share:.0%} of {all_thin} borders in the label maps of training, between ids that "
            f"are not neighbours in number, pass through a thin line of an id in between; in "
            f"validation {val_share:.0%}: maps were resized or turned with interpolation, which "
            "averages ids as if they were colours.",
            {"share": share, "share_in_validation": val_share, "borders": all_thin},
            'mask = F.interpolate(mask[None, None].float(), size, mode="nearest-exact")[0, 0]',
        )  # fmt: skip


def _maps(batches: list[Any]) -> dict[int, list[Tensor]]:
    """Label maps [B, H, W], by their place in a batch; one channel counts as none."""
    found: dict[int, list[Tensor]] = {}
    for batch in batches:
        for place, t in enumerate(tensors_in(batch)):
            t = t.squeeze(1) if t.dim() == 4 else t
            if t.dim() == 3 and not t.is_floating_point() and min(t.shape[1:]) >= LEAST_SIDE:
                found.setdefault(place, []).append(t.long())
    ids = {n: {int(v) for m in maps for v in m.unique()} for n, maps in found.items()}
    return {n: maps for n, maps in found.items() if LEAST_IDS <= len(ids[n]) <= MOST_IDS}


def _borders(maps: list[Tensor]) -> tuple[int, int]:
    """Borders of ids at least two apart that lead over a line of one between them, and all."""
    thin = whole = 0
    for m in maps:
        for t in (m, m.transpose(1, 2)):
            steps = t[:, 1:] - t[:, :-1]
            whole += int((steps.abs() > 1).sum())
            for width in range(1, WIDEST + 1):
                begin, end = steps[:, : -width or None], steps[:, width:]
                still = sum((steps[:, k : len(steps[0]) - width + k] != 0).int()
                            for k in range(1, width))  # fmt: skip
                thin += int((((begin > 0) & (end > 0) | (begin < 0) & (end < 0)) & (still == 0))
                            .sum())  # fmt: skip
    return thin, thin + whole
