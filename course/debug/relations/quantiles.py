"""Relation on a quantile loss: it is smallest at the quantiles it is made for."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, pair
from course.state.snapshot import reached

GRID = 40
"""Constants that are tried: quantiles of the targets, 1/40 apart."""
NEAR = 0.04
"""Distance of two levels that are the same: one and a half steps of the grid."""
LEAST_TARGETS = 96
"""Targets from which quantiles of 1/40 are distinct."""
MOST_LEVELS = 16
"""Columns of outputs up to which they may be levels; more are features, or places."""


def turned(session: Session) -> Iterator[Finding]:
    """A loss with quantile levels is smallest where these shares of the targets lie below."""
    if session.loss_fn is None:
        raise NotChecked("no loss_fn")
    targets = torch.cat([pair(b)[1].flatten() for b in session.epoch.batches])
    columns = session.outputs.shape[1] if session.outputs.dim() == 2 else 0
    if not targets.is_floating_point() or len(targets) < LEAST_TARGETS or (
            len(targets.unique()) < LEAST_TARGETS // 2):  # fmt: skip
        raise NotChecked("targets are not numbers, or too few")
    if not 0 < columns <= MOST_LEVELS or pair(session.epoch.batches[0])[1].numel() != len(
            pair(session.epoch.batches[0])[1]):  # fmt: skip
        raise NotChecked("outputs do not have a few columns for one target")
    said = _levels(session, columns)
    if not said:
        raise NotChecked("no levels between 0 and 1, one for each output, are found in the loss")
    least = _least(session, targets, columns)
    for levels in said:
        turned = (least - (1 - levels)).abs().max() < NEAR
        if turned and (least - levels).abs().max() > 2 * NEAR:
            yield Finding(
                "quantiles-swapped", "error",
                f"The loss is made with the levels {_told(levels)}, but the constants with the "
                f"smallest loss have {_told(least)} of the targets below them: over- and "
                "underestimates are swapped, and each output learns the opposite quantile.",
                {"levels": levels.tolist(), "shares_below": least.tolist()},
                "error = target - output  # not output - target\n"
                "loss = torch.maximum(level * error, (level - 1) * error).mean()",
            )  # fmt: skip
            return


def _told(levels: Tensor) -> str:
    return ", ".join(f"{level:.2g}" for level in levels.tolist())


def _least(session: Session, targets: Tensor, columns: int) -> Tensor:
    """Share of the targets below the constant that costs least, of each column [K]."""
    inputs_like = targets.float()[:, None]
    shares = torch.arange(1, GRID) / GRID
    slopes = []
    with session.observe(), torch.enable_grad():
        shape = (len(targets), *pair(session.epoch.batches[0])[1].shape[1:])
        for constant in torch.quantile(targets.float(), shares):
            outputs = constant.expand(len(inputs_like), columns).clone().requires_grad_()
            loss = session.loss(session.place(outputs), targets.reshape(shape))
            (slope,) = torch.autograd.grad(loss, outputs, allow_unused=True)
            if slope is None:
                raise NotChecked("the loss has no gradient at constants")
            slopes.append(slope.detach().cpu().sum(0))
    rises = torch.stack(slopes) > 0
    if not bool(rises.any(0).all()) or bool(rises.all(0).any()):
        raise NotChecked("no constant has the smallest loss")
    first = rises.int().argmax(0)
    if not torch.equal(rises, torch.arange(len(shares))[:, None] >= first):
        raise NotChecked("the loss of a constant has several minima")
    return shares[first] - 1 / (2 * GRID)


def _levels(session: Session, columns: int) -> list[Tensor]:
    """Lists and tensors of so many numbers between 0 and 1 that the loss can reach."""
    things = reached(session.loss_fn, session.setup.extra)
    rows = [t for t in things if isinstance(t, (list, tuple)) and t]
    found = [torch.tensor(t) for t in rows if all(type(v) is float for v in t)]
    found += [t.detach().cpu().float().flatten() for t in things
              if isinstance(t, Tensor) and t.is_floating_point() and t.numel() == columns
              and not t.requires_grad]  # fmt: skip
    if columns == 1:
        found += [torch.tensor([v]) for v in _numbers([session.loss_fn, *things])]
    return [t for t in found if len(t) == columns and bool(((t > 0) & (t < 1)).all())
            and len(t.unique()) == columns]  # fmt: skip


def _numbers(things: list[Any]) -> Iterator[float]:
    """Numbers that functions were made with, and attributes of modules and objects."""
    for thing in things:
        values: list[Any] = []
        if isinstance(thing, types.FunctionType):
            values += [c.cell_contents for c in thing.__closure__ or () if _is_filled(c)]
            values += [*(thing.__defaults__ or ()), *(thing.__kwdefaults__ or {}).values()]
        elif isinstance(thing, partial):
            values += [*thing.args, *thing.keywords.values()]
        elif isinstance(thing, Callable):
            values += list(getattr(thing, "__dict__", {}).values())
        yield from (v for v in values if type(v) is float)


def _is_filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False
