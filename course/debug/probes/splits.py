"""Probes on the split: what the course's split check finds, as findings of the doctor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler

from course.data.repeats import chance_of_shared
from course.data.split_check import SplitFinding, SplitReport, check_split
from course.debug.probes.answers import has_label, rows_of
from course.debug.probes.one_table import holds_both_sides
from course.debug.probes.report import Finding, Severity
from course.debug.probes.session import NotChecked, Session, pair
from course.state.nested import num_examples, tensors_in

ALARMING_SHIFT = 0.25
"""Total variation between the classes of both sides from which a split is worth an alarm: of
4,000 honest splits of 400 rows of ten classes (100 to validate), 95 % stay below 0.2 and one in a
thousand passes 0.25. Less is a note."""
ALARMING_P = 1e-6
"""p-value of the same: rows that are alike for reasons nobody declared reach 1e-4 by chance."""
EXPECTED_ROWS = 10
"""Rows of a class that a side should hold by the other's share before their absence is an alarm."""
MOST_CLASSES = 200
"""Classes above which a validation set may lack some by chance."""
LEAST_VALIDATION = 20
"""Validation rows below which nothing is said about their classes."""
MOST_ITEMS = 2000
"""Items of either side that are asked for."""
COMMON, TIMES = 0.05, 5.0
"""Share of the validation items that are in training too, and how many times as often as items come
twice in training, from which they were put there."""
CHANCE = 1e-3
"""p-value of as many common items from which they are no chance, as in `check_split`."""
LEAST_NUMBERS = 4
"""Numbers of an item below which two are alike by chance."""
ROWS_COMPARED = 400
"""Rows per side for near copies: a whole comparison costs more than the steps that are watched."""


def split(session: Session) -> Iterator[Finding]:
    """Validation shares no example with training, not even moved, brightened or compressed."""
    if holds_both_sides(session):
        raise NotChecked("one batch holds both sides, which masks tell apart")
    train, val = _side(session, "train"), _side(session, "val")
    if train[0][0].numel() < 2:
        raise NotChecked("inputs of one number repeat by nature")
    only = ["copies"] if train[2] else ["copies", "near copies", "look-alikes"]
    yield from _judged(session, train, val, only)


def items(session: Session) -> Iterator[Finding]:
    """No item of the validation data is an item of the training data, whatever items consist of.

    Checked if batches cannot be joined, e.g. sentences. Items that occur twice within training
    repeat by nature.
    """
    loaders = session.setup.train_loader, session.setup.val_loader
    data = [getattr(loader, "dataset", None) for loader in loaders]
    if any(not hasattr(d, "__getitem__") or not hasattr(d, "__len__") for d in data):
        raise NotChecked("the loaders have no data sets that can be indexed")
    try:
        _side(session, "train"), _side(session, "val")
    except NotChecked:
        pass
    else:
        raise NotChecked("rows of batches are already compared")
    with session.observe():
        train, val = ([_digest(d[i]) for i in range(min(len(d), MOST_ITEMS))] for d in data)
    known, counts = set(train), Counter(train)
    again = sum(counts[one] > 1 for one in train) / max(1, len(train))
    both = sum(one in known for one in val if one) / max(1, len(val))
    by_chance = None in known or chance_of_shared(train, [one for one in val if one]) > CHANCE
    if both > COMMON and both > TIMES * again and not by_chance:
        yield Finding(
            "leak-overlap", "error",
            f"{both:.0%} of the validation items are also in the training data, number for number "
            f"({again:.1%} of the training items occur twice there): the score measures memory.",
            {"validation_items": len(val), "common": both, "twice_in_training": again},
            "train_set, val_set = random_split(dataset, [0.8, 0.2])  # one split, made once",
        )  # fmt: skip


def _digest(item: Any) -> bytes | None:
    """All numbers of an item; None where they are too few to tell items apart."""
    leaves = [torch.as_tensor(leaf) for leaf in tree_leaves(item)
              if isinstance(leaf, (Tensor, np.ndarray, int, float))]  # fmt: skip
    if sum(leaf.numel() for leaf in leaves) < LEAST_NUMBERS:
        return None
    return b"|".join(leaf.detach().cpu().contiguous().numpy().tobytes() for leaf in leaves)


def groups(session: Session) -> Iterator[Finding]:
    """No group has members on both sides."""
    if session.setup.groups is None:
        raise NotChecked("no groups given")
    given = _given_groups(session)
    if given is None:
        raise NotChecked('groups are not {"train": ..., "val": ...}')
    yield from _judged_columns(given, "groups")


def _given_groups(session: Session) -> tuple[Any, Any] | None:
    """Of training and of validation, where both were handed in."""
    given = session.setup.groups
    if isinstance(given, dict):
        given = (given.get("train"), given.get("val", given.get("validation")))
    if given is None or len(given) != 2 or any(part is None for part in given):
        return None
    return tuple(given)


def times(session: Session) -> Iterator[Finding]:
    """Validation is later than training, if the author gives times."""
    given = session.declared.get("times") or session.setup.extra.get("times")
    if given is None:
        raise NotChecked('no declared["times"]')
    yield from _judged_columns(
        (given["train"], given["val"]) if isinstance(given, dict) else given, "times"
    )


def preprocessing(session: Session) -> Iterator[Finding]:
    """Mean and standard deviation come only from the training part."""
    if not (session.epoch.whole and session.val_epoch.whole and in_order_once(session)):
        raise NotChecked("the loaders cannot be read completely, with each example once")
    sides = _side(session, "train"), _side(session, "val")
    if not sides[0][0].is_floating_point() or sides[0][2]:
        raise NotChecked("inputs are not rows of numbers")
    yield from _judged(session, *sides, ["preprocessing"])


def label_shift(session: Session) -> Iterator[Finding]:
    """Both sides hold the same classes, in about the same proportions."""
    if session.task not in ("classification", "binary"):
        raise NotChecked("targets are not class indices")
    if not in_order_once(session) or not (session.epoch.whole and session.val_epoch.whole):
        raise NotChecked("the training examples are resampled or too many to read")
    train, val = _side(session, "train"), _side(session, "val")
    if train[2] or train[1].is_floating_point() or train[1].dim() > 1:
        raise NotChecked("targets are not class indices")
    train, val = _labelled(train), _labelled(val)
    if len(train[1].unique()) > MOST_CLASSES or len(val[1]) < LEAST_VALIDATION:
        raise NotChecked("too many classes or too few validation examples")
    only = ["missing classes", "label shift"]
    found = list(_judged(session, train, val, only))
    once = _without_repeats(train)
    if found and len(once[1]) < len(train[1]):  # rare rows are repeated on purpose: count each once
        ids = {f.id for f in _judged(session, once, val, only) if f.is_alarm}
        found = [f for f in found if f.id in ids]
    yield from found


def _without_repeats(side: Side) -> Side:
    """Each row of the inputs once; a row may be a single number, e.g. an id."""
    first = {row: n for n, row in reversed([*enumerate(rows_of(side[0].unsqueeze(-1)))])}
    places = sorted(first.values())
    return side[0][places], side[1][places], side[2]


Side = tuple[Tensor, Tensor, bool]
"""Inputs, targets, and whether the inputs stand for whole nested examples."""


def _side(session: Session, side: str) -> Side:
    """Inputs and targets of the batches read, joined."""
    batches = (session.epoch if side == "train" else session.val_epoch).batches
    if not batches:
        raise NotChecked("a loader is empty")
    try:
        pairs = [pair(batch) for batch in batches]
        return torch.cat([x for x, _ in pairs]), torch.cat([y for _, y in pairs]), False
    except NotChecked:
        rows = [_whole_rows(batch) for batch in batches]
    except RuntimeError as error:
        raise NotChecked("batches of different shapes cannot be joined") from error
    if len({row.shape[1] for row in rows}) > 1:
        raise NotChecked("batches of different shapes cannot be joined")
    return torch.cat(rows), torch.cat([_labels(batch) for batch in batches]), True


def _labelled(side: Side) -> Side:
    """The rows that have a label."""
    inputs, targets, is_whole = side
    known = has_label(targets)
    return inputs[known], targets[known], is_whole


def _whole_rows(batch: Any) -> Tensor:
    """Each example of a nested batch as one row of all its numbers [B, D]."""
    size = num_examples(batch)
    parts = [t for t in tensors_in(batch) if t.dim() and len(t) == size]
    if not parts or size is None or sum(t[0].numel() for t in parts if size) < 2:
        raise NotChecked("batches hold no tensors with a row per example")
    return torch.cat([t.detach().cpu().flatten(1).double() if t.dim() > 1
                      else t.detach().cpu()[:, None].double() for t in parts], dim=1)  # fmt: skip


def _labels(batch: Any) -> Tensor:
    """The last tensor of whole numbers, one per example; zeros where there is none."""
    size = num_examples(batch)
    found = [t for t in tensors_in(batch) if t.dim() == 1 and len(t) == size
             and not t.is_floating_point()]  # fmt: skip
    return found[-1].cpu() if found else torch.zeros(size or 0, dtype=torch.long)


def _judged(session: Session, train: Side, val: Side, only: list[str]) -> Iterator[Finding]:
    """What the course's one judge of a split says, as findings."""
    if train[0].shape[1:] != val[0].shape[1:]:
        raise NotChecked("inputs have a different shape in validation")
    try:
        report = check_split(
            train[:2],
            val[:2],
            groups=groups_of(session, train, val),
            only=only,
            drawn_once=in_order_once(session),
            rows=ROWS_COMPARED,
        )
    except ValueError as error:
        raise NotChecked(str(error)) from error
    yield from _as_findings(report)
    for said in report.not_checked:
        name, _, text = said.partition(": ")
        if name == "copies" and report.figures.get("copies"):
            yield Finding("leak-overlap", "note", text, dict(report.figures))


def groups_of(session: Session, *sides: Any) -> tuple[Any, Any] | None:
    """The groups that were handed in, where every row has one."""
    groups = _given_groups(session)
    if groups is None:
        return None
    fits = all(len(part) == len(side[1]) for part, side in zip(groups, sides, strict=True))
    return groups if fits else None


def _judged_columns(given: Any, name: str) -> Iterator[Finding]:
    """The same for groups or times alone."""
    columns = tuple(list(part) for part in given)
    rows = [np.zeros((len(column), 1)) for column in columns]
    sides = [(x, x[:, 0]) for x in rows]
    yield from _as_findings(check_split(*sides, **{name: columns}, only=[name]))


def _as_findings(report: SplitReport) -> Iterator[Finding]:
    for found in report.findings:
        yield Finding(_id(found), _severity(found), found.message, dict(found.figures), found.fix)


def _id(found: SplitFinding) -> str:
    return "label-shift" if found.id == "missing-class" else found.id


def _severity(found: SplitFinding) -> Severity:
    """What may be chance or meant is a note."""
    if found.id == "missing-class":
        return "warning" if found.figures["expected_there"] >= EXPECTED_ROWS else "note"
    if found.id == "label-shift":
        sure = found.figures["label_shift_p"] < ALARMING_P
        return "warning" if sure and found.figures["label_shift"] > ALARMING_SHIFT else "note"
    if found.id == "covariate-shift":  # a later time, another place: may be what will be met
        return "note"
    return "warning" if found.id == "leak-preprocessing" else "error"


def in_order_once(session: Session) -> bool:
    """True if the loader gives each example once, so that repeats come from the data."""
    sampler = getattr(session.setup.train_loader, "sampler", None)
    if isinstance(sampler, RandomSampler):
        return not sampler.replacement
    return sampler is None or isinstance(sampler, SequentialSampler)


def told_apart(session: Session) -> Iterator[Finding]:
    """No classifier can tell validation inputs from training inputs, object by object."""
    if not (session.epoch.whole and session.val_epoch.whole and in_order_once(session)):
        raise NotChecked("the loaders cannot be read completely, with each example once")
    train, val = _side(session, "train"), _side(session, "val")
    if train[2]:
        raise NotChecked("batches are not pairs of inputs and targets")
    passes = [torch.cat([pair(b)[0] for b in batches]) for batches in session.two_passes]
    first, second = (sorted(rows_of(inputs)) for inputs in passes)
    if len(first) == len(second) and first != second:
        raise NotChecked("training inputs are drawn again in each epoch")
    yield from _judged(session, _in_data_order(session, train), val, ["covariate shift"])


def _in_data_order(session: Session, train: Side) -> Side:
    """Training rows as their groups are listed, where groups are given and the loader shuffles."""
    loader = session.setup.train_loader
    if session.setup.groups is None or not isinstance(getattr(loader, "sampler", None),
                                                      RandomSampler):  # fmt: skip
        return train
    if loader.batch_size is None:
        raise NotChecked("which row belongs to which group is not known")
    with session.observe():
        batches = DataLoader(loader.dataset, loader.batch_size, collate_fn=loader.collate_fn)
        pairs = [pair(batch) for batch in batches]
    return torch.cat([x for x, _ in pairs]), torch.cat([y for _, y in pairs]), False
