"""03b.split-by-group: whole groups into validation, so that nobody is on both sides."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from autograde.bank.common_wrong import LOOKS, common
from autograde.bank.harness import Watch
from autograde.exercise import Answer, AnswerError, Case, Draw, Exercise, Part, Wrong, kept, pair

SIDES = ("train", "val")
"""Fields of an answer."""
OVER = {3: 0.4, 4: 0.01}
"""Examples that a share asks for beyond those of the first two groups, by the case of `apart`."""


def draw(source: Draw, part: str) -> Case:
    """Groups whose examples lie scattered, and the order in which to take them.

    One group is large and comes first or second: it makes the share alone, while a share of the
    groups would be three of them. The last two cases of `apart` tell who rounds the share down to
    examples, by whatever rule: they ask for 0.4 and for 0.01 of an example more than two groups
    hold. In `met` and in the first case of `exact` two groups make exactly the share, and
    `exact` ends with a share of 1; in `names` the order holds a group without examples.
    """
    num_groups = source.integer(6, 7)
    large = source.integer(1, num_groups - 1)
    sizes = [18 if i == large else source.integer(2, 3) for i in range(num_groups)]
    step, first = (source.integer(5, 9), source.integer(20, 90)) if part == "names" else (1, 0)
    names = [step * i + first for i in range(num_groups)]
    groups = torch.tensor([n for n, size in zip(names, sizes, strict=True) for _ in range(size)])
    groups = groups[torch.randperm(len(groups), generator=source.generator)]
    order = source.shuffled([i for i in range(num_groups) if i != large])
    order.insert(source.index % 2, large)
    share = source.uniform(0.43, 0.45)
    if source.index >= 3:  # the first two groups are not quite enough
        share = (sizes[order[0]] + sizes[order[1]] + OVER[source.index]) / len(groups)
    met = (sizes[order[0]] + sizes[order[1]]) / len(groups)  # no group makes 0
    share = {"met": met, "exact": (met, 0.0, 1.0)[source.index % 3]}.get(part, share)
    order = [names[i] for i in order]
    return {
        "groups": groups,
        "order": [max(names) + 5, *order] if part == "names" else order,
        "share": share,
    }


def run(function, case: Case, device: torch.device) -> Answer:
    """The indices of both sides."""
    groups, order = case["groups"].to(device), list(case["order"])
    watch = Watch(data={"groups": groups, "order": order})
    returned = kept(pair, function(groups, order, case["share"]), "training and validation indices")
    if isinstance(returned, dict):
        return {"train": returned, "val": returned, "disturbed": watch.changed()}
    train, val = (kept(as_positions, side) for side in returned)
    return {"train": train, "val": val, "disturbed": watch.changed()}


def as_positions(side: object) -> list[int]:
    """The positions in a list, a tuple, a tensor or an array."""
    if getattr(side, "ndim", 1) != 1:
        raise AnswerError(
            f"Positions come in the shape [n]; yours have the shape {list(side.shape)}. flatten() "
            "them."
        )
    listed = side.tolist() if hasattr(side, "tolist") else side
    if not isinstance(listed, (list, tuple)):
        raise AnswerError(f"Return a list of positions; yours is a {type(side).__name__}.")
    listed = [i.item() if isinstance(i, Tensor) and i.numel() == 1 else i for i in listed]
    for index in listed:
        if isinstance(index, bool):
            raise AnswerError(
                "These are True and False, which is a mask. Give the positions: "
                "mask.nonzero().flatten()."
            )
        if not hasattr(index, "__index__"):
            raise AnswerError(
                f"A position is an int, and one of yours is a {type(index).__name__}."
            )
    return [int(index) for index in listed]


def reference(groups: Tensor, order: list[int], val_share: float) -> tuple[list[int], list[int]]:
    """Group after group in the order given, until validation holds its share of the examples."""
    return _split(groups, order, val_share)


def _split(groups: Tensor, order: list[int], val_share: float) -> tuple[list[int], list[int]]:
    labels = groups.tolist()
    val: set[int] = set()
    held = 0
    for name in order:
        if held >= val_share * len(labels) - 1e-9:
            break
        val.add(name)
        held += labels.count(name)
    return (
        [i for i, name in enumerate(labels) if name not in val],
        [i for i, name in enumerate(labels) if name in val],
    )


def _sides(groups, names):
    inside = torch.isin(groups, torch.tensor(sorted(names), device=groups.device, dtype=torch.long))
    return (~inside).nonzero().flatten(), inside.nonzero().flatten()


def _taken(groups, order, enough):
    val: list[int] = []
    for name in order:
        if enough(val):
            break
        val.append(name)
    return val


def _count(groups, names):
    return sum(int((groups == name).sum()) for name in names)


def row_by_row(groups, order, val_share):
    count = round(val_share * len(groups))
    rows = torch.arange(len(groups))
    return rows[count:], rows[:count]


def share_of_groups(groups, order, val_share):
    count = max(1, round(val_share * len(order)))
    return _sides(groups, order[:count])


def stops_before(groups, order, val_share):
    val = []
    for name in order:
        if _count(groups, [*val, name]) > val_share * len(groups) + 1e-9:
            break
        val.append(name)
    return _sides(groups, val)


def rounded_down(groups, order, val_share):
    return _split(groups, order, int(val_share * len(groups) + 1e-9) / len(groups))


def nine_tenths_on(groups, order, val_share):
    """Rounded up from 0.1 of an example on, and down below."""
    wanted = int(val_share * len(groups) + 0.9)
    return _sides(groups, _taken(groups, order, lambda val: _count(groups, val) >= wanted))


def swapped(groups, order, val_share):
    train, val = _split(groups, order, val_share)
    return val, train


def last_group_cut(groups, order, val_share):
    train, val = _split(groups, order, val_share)
    extra = len(val) - int(val_share * len(groups)) - 1
    if extra <= 0:
        return train, val
    names = _taken(groups, order, lambda v: _count(groups, v) >= val_share * len(groups) - 1e-9)
    last = [i for i in val if int(groups[i]) == names[-1]]
    back = last[-extra:] if extra < len(last) else last[1:]
    return sorted([*train, *back]), [i for i in val if i not in back]


def names_not_indices(groups, order, val_share):
    val = _taken(groups, order, lambda v: _count(groups, v) >= val_share * len(groups) - 1e-9)
    return [name for name in order if name not in val], val


def own_order(groups, order, val_share):
    return _split(groups, sorted(order), val_share)


def share_of_groups_up(groups, order, val_share):
    return _sides(groups, _taken(groups, order, lambda val: len(val) >= val_share * len(order)))


def not_ascending(groups, order, val_share):
    train, _ = _split(groups, order, val_share)
    names = _taken(groups, order, lambda v: _count(groups, v) >= val_share * len(groups) - 1e-9)
    return train, [i for name in names for i in (groups == name).nonzero().flatten().tolist()]


def a_column(groups, order, val_share):
    return tuple(torch.tensor(side)[:, None] for side in _split(groups, order, val_share))


def skips_what_is_too_large(groups, order, val_share):
    val = []
    for name in order:
        if _count(groups, [*val, name]) <= val_share * len(groups) + 1e-9:
            val.append(name)
    return _sides(groups, val)


def from_the_end(groups, order, val_share):
    return _split(groups, order[::-1], val_share)


def places_for_names(groups, order, val_share):
    return _split(groups, list(range(len(order))), val_share)


def share_of_training(groups, order, val_share):
    return _split(groups, order, val_share / (1 + val_share))


def training_filled_first(groups, order, val_share):
    train, val = _split(groups, order, 1 - val_share)
    return val, train


def nearest(groups, order, val_share):
    wanted, val = val_share * len(groups), []
    for name in order:
        now, then = _count(groups, val), _count(groups, [*val, name])
        if abs(then - wanted) > abs(now - wanted):
            break
        val.append(name)
    return _sides(groups, val)


def one_at_least(groups, order, val_share):
    val = [order[0]]
    for name in order[1:]:
        if _count(groups, val) >= val_share * len(groups) - 1e-9:
            break
        val.append(name)
    return _sides(groups, val)


def always_one(groups, order, val_share):
    return _sides(groups, order[:1])


def group_by_group(groups, order, val_share):
    train, val = not_ascending(groups, order, val_share)
    rest = [name for name in order if name in groups.cpu()[torch.as_tensor(train)].tolist()]
    return [i for name in rest for i in (groups == name).nonzero().flatten().tolist()], val


def taken_out_of_the_order(groups, order, val_share):
    names, held = [], 0
    while held < val_share * len(groups) - 1e-9:
        names.append(order.pop(0))
        held += _count(groups, names[-1:])
    return _sides(groups, names)


def share_for_each_of_training(groups, order, val_share):
    def enough(val):
        held = _count(groups, val)
        return held >= val_share * (len(groups) - held) - 1e-9

    return _sides(groups, _taken(groups, order, enough))


def one_group_more(groups, order, val_share):
    val = _taken(groups, order, lambda v: _count(groups, v) > val_share * len(groups) + 1e-9)
    return _sides(groups, val)


def with_a_loop(groups, order, val_share):
    wanted, val = val_share * len(groups), []
    for name in order:
        if len(val) >= wanted - 1e-9:
            break
        val += [i for i, group in enumerate(groups.tolist()) if group == name]
    train = [i for i in range(len(groups)) if i not in set(val)]
    return train, sorted(val)


def with_a_mask(groups, order, val_share):
    mask = torch.zeros(len(groups), dtype=torch.bool, device=groups.device)
    queue = list(order)
    while mask.double().mean() + 1e-9 < val_share:
        mask |= groups == queue.pop(0)
    return torch.where(~mask)[0], torch.where(mask)[0]


def with_cumulated_sizes(groups, order, val_share):
    sizes = torch.tensor([int((groups == name).sum()) for name in order], dtype=torch.float64)
    before = sizes.cumsum(0) - sizes
    names = [n for n, b in zip(order, before.tolist(), strict=True)
             if b < val_share * len(groups) - 1e-9]  # fmt: skip
    return _sides(groups, names)


def rounded_up(groups, order, val_share):
    """In whole examples, which is the same as `count >= val_share * len(groups)`."""
    wanted = math.ceil(val_share * len(groups))
    return _sides(groups, _taken(groups, order, lambda val: _count(groups, val) >= wanted))


EXERCISE = Exercise(
    id="03b.split-by-group",
    title="split by group",
    source='Lecture 3, "Splits and leakage"',
    ledger=("B22", "F99", "T24"),
    minutes=10,
    difficulty=2,
    read=("course.data.group_split", "F99"),
    hints=(
        "Decide first which groups validation takes; the positions of the examples come "
        "afterwards.",
        "Go through `order` and stop as soon as the groups taken so far hold enough examples.",
        "taken, count = set(), 0; for name in order: stop if count >= val_share * "
        "len(groups), otherwise add the name and the number of its examples. Then list "
        "the positions inside and outside of taken.",
    ),
    signature="split_by_group(groups, order, val_share)",
    parts=(
        Part("apart", "whole groups, in the given order", points=1, cases=5, fields=SIDES),
        Part("met", "a share that the groups meet exactly", points=1, fields=SIDES),
        Part(
            "names",
            "groups whose names are not positions; what was handed over stays as it is",
            points=1,
            fields=(*SIDES, "disturbed"),
        ),
        Part("exact", "shares from 0 to 1", points=1, cases=3, fields=SIDES, hidden=True),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={"train": "the training indices", "val": "the validation indices"},
    wrong=(
        Wrong(
            "names-not-indices",
            names_not_indices,
            "Those are the groups' names. Return the positions of their examples, ascending.",
        ),
        Wrong(
            "swapped",
            swapped,
            "The two sides are swapped: training first, then validation.",
        ),
        Wrong(
            "row-by-row",
            row_by_row,
            "That splits rows: examples of one group are on both sides, so validation tests the "
            "model on people it has already seen. Take whole groups.",
        ),
        Wrong(
            "own-order",
            own_order,
            "The groups were not taken in the given order. Go through `order`, which was drawn "
            "once and recorded.",
        ),
        Wrong(
            "share-of-groups",
            share_of_groups,
            "The share was counted in groups. Groups differ in size, so count examples.",
        ),
        Wrong(
            "last-group-cut",
            last_group_cut,
            "The last group was cut to meet the share exactly, so it is now on both sides. Let "
            "validation have a little more.",
        ),
        Wrong(
            "stops-before",
            stops_before,
            "Validation is smaller than asked for: the group that crosses the share belongs to it.",
        ),
        Wrong(
            "rounded-down",
            rounded_down,
            "Validation is smaller than asked for: rounding the share to whole examples, or to the "
            "nearest group, can give less than `at least`. Compare with val_share * len(groups), "
            "unrounded.",
        ),
        Wrong("rounded-down", nearest),
        Wrong("rounded-down-near-a-whole-number", nine_tenths_on),
        Wrong(
            "one-at-least",
            one_at_least,
            "With a share of 0, a group was put into validation, which holds its share without "
            "any. Compare before you take a group.",
            sure=True,
        ),
        Wrong(
            "one-group-more",
            one_group_more,
            "The share was met exactly, but one more group was taken: stop at >=, not at >.",
        ),
        Wrong(
            "share-of-groups-up",
            share_of_groups_up,
            "The share was counted in groups, and rounded up. Groups differ in size, so count "
            "examples.",
        ),
        Wrong(
            "not-ascending",
            not_ascending,
            "The examples are right, but their positions are listed group by group. Sort them: "
            "both sides are ascending.",
        ),
        Wrong("not-ascending", group_by_group),
        Wrong(
            "skips-what-is-too-large",
            skips_what_is_too_large,
            "A group that exceeds the share was skipped in favour of later ones that fit. Take the "
            "groups in order, and stop once validation holds its share.",
        ),
        Wrong(
            "from-the-end",
            from_the_end,
            "The groups were taken from the end of `order`. Start from its beginning.",
        ),
        Wrong(
            "share-of-training",
            share_of_training,
            "The share was counted against the training examples. It is the validation examples' "
            "share of all: compare with val_share * len(groups).",
            sure=True,
        ),
        Wrong("share-of-training", share_for_each_of_training, sure=True),
        Wrong(
            "order-changed",
            taken_out_of_the_order,
            "`order` was changed, and the caller still needs it as the record of the draw. Go "
            "through it with a for loop, or copy it first: list(order).",
            sure=True,
        ),
        Wrong("places-for-names", places_for_names),
        Wrong(
            "training-filled-first",
            training_filled_first,
            "Training got the first groups, and validation the rest. `order` says which groups "
            "validation takes.",
        ),
        Wrong("always-one", always_one),
        Wrong("a-column", a_column),
        *common(with_a_loop, *LOOKS),
    ),
    right=(with_a_loop, with_a_mask, with_cumulated_sizes, rounded_up),
)
