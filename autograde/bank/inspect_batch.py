"""03b.inspect-batch: hold one batch against the contract before any model sees it."""

from __future__ import annotations

import torch
from torch import Tensor

from autograde.exercise import Answer, AnswerError, Case, Draw, Exercise, Part, Wrong
from course.data.contract import check_batch

CLASSES = 4
FAULTS = ("sizes", "dtype", "non-finite", "labels")
LARGE = 30.0


def draw(source: Draw, part: str) -> Case:
    """A sound batch first, then ones with the part's fault somewhere, alone or beside others."""
    size = source.integer(5, 8)
    inputs = source.normal(size, 3)
    targets = source.integers(CLASSES - 2, size)  # few, so that counting them does not tell
    targets[0], targets[1] = 0, CLASSES - 1
    row, column = source.integer(1, size - 1), source.integer(0, 2)
    if source.index == 1:
        if part == "numbers":
            inputs[row, column] = float("nan")
        elif part == "infinite":
            inputs[row, column] = source.choice([float("inf"), float("-inf")])
        elif part == "labels":
            targets[row] = CLASSES
        elif part == "negative":
            targets[row] = -1
        elif part == "form":
            targets = targets.float()
    if source.index == 2:
        if part == "form":
            targets = targets[:-1]
        elif part == "numbers":
            targets[row], inputs[row, column] = CLASSES + 1, float("nan")
    if source.index == 3:
        targets = targets.int()
    if source.index >= 4:  # three faults, then all four
        targets[1], inputs[row, column] = CLASSES, float("nan")
        targets = targets.float() if source.index == 4 else targets[:-1].int()
    return {"inputs": inputs, "targets": targets}


def run(function, case: Case, device: torch.device) -> Answer:
    """The faults named, sorted."""
    inputs, targets = case["inputs"].to(device), case["targets"].to(device)
    returned = function(inputs, targets, CLASSES)
    if isinstance(returned, str) or not hasattr(returned, "__iter__"):
        raise AnswerError(
            f"Return a list of the faults' names; what came back was a {type(returned).__name__}."
        )
    named = [str(name) for name in returned]
    if unknown := set(named) - set(FAULTS):
        raise AnswerError(f"{sorted(unknown)[0]!r} is none of the four names: {', '.join(FAULTS)}.")
    return {"faults": sorted(set(named))}


NAMES = {
    "wrong-label-dtype": "dtype", "label-out-of-range": "labels",
}  # fmt: skip


def reference(inputs: Tensor, targets: Tensor, num_classes: int) -> list[str]:
    """The course's contract, in this exercise's four words.

    It stops at sizes that differ, so the targets are looked at beside inputs of their number.
    """
    as_many = inputs.new_zeros(len(targets), *inputs.shape[1:])
    report = check_batch((as_many, targets), num_classes=num_classes)
    found = {NAMES[id] for id in report.ids if id in NAMES}
    if len(inputs) != len(targets):
        found.add("sizes")
    if not torch.isfinite(inputs).all():
        found.add("non-finite")
    return sorted(found)


def _named(sizes: bool, dtype: bool, nonfinite: bool, labels: bool) -> list[str]:
    return [n for n, found in zip(FAULTS, (sizes, dtype, nonfinite, labels), strict=True) if found]


def nan_only(inputs, targets, num_classes):
    return _named(
        len(inputs) != len(targets),
        targets.dtype != torch.long,
        bool(inputs.isnan().any()),
        bool(((targets < 0) | (targets >= num_classes)).any()),
    )


def one_too_many(inputs, targets, num_classes):
    return _named(
        len(inputs) != len(targets),
        targets.dtype != torch.long,
        not inputs.isfinite().all(),
        bool(((targets < 0) | (targets > num_classes)).any()),
    )


def no_lower_end(inputs, targets, num_classes):
    return _named(
        len(inputs) != len(targets),
        targets.dtype != torch.long,
        not inputs.isfinite().all(),
        bool((targets >= num_classes).any()),
    )


def first_row_only(inputs, targets, num_classes):
    return _named(
        len(inputs) != len(targets),
        targets.dtype != torch.long,
        not inputs[0].isfinite().all(),
        not 0 <= targets[0] < num_classes,
    )


def first_fault_only(inputs, targets, num_classes):
    return reference_by_hand(inputs, targets, num_classes)[:1]


def no_labels(inputs, targets, num_classes):
    return [name for name in reference_by_hand(inputs, targets, num_classes) if name != "labels"]


def no_dtype(inputs, targets, num_classes):
    return [name for name in reference_by_hand(inputs, targets, num_classes) if name != "dtype"]


def floats_only(inputs, targets, num_classes):
    found = no_dtype(inputs, targets, num_classes)
    return [*found, "dtype"] if targets.is_floating_point() else found


def no_sizes(inputs, targets, num_classes):
    return [name for name in reference_by_hand(inputs, targets, num_classes) if name != "sizes"]


def always_sound(inputs, targets, num_classes):
    return []


def reference_by_hand(inputs, targets, num_classes):
    return _named(
        len(inputs) != len(targets),
        targets.dtype != torch.long,
        not inputs.isfinite().all(),
        bool(((targets < 0) | (targets >= num_classes)).any()),
    )


def with_a_set(inputs, targets, num_classes):
    found = set()
    if inputs.size(0) != targets.size(0):
        found.add("sizes")
    if targets.type() not in ("torch.LongTensor", "torch.cuda.LongTensor"):
        found.add("dtype")
    if (inputs - inputs).abs().sum() != 0:  # inf - inf and nan - nan are nan
        found.add("non-finite")
    if targets.min() < 0 or targets.max() > num_classes - 1:
        found.add("labels")
    return found


def row_by_row(inputs, targets, num_classes):
    found = []
    if inputs.shape[0] != targets.shape[0]:
        found.append("sizes")
    if targets.dtype is not torch.int64:
        found.append("dtype")
    if not all(torch.isfinite(value) for row in inputs for value in row):
        found.append("non-finite")
    if any(label not in range(num_classes) for label in targets.tolist()):
        found.append("labels")
    return tuple(found)


EXERCISE = Exercise(
    id="03b.inspect-batch",
    title="hold a batch against its contract",
    source='Lecture 1, "The batch contract"; ledger C20, T04, T05, B09',
    minutes=10,
    signature="inspect_batch(inputs, targets, num_classes)",
    parts=(
        Part("numbers", "values that are not finite", points=1, cases=3),
        Part("labels", "a label beyond the classes", points=1),
        Part("form", "sizes that differ, labels of another dtype", points=1, cases=6),
        Part("negative", "a label below zero", points=0.5),
        Part("infinite", "inf and -inf", points=0.5, hidden=True),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={"faults": "the faults of the batch"},
    by_hand=(check_batch,),
    wrong=(
        Wrong(
            "no-labels",
            no_labels,
            "A label beyond the classes was let through. Compare every label with both ends, 0 and "
            "num_classes - 1; how many different ones there are does not tell.",
        ),
        Wrong(
            "first-row-only",
            first_row_only,
            "Only the first example was looked at, and one bad value anywhere makes the loss nan. "
            "Ask about all of them: .all(), .any(), .max().",
        ),
        Wrong(
            "nan-only",
            nan_only,
            "isnan() does not see inf, which becomes nan one operation later. torch.isfinite() "
            "sees both.",
        ),
        Wrong(
            "one-too-many",
            one_too_many,
            "C classes have the indices 0 to C - 1: the label C itself is out of range.",
        ),
        Wrong(
            "no-lower-end",
            no_lower_end,
            "A label of -1 slipped through: Python counts it from the end, cross_entropy fails "
            "or, at -100, leaves it out without a word.",
        ),
        Wrong(
            "first-fault-only",
            first_fault_only,
            "Two faults at once, and only one was named. Collect them all before returning.",
        ),
        Wrong(
            "no-dtype",
            no_dtype,
            "Labels that are floats were let through. Class indices are torch.long.",
        ),
        Wrong(
            "floats-only",
            floats_only,
            "Labels of dtype int32 were let through: cross_entropy raises on them too. Compare "
            "targets.dtype with torch.long.",
        ),
        Wrong(
            "no-sizes",
            no_sizes,
            "Inputs and targets were not as many, and nothing was said. Compare len() of both.",
        ),
        Wrong(  # last: a single part that was called sound shows one of the above
            "always-sound",
            always_sound,
            "Every batch was called sound. Look at sizes, dtype, finiteness and labels, and "
            "name what you find.",
        ),
    ),
    right=(reference_by_hand, with_a_set, row_by_row),
)
