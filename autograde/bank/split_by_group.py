"""03b.split-by-group: whole groups into validation, so that nobody is on both sides."""

from __future__ import annotations

import torch
from torch import Tensor

from autograde.exercise import Answer, AnswerError, Case, Draw, Exercise, Part, Wrong


def draw(source: Draw, part: str) -> Case:
    """Groups whose examples lie scattered, and the order in which to take them.

    One group is large and comes first or second: it makes the share alone, while a share of the
    groups would be three of them. The fourth case tells who rounds the share down to examples.
    """
    num_groups = source.integer(6, 7)
    large = source.integer(1, num_groups - 1)
    sizes = [18 if i == large else source.integer(2, 3) for i in range(num_groups)]
    names = [7 * i + 3 if part == "names" else i for i in range(num_groups)]
    groups = torch.tensor([n for n, size in zip(names, sizes, strict=True) for _ in range(size)])
    groups = groups[torch.randperm(len(groups), generator=source.generator)]
    order = torch.randperm(num_groups, generator=source.generator).tolist()
    order.remove(large)
    order.insert(source.index % 2, large)
    share = source.uniform(0.43, 0.45)
    if source.index == 3:  # the first two groups are not quite enough
        share = (sizes[order[0]] + sizes[order[1]] + 0.4) / len(groups)
    if part == "exact":  # the first two groups make exactly the share asked for
        share = (sizes[order[0]] + sizes[order[1]]) / len(groups)
    return {"groups": groups, "order": [names[i] for i in order], "share": share}


def run(function, case: Case, device: torch.device) -> Answer:
    """The indices of both sides."""
    returned = function(case["groups"].to(device), list(case["order"]), case["share"])
    if not isinstance(returned, (tuple, list)) or len(returned) != 2:
        raise AnswerError(
            "Return two lists of indices, training and validation; what came back was a "
            f"{type(returned).__name__}."
        )
    sides = []
    for side in returned:
        side = side.tolist() if isinstance(side, Tensor) else list(side)
        try:
            sides.append([int(index) for index in side])
        except (TypeError, ValueError):
            raise AnswerError("The sides hold something other than indices.") from None
    return {"train": sides[0], "val": sides[1]}


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


EXERCISE = Exercise(
    id="03b.split-by-group",
    title="split by group",
    source='Lecture 3, "Splits and leakage"; ledger B24, T25',
    minutes=10,
    signature="split_by_group(groups, order, val_share)",
    parts=(
        Part("apart", "whole groups, the order given", points=2, cases=4),
        Part("names", "groups whose names are no positions", points=1),
        Part("exact", "a share that is met exactly", points=1, hidden=True),
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
            "That splits rows: examples of one group are on both sides, and validation asks about "
            "people the model has met. Take whole groups.",
        ),
        Wrong(
            "own-order",
            own_order,
            "The groups were taken in an order of their own. Go through `order`, which was drawn "
            "once and is written down.",
        ),
        Wrong(
            "share-of-groups",
            share_of_groups,
            "The share was counted in groups. Groups are not equally large: count examples.",
        ),
        Wrong(
            "last-group-cut",
            last_group_cut,
            "The last group was cut to hit the share exactly, so it is on both sides now. Let it "
            "be a little more.",
        ),
        Wrong(
            "stops-before",
            stops_before,
            "Validation is smaller than asked for: the group that crosses the share belongs to it.",
        ),
        Wrong(
            "rounded-down",
            rounded_down,
            "Validation is smaller than asked for: int() or round() cut the share down to whole "
            "examples. Compare with val_share * len(groups) as it is.",
        ),
        Wrong(
            "one-group-more",
            one_group_more,
            "The share was met exactly and one more group was taken: stop at >=, not at >.",
        ),
    ),
    right=(with_a_loop, with_a_mask, with_cumulated_sizes),
)
