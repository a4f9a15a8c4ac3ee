"""Probes on labels: each label belongs to its input, and no input contains the label itself."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from course.debug.probes.relation import relate, structure
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, pair
from course.debug.probes.thresholds import LEFT_OUT, NEARLY_ALL, OFTEN, UNLABELLED, ZERO

MOST_ROWS = 400
LEARNED, CHANCE = 4.0, 2.0
"""z-scores against permuted labels: above the first, labels can be predicted; below the second,
they cannot."""
CLUSTERED, SURELY = 0.92, 6.0
"""Ratio of `structure` below which the inputs themselves have structure, and with what
certainty."""
LEAST_CLUSTERED = 100
"""Rows from which a structure of the inputs is enough to say it, without the validation data."""
LEAST_PER_CLASS = 8
"""Rows per class, on average, below which neither guess has enough to learn a class from."""
LEAST_AGAIN = 32
"""Inputs that must come again: `ERRORS` standard errors of a share of so many are 0.35 at most."""
ERRORS = 4
"""Standard errors within which an agreement is chance: more comes about once in 30,000 times."""
DISTINCT = 0.5
"""Share of distinct labels above which they are numbers, not classes."""
NEVER_EQUAL = 0.02
"""Share of equal numbers below which none has stayed with its input."""
ALL_ALIKE = 0.9
"""Agreement by chance from which nearly all labels are alike, and agreement shows nothing."""
LEAST_ROWS = 48
"""Examples below which a column of a few values may equal a target of a few values by chance."""
COPIED = 1 - 1e-6
"""Correlation above which a column is the target: float32 rounds by 1e-7."""
FIX = "inputs, targets = inputs[order], targets[order]  # one order for both"


def has_label(targets: Tensor) -> Tensor:
    """Which rows have one: -100, and -1 below classes from 0 on, mark those without.

    Args:
        targets: [B], else all have one.
    """
    known = targets != LEFT_OUT
    if targets.dim() != 1:
        return torch.ones_like(known)
    if {0, 1} <= set(targets[targets >= 0].unique()[:2].tolist()):
        known &= targets != UNLABELLED
    return known


def rows_of(inputs: Tensor) -> list[bytes]:
    """A hash of each row."""
    flat = inputs.detach().cpu().contiguous().flatten(1).numpy()
    return [hashlib.blake2b(row.tobytes(), digest_size=12).digest() for row in flat]


def shuffled_in_step(session: Session) -> Iterator[Finding]:
    """The loss compares every input's output with that input's own target."""
    loop = session.loop
    if loop.own or loop.unit != "step":
        raise NotChecked("needs train_step")
    wrong = seen = 0
    named: list[tuple[Tensor, Tensor]] = []
    for call, batch in enumerate(loop.batches[: len(loop.losses)]):
        inputs, targets = pair(batch)
        events = loop.tape.in_call(call)
        forwards = [e.inputs for e in events if e.kind == "forward" and e.grad]
        losses = [e.targets for e in events if e.kind == "loss" and e.graph]
        if len(forwards) != 1 or not losses or forwards[0] is None:
            continue
        if targets.numel() != len(inputs):
            raise NotChecked("targets are not one number per example")
        place = {row: i for i, row in enumerate(rows_of(inputs))}
        if forwards[0].shape != inputs.shape or len(place) < len(inputs):
            continue
        order = [place.get(row, -1) for row in rows_of(forwards[0].to(inputs.dtype))]
        if min(order) < 0 or any(t.numel() != targets.numel() for t in losses):
            continue
        expected = targets[order].cpu().flatten().double()
        met = [t.detach().cpu().flatten().double() for t in losses]
        if not all(torch.equal(m.sort().values, expected.sort().values) for m in met):
            continue
        seen += 1
        wrong += not any(torch.equal(m, expected) for m in met)
        named.append((expected, met[0]))
    if seen < 4:
        raise NotChecked("no step passed its inputs and targets on unchanged")
    if is_renaming(*(torch.cat(part) for part in zip(*named, strict=True))):
        return  # as with a table of other numbers for the classes, in batches with as many of each
    if wrong >= OFTEN * seen:
        yield Finding(
            "labels-shuffled", "error",
            f"In {wrong} of {seen} steps the loss got the batch's targets in a different order "
            "from its inputs: outputs are compared with the labels of other examples.",
            {"steps_in_another_order": wrong, "steps": seen}, FIX,
        )  # fmt: skip


def is_renaming(labels: Tensor, others: Tensor) -> bool:
    """Nearly all rows with the same label have the same other one, and labels repeat: the labels
    have other names, whose rows are where they were."""
    names, place = labels.unique(return_inverse=True)
    other, column = others.unique(return_inverse=True)
    if len(names) > DISTINCT * len(labels) or len(other) < 2:
        return False
    table = torch.zeros(len(names), len(other))
    table.index_put_((place, column), torch.ones(len(place)), accumulate=True)
    to = table.argmax(1)
    one_to_one = len(to.unique()) == len(to)
    return one_to_one and float(table.amax(1).sum()) >= NEARLY_ALL * len(labels)


def shuffled_between_epochs(session: Session) -> Iterator[Finding]:
    """The same input has the same label in the next epoch."""
    first, second = (_answers(batches) for batches in session.two_passes)
    common = sorted(set(first) & set(second))
    if len(common) < LEAST_AGAIN:
        raise NotChecked(
            f"fewer than {LEAST_AGAIN} inputs come again unchanged in the second epoch"
        )
    a, b = (torch.tensor([answers[row] for row in common]) for answers in (first, second))
    chance = _agreement_by_chance(a)
    agree = float((a == b).double().mean())
    if a.unique().numel() > DISTINCT * len(a):  # numbers, not classes
        chance = float(torch.corrcoef(torch.stack([a, b]))[0, 1].nan_to_num())
        luck = ERRORS / len(a) ** 0.5
        apart = agree < NEVER_EQUAL and abs(chance) < luck
    else:
        luck = ERRORS * (chance * (1 - chance) / len(a)) ** 0.5
        apart = chance < ALL_ALIKE and agree < chance + luck
    if apart and not _drawn_by_chance(session, a, b):
        yield Finding(
            "labels-shuffled", "error",
            f"{len(common)} inputs come again in the second epoch, and {agree:.0%} of them have "
            "the same label, no more than by chance: inputs and labels are shuffled separately.",
            {"inputs_seen_twice": len(common), "same_label": agree, "by_chance": chance},
            "DataLoader(TensorDataset(inputs, targets), shuffle=True)  # one loader for both",
        )  # fmt: skip


def _drawn_by_chance(session: Session, first: Tensor, second: Tensor) -> bool:
    """True if labels are sampled from a distribution that depends on the input: not a fault."""
    try:
        told = relate(*_sample(session.two_passes[0], least=96)).strongest
    except NotChecked:
        return not torch.equal(first.sort().values, second.sort().values)
    return told > CHANCE


def _answers(batches: list) -> dict[bytes, float]:
    """The label of each input that occurs once."""
    found: dict[bytes, float] = {}
    twice: set[bytes] = set()
    for batch in batches:
        inputs, targets = pair(batch)
        if not inputs.is_floating_point() or inputs[0].numel() < 2:
            raise NotChecked("inputs are not rows of floating-point numbers")
        if targets.numel() != len(inputs):
            raise NotChecked("targets are not one number per example")
        for row, target in zip(rows_of(inputs), targets.flatten().tolist(), strict=True):
            twice |= {row} & found.keys()
            found[row] = float(target)
    return {row: target for row, target in found.items() if row not in twice}


def _agreement_by_chance(labels: Tensor) -> float:
    shares = labels.unique(return_counts=True)[1].double() / len(labels)
    return float(shares.pow(2).sum())


def unrelated(session: Session) -> Iterator[Finding]:
    """Labels have something to do with their inputs, if the inputs have any structure at all.

    Noise with random labels, used as stand-in data, is not reported: nothing in it could be
    shuffled.
    """
    if session.task not in ("classification", "binary"):
        raise NotChecked("targets are no classes")
    train = _sample(session.epoch.batches, least=96)
    first, second = (_answers(batches) for batches in session.two_passes)
    if len(set(first) & set(second)) < NEARLY_ALL * len(first):
        raise NotChecked(
            "inputs are augmented: their pixels say little about which example they are"
        )
    found = relate(*train)
    if found.strongest > CHANCE:
        return
    val = None
    with contextlib.suppress(NotChecked):
        val = relate(*_sample(session.val_epoch.batches, least=30)).strongest
    ratio, surely = structure(train[0])
    if val is not None and val > LEARNED + 1:
        where = (
            "those of the validation data can be: the training labels were shuffled, or read in a "
            "different order."
        )
    elif ratio < CLUSTERED and surely > SURELY and len(train[0]) >= LEAST_CLUSTERED:
        where = (
            "the inputs do have structure: labels and inputs were probably shuffled, sorted or "
            "joined separately."
        )
    else:
        return
    certain = (val is not None and val > LEARNED + 1) or train[1].unique().numel() > 2
    yield Finding(
        "labels-shuffled", "warning" if certain else "note",  # same or other: pairs look so too
        "Neither a nearest-neighbour nor a linear classifier predicts the training labels better "
        f"than shuffled ones, but {where}",
        {"neighbour_agrees": found.agreement, "by_chance": found.by_chance,
         "deviations_neighbour": found.neighbour, "deviations_line": found.line,
         "deviations_validation": val, "structure_of_inputs": ratio},
        FIX,
    )  # fmt: skip


def _sample(batches: list, least: int) -> tuple[Tensor, Tensor]:
    inputs, targets = zip(*map(pair, batches), strict=True)
    if not inputs[0].is_floating_point() or inputs[0][0].numel() < 2:
        raise NotChecked("inputs are not rows of floating-point numbers")
    if any(t.numel() != len(t) for t in targets) or len({x.shape[1:] for x in inputs}) > 1:
        raise NotChecked("targets are not one class per example, or shapes differ")
    x = torch.cat([x.detach().cpu().flatten(1) for x in inputs])
    y = torch.cat([t.detach().cpu().flatten() for t in targets])
    x, y = (t[has_label(y)][:MOST_ROWS] for t in (x, y))
    if bool((y.double() != y.double().round()).any()):
        raise NotChecked("targets are no classes")
    y = y.long()
    number, rarest = y.unique().numel(), len(y) / max(1, y.unique().numel())
    few = len(y) < least or number < 2 or rarest < LEAST_PER_CLASS
    if few or not bool(torch.isfinite(x).all()):
        raise NotChecked(f"too few examples per class ({len(y)} of {number})")
    return x, y


def target_in_inputs(session: Session) -> Iterator[Finding]:
    """No column of the inputs is the target."""
    pairs = [pair(b) for b in session.epoch.batches]
    inputs, targets = session.batch
    if inputs.dim() != 2 or inputs.shape[1] < 2 or targets.numel() != len(targets):
        raise NotChecked("inputs are not rows of columns with one target each")
    if len({x.shape[1:] for x, _ in pairs}) > 1:
        raise NotChecked("batches have rows of several lengths")
    x = torch.cat([x.detach().cpu() for x, _ in pairs]).double()
    y = torch.cat([t.detach().cpu().flatten() for _, t in pairs]).double()
    if len(y) < LEAST_ROWS or y.unique().numel() < 2 or not bool(torch.isfinite(x).all()):
        raise NotChecked(f"fewer than {LEAST_ROWS} examples, or only one distinct target")
    x, y = x - x.mean(0), y - y.mean()
    told = (x.T @ y).abs() > COPIED * x.norm(dim=0) * y.norm()
    told = (told & (x.norm(dim=0) > ZERO)).nonzero()[:, 0].tolist()
    if told and _are_tokens(session, [x for x, _ in pairs]):
        yield Finding(
            "target-in-inputs", "note",
            f"The target is the token at position {told[0]}: taken as a task of copying it.",
            {"positions": told[:5], "examples": len(y)},
        )  # fmt: skip
    elif told and len(told) < x.shape[1]:
        yield Finding(
            "target-in-inputs", "warning",
            f"Column {told[0]} of the inputs is the target, up to scale: the model reads the "
            "answer from it, and will not have it on new data.",
            {"columns": told[:5], "examples": len(y), "columns_in_all": x.shape[1]},
            f"inputs = np.delete(inputs, {told[0]}, axis=1)  # in training and in validation",
        )  # fmt: skip


def _are_tokens(session: Session, inputs: list[Tensor]) -> bool:
    """Whole numbers that look up a table and are of one vocabulary in all columns, as positions of
    a sequence have, and not codes of several columns."""
    looked_up = any(isinstance(m, nn.Embedding) for m in session.model.modules())
    if not looked_up or any(x.is_floating_point() for x in inputs):
        return False
    every = torch.cat(inputs)
    ends = every.amax(0), every.amin(0)
    return all(bool((end == end[0]).all()) for end in ends)
