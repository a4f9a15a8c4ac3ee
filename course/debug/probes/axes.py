"""Probes on axes: logits keep their rows on the way to the loss, and padding changes nothing."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from course.debug.probes.answers import rows_of
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, pair
from course.debug.probes.thresholds import CHANGED, OFTEN, PADDED_ROWS

MOST_NUMBERS = 1_000_000
"""Logits of a step above which their rows are not compared: it costs too much time."""
MORE = 4
"""Padding added to a batch, in positions."""
NOT_FOUND = 0.5
"""Share of the loss's rows that are not among the rows along an axis, from which that axis does
not hold the classes."""
BETWEEN = 0.01
"""Share of the positions where the value of padding may stand between tokens, as a rare token."""


def logits_reshaped(session: Session) -> Iterator[Finding]:
    """Each row of logits that the loss sees is one that the model made."""
    tape = session.loop.tape
    torn = apart = seen = 0
    for call, batch in enumerate(session.loop.batches[:6]):
        events = tape.in_call(call)
        made = [e.output for e in events if e.kind == "output" and e.graph]
        met = [e for e in events if e.kind == "loss" and e.name in ("cross_entropy", "nll_loss")]
        if len(made) != 1 or len(met) != 1 or made[0] is None or made[0].dim() < 3:
            continue
        outputs, logits = made[0], met[0].inputs
        if logits.dim() < 2 or logits.numel() != outputs.numel() or logits.numel() > MOST_NUMBERS:
            continue
        if not torch.equal(logits.flatten().sort().values, outputs.flatten().sort().values):
            continue  # something was computed in between
        seen += 1
        orders = _orders(logits, outputs)
        torn += not orders
        targets = pair(batch)[1]
        apart += bool(orders) and not any(
            _aligned(order, lead, targets, met[0].targets) for order, lead in orders
        )
    if not seen:
        raise NotChecked("no cross-entropy over several positions was seen")
    shapes = {"outputs": list(outputs.shape), "into_the_loss": list(logits.shape)}
    if torn >= OFTEN * seen:
        yield Finding(
            "logits-reshaped", "error",
            f"The model returns {list(outputs.shape)} and the loss gets {list(logits.shape)} with "
            "the same numbers in different rows: view or reshape mixed classes and positions.",
            shapes | {"steps": seen, "torn": torn},
            "logits = outputs.transpose(1, 2)  # [B, T, C] to [B, C, T]; reshape moves no axis",
        )  # fmt: skip
    elif apart >= OFTEN * seen:
        yield Finding(
            "logits-reshaped", "error",
            "Logits and targets are flattened in different orders: most positions are compared "
            "with another position's target.",
            shapes | {"targets": list(targets.shape), "steps": seen, "apart": apart},
            "loss_fn(outputs.flatten(0, 1), targets.flatten())  # both [B, T], batch first",
        )  # fmt: skip


Order = tuple[list[int], tuple[int, ...]]


def _orders(logits: Tensor, outputs: Tensor) -> list[Order]:
    """For each axis of the outputs that may hold the classes: where each row of logits comes from,
    and the shape of the positions."""
    classes = logits.shape[1]
    rows = rows_of(logits.movedim(1, -1).reshape(-1, classes))
    found = []
    for axis in range(1, outputs.dim()):
        if outputs.shape[axis] != classes:
            continue
        moved = outputs.movedim(axis, -1)
        place = {row: i for i, row in enumerate(rows_of(moved.reshape(-1, classes)))}
        order = [place.get(row, -1) for row in rows]
        if sum(i < 0 for i in order) < NOT_FOUND * len(order):
            found.append((order, tuple(moved.shape[:-1])))
    return found


def _aligned(order: list[int], lead: tuple[int, ...], targets: Tensor, met: Tensor) -> bool:
    """The targets that the loss met stand at the positions of its logits, as far as one can say."""
    if targets.numel() != len(order) or met.numel() != len(order) or min(order) < 0:
        return True
    if len(set(order)) < len(order) or targets.dim() != 2:
        return True
    flat, met = targets.flatten().cpu(), met.flatten().cpu()
    if lead == tuple(targets.shape):
        place = torch.arange(len(flat))
    elif lead == tuple(targets.shape)[::-1]:
        place = torch.arange(len(flat)).reshape(targets.shape).T.flatten()
    else:
        return True
    if not torch.equal(flat.sort().values, met.sort().values):
        return True
    return torch.equal(flat[place[order]], met)


def padding(session: Session) -> Iterator[Finding]:
    """More padding after a sequence changes no output, if the author says what padding is."""
    inputs, _ = session.batch
    said = session.declared.get("padding")
    if inputs.dim() != 2 or inputs.is_floating_point() or inputs.shape[1] < 4:
        raise NotChecked("inputs are not rows of token ids")
    value = int(said) if said is not None else 0
    ends = (inputs[:, -1] == value).float().mean()
    if said is None and not (ends > PADDED_ROWS and _only_behind(inputs, value)):
        raise NotChecked('no declared["padding"], and no row ends in zeros')
    before = session.outputs.float()
    longer = torch.nn.functional.pad(inputs, (0, MORE), value=value)
    after = session.predict(longer).float()
    if before.shape != after.shape:
        raise NotChecked("outputs are one row per position")
    change = float((before - after).abs().max()) / (float(before.std()) + 1e-12)
    if change > CHANGED:
        yield Finding(
            "padding-not-masked", "warning" if said is not None else "note",
            f"{MORE} more positions of padding ({value}) change the outputs by {change:.2g} "
            "standard deviations: an example's output depends on the longest sequence in its "
            "batch.",
            {"change_over_std": change, "rows_ending_in_padding": float(ends)},
            "mask = tokens == pad  # src_key_padding_mask=mask in attention, and in the mean:\n"
            "h = (h * ~mask[..., None]).sum(1) / (~mask).sum(1, keepdim=True)",
        )  # fmt: skip


def _only_behind(inputs: Tensor, value: int) -> bool:
    """The value stands behind the other tokens of a row, and hardly between them."""
    pads = inputs == value
    behind = pads.flip(1).int().cumprod(1).flip(1).bool()
    return float((pads & ~behind).float().mean()) < BETWEEN and not bool(behind.all(1).any())
