"""03e.split-audit: a class that knows training and finds what a validation side shares with it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from autograde.bank.harness import Watch
from autograde.bank.split_by_group import as_positions
from autograde.exercise import Answer, AnswerError, Case, Draw, Exercise, Part, Wrong, kept

METHODS = ("copies", "shared", "early", "clean")
SIDES = ("training", "the first validation side", "the second validation side")
NEAR = 1.0
"""Distance below which somebody may call two rows of unit spread the same."""
MANY = 25
"""Rows of one side, at most, between which torch.cdist subtracts; with more, copies are apart."""


def draw(source: Draw, part: str) -> Case:
    """A training side, and two validation sides with every fault and with its look-alikes.

    Rows that are nearly copies (one column differs, by much or in its last digits, the columns
    change places, the values come from several rows) are none, nor is a new row that validation
    has twice. A copy may hold -0.0 for 0.0. Groups are names of which one begins another. The last
    entry of the training times is none of the two latest, none of the two earliest, and
    validation has times before all of training and between its two earliest and that entry.
    In `copies` there are so many training rows that torch.cdist multiplies matrices,
    and rounds.
    """
    width, num = source.integer(3, 4), source.integer(5, 7)
    if part == "copies" and source.slack is None:
        num += MANY
    inputs = _training(source, num, width)
    names = [f"patient-{n}" for n in source.shuffled(range(1, 9))]
    groups = [source.choice(names[:3]) for _ in range(num)]
    middle = source.integer(12, num + 7)
    times = source.shuffled([time for time in range(10, 10 + num) if time != middle])
    times = torch.tensor([*times, middle])
    if source.index == 1:
        inputs = inputs.double()
    sides = [_validation(source, inputs, groups, times, names, early) for early in (3, 11)]
    shift = (1_700_000_000, -100)[source.index % 2]  # seconds since 1970, and all below 0
    return {
        "train": [inputs, groups, times + shift],
        "sides": [[rows, given, moments + shift] for rows, given, moments in sides],
        "dtype": "float64" if source.index == 1 else "float32",
    }


def _training(source: Draw, num: int, width: int) -> Tensor:
    """Rows of which a mixed one is near none, so that an equal column tells from nearness."""
    while True:
        rows = source.normal(num, width) + torch.arange(width) * 3  # a column's values are its own
        rows[0, 0] = 0.0
        rows[-1] = rows[2]
        if torch.cdist(_mixed(rows)[None], rows).min() > NEAR:
            return rows


def _mixed(rows: Tensor) -> Tensor:
    """Each value stands in its column, in another training row."""
    return torch.stack([rows[j % len(rows), j] for j in range(rows.shape[1])])


def _validation(
    source: Draw, inputs: Tensor, groups: list[str], times: Tensor, names: list[str], early: int
) -> list:
    """Ten rows: copies or look-alikes, known groups or new ones, early or late, all mixed.

    A copy, a row near one and a new one have no other fault; the others are known by their group
    or by their time.
    """
    known, fresh = sorted(set(groups)), [n for n in names if n not in groups]
    fresh += [f"{known[0]}0", known[-1][:1], known[0].upper()]  # look alike
    last, new = int(times.max()), source.normal(inputs.shape[1]) + 30
    faults = [(known[0], last + 1), (known[-1], last - 1), (known[0], int(times[-1])),
              (fresh[0], early), (fresh[0], last)]  # fmt: skip
    others = zip(["zero", "close", "turned", "mixed", "new"], source.shuffled(faults), strict=True)
    later = zip(
        source.shuffled(fresh[-5:]), source.shuffled(range(last + 2, last + 7)), strict=True
    )
    alone = zip(["copy", "copy", "near", "new", "new"], later, strict=True)
    rows, given, moments = [], [], []
    for at, (kind, (group, moment)) in enumerate(source.shuffled([*others, *alone])):
        rows.append(new if kind == "new" else _row_like(source, kind, inputs, at))
        given.append(group)
        moments.append(moment)
    return [torch.stack(rows), given, torch.tensor(moments)]


def _row_like(source: Draw, kind: str, inputs: Tensor, at: int) -> Tensor:
    """A copy of a training row at another place than `at`, or a row that looks like one."""
    row = inputs[0 if kind == "zero" else 1 + (at + source.integer(0, 2)) % (len(inputs) - 1)]
    row = row.clone()
    if kind == "copy":  # of a row that training has twice
        row = inputs[2].clone()
    elif kind == "zero":
        row[0] = -0.0
    elif kind == "near":
        row[source.integer(0, len(row) - 1)] += 0.5
    elif kind == "close":
        row[1] *= 1 + (2**-20 if row.dtype == torch.float32 else 2**-30)
    elif kind == "turned":
        row = row.roll(1)
    elif kind == "mixed":
        row = _mixed(inputs)
    return row


def run(function, case: Case, device: torch.device) -> Answer:
    """What the four methods say of two validation sides, and of the first once more."""

    def on_device(side: list) -> list:
        inputs, groups, times = side
        return [inputs.to(device, getattr(torch, case["dtype"])), list(groups), times.to(device)]

    train, *sides = map(on_device, [case["train"], *case["sides"]])
    handed = {
        f"the argument {name} of {of}": part
        for of, side in zip(SIDES, (train, *sides), strict=True)
        for name, part in zip(("inputs", "groups", "times"), side, strict=True)
    }
    watch = Watch(data=handed)
    audit = function(*train)
    for name in METHODS:
        if not callable(getattr(audit, name, None)):
            raise AnswerError(f"SplitAudit(inputs, groups, times) has no method {name}().")
    said = [_said(audit, side) for side in (*sides, sides[0])]
    return {
        **{name: _fit([one[name] for one in said[:2]]) for name in METHODS},
        "again": _fit(list(said[2].values())),
        "disturbed": watch.changed(),
    }


def _fit(sides: list) -> list | dict:
    """The positions by side, or why those of one side cannot be read."""
    return next((side for side in sides if isinstance(side, dict)), sides)


def _said(audit, side: list) -> dict:
    inputs, groups, times = side
    calls = {
        "copies": lambda: audit.copies(inputs),
        "shared": lambda: audit.shared(groups),
        "early": lambda: audit.early(times),
        "clean": lambda: audit.clean(inputs, groups, times),
    }
    return {name: kept(as_positions, call()) for name, call in calls.items()}


class Rows:
    """Rows as tuples, groups as a set, the last time."""

    def __init__(self, inputs: Tensor, groups: Sequence[str], times: Tensor) -> None:
        self.rows = set(map(tuple, inputs.tolist()))
        self.groups = set(groups)
        self.last = max(times.tolist())

    def copies(self, inputs):
        return [i for i, row in enumerate(inputs.tolist()) if tuple(row) in self.rows]

    def shared(self, groups):
        return [i for i, group in enumerate(groups) if group in self.groups]

    def early(self, times):
        return [i for i, time in enumerate(times.tolist()) if time <= self.last]

    def clean(self, inputs, groups, times):
        bad = {*self.copies(inputs), *self.shared(groups), *self.early(times)}
        return [i for i in range(len(inputs)) if i not in bad]


def reference(inputs: Tensor, groups: Sequence[str], times: Tensor) -> Rows:
    """By sets and a maximum."""
    return _Reference(inputs, groups, times)


class _Reference(Rows):
    """The right one, under a name that the bank's others do not share."""


class Kept(Rows):
    """Keeps the training side as it came."""

    def __init__(self, inputs, groups, times):
        self.inputs, self.names, self.times = inputs, list(groups), times

    def copies(self, inputs):
        return (inputs[:, None] == self.inputs[None]).all(2).any(1).nonzero().flatten()

    def shared(self, groups):
        return torch.tensor([i for i, name in enumerate(groups) if name in self.names]).long()

    def early(self, times):
        return torch.where(times <= self.times.max())[0]

    def clean(self, inputs, groups, times):
        good = torch.ones(len(inputs), dtype=torch.bool, device=inputs.device)
        for found in (self.copies(inputs), self.shared(groups), self.early(times)):
            good[torch.as_tensor(found, device=inputs.device).long()] = False
        return good.nonzero().flatten()


class Looped(Rows):
    """With loops, and clean() asked one example at a time."""

    def __init__(self, inputs, groups, times):
        self.train, self.known = [row.clone() for row in inputs], dict.fromkeys(groups)
        self.latest = sorted(times.tolist())[-1]

    def copies(self, inputs):
        found = []
        for i, row in enumerate(inputs):
            if any(torch.equal(row, seen) for seen in self.train):
                found.append(i)
        return tuple(found)

    def shared(self, groups):
        return [i for i in range(len(groups)) if groups[i] in self.known]

    def early(self, times):
        return [i for i in range(len(times)) if not times[i] > self.latest]

    def clean(self, inputs, groups, times):
        return [
            i for i in range(len(groups))
            if not (len(self.copies(inputs[i : i + 1])) or self.shared([groups[i]])
                    or self.early(times[i : i + 1]))
        ]  # fmt: skip


class AnyColumn(Kept):
    def copies(self, inputs):
        return (inputs[:, None] == self.inputs[None]).any(2).any(1).nonzero().flatten()


class AllOfTraining(Kept):
    """Each value stands somewhere in its column of training."""

    def copies(self, inputs):
        return (inputs[:, None] == self.inputs[None]).any(1).all(1).nonzero().flatten()


class NumbersKnown(Kept):
    """Each value stands anywhere in training."""

    def copies(self, inputs):
        return torch.isin(inputs, self.inputs).all(1).nonzero().flatten()


class OneNumberKnown(Kept):
    def copies(self, inputs):
        return torch.isin(inputs, self.inputs).any(1).nonzero().flatten()


class NearRows(Kept):
    def copies(self, inputs):
        return (torch.cdist(inputs, self.inputs) < NEAR).any(1).nonzero().flatten()


class RowsAtNoDistance(Kept):
    def copies(self, inputs):
        return (torch.cdist(inputs, self.inputs) == 0).any(1).nonzero().flatten()


class CloseRows(Kept):
    def copies(self, inputs):
        equal = torch.isclose(inputs[:, None], self.inputs[None])
        return equal.all(2).any(1).nonzero().flatten()


class Bytes(Kept):
    def copies(self, inputs):
        known = {row.cpu().numpy().tobytes() for row in self.inputs}
        return [i for i, row in enumerate(inputs) if row.cpu().numpy().tobytes() in known]


class CopiesWithin(Rows):
    def copies(self, inputs):
        rows = list(map(tuple, inputs.tolist()))
        return [i for i, row in enumerate(rows) if row in self.rows or row in rows[:i]]


class TrainingPositions(Kept):
    def copies(self, inputs):
        return (self.inputs[:, None] == inputs[None]).all(2).any(1).nonzero().flatten()


class SortedValues(Kept):
    def copies(self, inputs):
        mine, theirs = self.inputs.sort(1).values, inputs.sort(1).values
        return (theirs[:, None] == mine[None]).all(2).any(1).nonzero().flatten()


class SamePlace(Kept):
    def copies(self, inputs):
        num = min(len(inputs), len(self.inputs))
        return (inputs[:num] == self.inputs[:num]).all(1).nonzero().flatten()


class UsesUp(Rows):
    """A training row is found once."""

    def copies(self, inputs):
        found = super().copies(inputs)
        self.rows -= set(map(tuple, inputs.tolist()))
        return found


class InFloat32(Kept):
    def copies(self, inputs):
        equal = inputs.float()[:, None] == self.inputs.float()[None]
        return equal.all(2).any(1).nonzero().flatten()


class FirstOfTwins(Rows):
    def copies(self, inputs):
        rows = list(map(tuple, inputs.tolist()))
        return [i for i in super().copies(inputs) if rows[i] not in rows[:i]]


class AnyCase(Rows):
    def shared(self, groups):
        known = {name.lower() for name in self.groups}
        return [i for i, name in enumerate(groups) if name.lower() in known]


class FromZero(Rows):
    def early(self, times):
        return [i for i, time in enumerate(times.tolist()) if time <= max(0, self.last)]


class TimesInFloat32(Rows):
    def early(self, times):
        return torch.where(times.float() <= torch.tensor(self.last).float())[0].tolist()


class KnownTimes(Kept):
    def early(self, times):
        return torch.where(torch.isin(times, self.times))[0]


class CleanOnce(Rows):
    def clean(self, inputs, groups, times):
        rows = list(map(tuple, inputs.tolist()))
        return [i for i in super().clean(inputs, groups, times) if rows[i] not in rows[:i]]


class RoundedRows(Kept):
    def copies(self, inputs):
        rounded = self.inputs.round()
        return (inputs.round()[:, None] == rounded[None]).all(2).any(1).nonzero().flatten()


class FirstOfItsGroup(Kept):
    def shared(self, groups):
        return [groups.index(name) for name in groups if name in self.names]


class OncePerGroup(Kept):
    def shared(self, groups):
        return sorted({groups.index(name) for name in groups if name in self.names})


class Substrings(Kept):
    def shared(self, groups):
        return [i for i, name in enumerate(groups) if any(name in seen for seen in self.names)]


class Beginnings(Kept):
    def shared(self, groups):
        return [i for i, n in enumerate(groups) if any(n.startswith(seen) for seen in self.names)]


class GroupsByPlace(Kept):
    def shared(self, groups):
        pairs = zip(groups, self.names, strict=False)
        return [i for i, (name, seen) in enumerate(pairs) if name == seen]


class NamesReturned(Kept):
    def shared(self, groups):
        return sorted(set(groups) & set(self.names))


class NamesInSets(Rows):
    """The same, where clean() takes it without an error."""

    def shared(self, groups):
        return sorted(set(groups) & self.groups)


class ForEachEqual(Rows):
    def __init__(self, inputs, groups, times):
        super().__init__(inputs, groups, times)
        self.all = list(map(tuple, inputs.tolist()))

    def copies(self, inputs):
        return [
            i for i, row in enumerate(inputs.tolist()) for _ in range(self.all.count(tuple(row)))
        ]


class NewGroups(Kept):
    def shared(self, groups):
        return [i for i, name in enumerate(groups) if name not in self.names]


class StrictlyEarlier(Kept):
    def early(self, times):
        return torch.where(times < self.times.max())[0]


class LastEntry(Kept):
    def early(self, times):
        return torch.where(times <= self.times[-1])[0]


class BeforeLastEntry(Kept):
    def early(self, times):
        return torch.where(times < self.times[-1])[0]


class FirstTime(Kept):
    def early(self, times):
        return torch.where(times <= self.times.min())[0]


class AnEqualTime(Kept):
    def early(self, times):
        return torch.where(torch.isin(times, self.times))[0]


class LateOnes(Kept):
    def early(self, times):
        return torch.where(times > self.times.max())[0]


class TheFaulty(Rows):
    def clean(self, inputs, groups, times):
        good = super().clean(inputs, groups, times)
        return [i for i in range(len(inputs)) if i not in good]


class AllThreeFaults(Rows):
    def clean(self, inputs, groups, times):
        found = self.copies(inputs), self.shared(groups), self.early(times)
        return [i for i in range(len(inputs)) if not all(i in part for part in found)]


class CopiesAlone(Rows):
    def clean(self, inputs, groups, times):
        return [i for i in range(len(inputs)) if i not in self.copies(inputs)]


class CopiesForgotten(Rows):
    def clean(self, inputs, groups, times):
        bad = {*self.shared(groups), *self.early(times)}
        return [i for i in range(len(inputs)) if i not in bad]


class TimesForgotten(Rows):
    def clean(self, inputs, groups, times):
        bad = {*self.copies(inputs), *self.shared(groups)}
        return [i for i in range(len(inputs)) if i not in bad]


class Learns(Rows):
    """Adds every validation side that it was asked about to what it knows."""

    def copies(self, inputs):
        found = super().copies(inputs)
        self.rows |= set(map(tuple, inputs.tolist()))
        return found


class LearnsGroups(Rows):
    def shared(self, groups):
        found = super().shared(groups)
        self.groups |= set(groups)
        return found


class RemembersFaults(Rows):
    """Collects the faults of all sides that it was asked about."""

    def __init__(self, inputs, groups, times):
        super().__init__(inputs, groups, times)
        self.bad = set()

    def clean(self, inputs, groups, times):
        good = super().clean(inputs, groups, times)
        self.bad |= set(range(len(inputs))) - set(good)
        return [i for i in good if i not in self.bad]


class Masks(Rows):
    def clean(self, inputs, groups, times):
        good = super().clean(inputs, groups, times)
        return [i in good for i in range(len(inputs))]


known = partial(Wrong, sure=True)
"""A known mistake: whole lists of positions, of two sides, are equal by no accident, even if they
begin with 0 or 1."""

EXERCISE = Exercise(
    id="03e.split-audit",
    title="a class that finds what two sides share",
    source='Lecture 3, "Before trusting validation"',
    kind="class",
    ledger=("T24", "F99"),
    minutes=15,
    difficulty=2,
    read=("course.data.check_split", "F99"),
    hints=(
        "What do you have to keep from the training side to check any validation side later?",
        "A row can go into a set if it is a tuple, and so can a group. For the times one number is "
        "enough.",
        "copies: tuple(row) in the set of training's; shared: group in the set; early: time <= the "
        "latest; clean: all positions that are in none of the three lists.",
    ),
    signature="SplitAudit(inputs, groups, times)",
    parts=(
        Part("copies", "rows that training also has", points=1, fields=("copies",)),
        Part("shared", "examples of groups that training has", points=1, fields=("shared",)),
        Part("early", "examples no later than training's latest time", points=1, fields=("early",)),
        Part("clean", "examples without a fault, and the arguments unchanged", points=1,
             fields=("disturbed", "clean")),
        Part("again", "the first side again, after another side was checked", points=1,
             hidden=True, fields=("again", "clean")),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "copies": "copies(), by side, at",
        "shared": "shared(), by side, at",
        "early": "early(), by side, at",
        "clean": "clean(), by side, at",
        "again": "first side checked again: copies, shared, early, clean at",
    },
    wrong=(
        known("any-column", AnyColumn,
              "A row was called a copy because one of its values occurs in a training row. All of "
              "its columns have to agree with the same training row."),
        known(
            "values-of-several-rows",
            AllOfTraining,
            "A row was called a copy although its values come from different training rows. All of "
            "its columns have to agree with one and the same row.",
        ),
        known("any-column", OneNumberKnown),
        known("numbers-known", NumbersKnown,
              "A row was called a copy because each of its values stands somewhere in training, "
              "even in another row or column. torch.isin looks at each number by itself: compare "
              "whole rows, column by column."),
        known("near-rows", NearRows,
              "Rows that are merely near a training row were called copies. A copy agrees in every "
              "column."),
        known("rows-at-no-distance", RowsAtNoDistance),
        known("close-rows", CloseRows,
              "A row that differs from a training row in the last digits was called a copy. Copies "
              "are exactly equal: compare with ==, not with a tolerance."),
        known("bytes", Bytes,
              "A row with -0.0 where the training row has 0.0 was left out. The two are equal as "
              "numbers but differ as bytes or text: compare numbers."),
        known("copies-within", CopiesWithin,
              "The second of two equal validation rows was called a copy, although training has "
              "neither. Compare with training only."),
        known("training-positions", TrainingPositions,
              "copies() returned the positions of training rows that validation also has. Return "
              "the positions of the validation rows."),
        known("once-per-group", OncePerGroup,
              "shared() returned one example of each shared group. Return every example of such a "
              "group."),
        known("sorted-values", SortedValues,
              "A row with the same values in different columns was called a copy. Compare column "
              "by column."),
        known("uses-up", UsesUp,
              "A training row was found the first time but not the second. Do not change what is "
              "stored about training."),
        known("in-float32", InFloat32,
              "Two float64 rows that differ beyond float32's precision were called equal. Compare "
              "them in their own dtype."),
        known("first-of-twins", FirstOfTwins,
              "A training row that occurs twice in validation was returned once. Return both "
              "positions."),
        known("any-case", AnyCase),
        known("from-zero", FromZero,
              "Times below 0 that are later than training's latest were called early. Start the "
              "maximum from a training time, not from 0."),
        known("times-in-float32", TimesInFloat32,
              "Times that differ by 1 were treated as equal: float32 is exact for whole numbers "
              "only up to 16,777,216. Compare ints."),
        known("known-times", KnownTimes),
        known("clean-once", CleanOnce),
        known("same-place", SamePlace,
              "A row was compared only with the training row at the same position. A copy may be "
              "anywhere in training."),
        known("substrings", Substrings,
              "A name that is part of another name was taken for it: `in` between two strings "
              "looks for a substring. Check whether the name is in a list or a set of names."),
        known("beginnings", Beginnings),
        known("groups-by-place", GroupsByPlace,
              "A group was compared only with the training group at the same position."),
        known("names-returned", NamesReturned),
        known("names-of-groups", NamesInSets,
              "shared() returned names of groups. Return the positions of the validation examples "
              "that belong to these groups."),
        known("for-each-equal", ForEachEqual,
              "copies() returned a position twice, because two training rows equal that row. "
              "Return each position once."),
        known("rounded-rows", RoundedRows),
        known("first-of-its-group", FirstOfItsGroup),
        known("new-groups", NewGroups,
              "Those are the examples whose group does not occur in training. Return those whose "
              "group does."),
        known("strictly-earlier", StrictlyEarlier,
              "An example at exactly training's latest time was left out. No later means <=."),
        known("last-entry", LastEntry,
              "The last entry of the training times was used as the latest. They come in any "
              "order: use the largest."),
        known("last-entry", BeforeLastEntry),
        known("first-time", FirstTime,
              "Times were compared with training's earliest. Validation has to be later than all "
              "of training: compare with the latest time."),
        known("an-equal-time", AnEqualTime),
        known("late-ones", LateOnes,
              "Those are the examples later than training. Return the others."),
        known("the-faulty", TheFaulty,
              "clean() returned the positions that have a fault. Return those that have none."),
        known("all-three-faults", AllThreeFaults,
              "clean() left out only examples with all three faults. One fault is enough."),
        known("copies-alone", CopiesAlone),
        known("copies-forgotten", CopiesForgotten,
              "clean() kept a row that is a copy and has no other fault, although copies() finds "
              "it. A set of tensors does not find an equal number: use .tolist() first."),
        known("times-forgotten", TimesForgotten,
              "clean() kept an example that is early and has no other fault. Leave out examples "
              "with any of the three."),
        known("learns", Learns,
              "Rows of a validation side were stored as if they were training rows: the second "
              "answer about the same side differs from the first."),
        known("learns-groups", LearnsGroups,
              "Groups of a validation side were stored as if they were training groups: the second "
              "answer about the same side differs from the first."),
        known("remembers-faults", RemembersFaults,
              "clean() left out a position that had a fault in another side, checked before. Find "
              "the faults of each side separately.", sure=True),
        known("masks", Masks),
    ),
    right=(Rows, Kept, Looped),
)  # fmt: skip
