"""03b.inspect-batch: check one batch against the contract before any model sees it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from autograde.bank.common_wrong import LOOKS, common
from autograde.bank.harness import Watch
from autograde.exercise import Answer, AnswerError, Case, Draw, Exercise, Part, Wrong, kept
from course.data.contract import check_batch

FAULTS = ("sizes", "dtype", "non-finite", "labels")
LEFT_OUT = -100
"""What `CrossEntropyLoss` leaves out unless told otherwise (`ignore_index`)."""
CASES = {
    "numbers": ("", "nan", "nan first", "nan all", "nan label", "large"),
    "labels": ("", "label", "far", "label last", "label twice", "beyond"),
    "form": (
        "images", "half", "float", "fewer", "int32", "more", "float label nan",
        "fewer int32 label nan", "fewer nan end", "twice as many",
    ),
    "negative": ("", "-1", "-3", "-100"),
    "infinite": ("inf", "-inf", "large", "inf -inf", "double"),
}  # fmt: skip
"""The faults of each case of a part: sound ones, one fault, several, values that are large only."""


def draw(source: Draw, part: str) -> Case:
    """A batch with the faults that the part's case lists, away from the first row."""
    faults = CASES[part][source.index].split()
    size, classes = source.integer(4, 8), (4, 12, 5)[source.index % 3]
    inputs = source.normal(size, source.integer(1, 3))
    targets = source.integers(classes - 2, size)  # few, so that counting them does not tell
    targets[0], targets[1] = 0, classes - 1
    row, column = source.integer(1, size - 1), source.integer(0, inputs.shape[1] - 1)
    if "first" in faults:
        row = 0
    if "end" in faults:
        row = size - 1
    for fault in faults:
        if fault in ("nan", "inf", "-inf"):
            inputs[row, column] = float(fault)
            row = 1 + row % (size - 1)
        elif fault == "large":
            inputs[row - 1 : row + 1, column] = 3e38  # finite, and their sum is not
        elif fault in ("label", "far", "-1", "-3", "-100"):
            wrong = {"label": classes, "far": classes + 7}
            targets[-1 if "last" in faults else row] = wrong.get(fault) or int(fault)
    if "all" in faults:
        inputs[:] = float("nan")
    if "twice" in faults:
        targets[1:3] = classes
    if "beyond" in faults:  # more labels than inputs, and the last is the one that is wrong
        targets = torch.cat([targets, torch.tensor([classes])])
    if "double" in faults:  # inf in float32
        inputs = inputs.double()
        inputs[row, column] = 1e300
    if "images" in faults:
        inputs = inputs[:, :, None, None].expand(-1, -1, 2, 3).clone()
    if "many" in faults:
        inputs = torch.cat([inputs, inputs])
    if "half" in faults:
        inputs = inputs.half()
    if "fewer" in faults:
        targets = targets[targets != 0]  # the first, so that a label that is out of range stays
    if "more" in faults:
        targets = torch.cat([targets, targets[:1]])
    if "float" in faults:
        targets = targets.float()
    if "int32" in faults:
        targets = targets.int()
    return {"inputs": inputs, "targets": targets, "classes": classes}


def run(function, case: Case, device: torch.device) -> Answer:
    """The faults named, sorted."""
    inputs, targets = case["inputs"].to(device), case["targets"].to(device)
    watch = Watch(data={"inputs": inputs, "targets": targets})
    returned = function(inputs, targets, case["classes"])
    return {"faults": kept(_named_faults, returned), "disturbed": watch.changed()}


def _named_faults(returned: object) -> list[str]:
    if isinstance(returned, str) or not isinstance(returned, (list, tuple, set, frozenset)):
        came = "None" if returned is None else f"a {type(returned).__name__}"
        raise AnswerError(f"Return a list of the faults' names; what came back was {came}.")
    for name in returned:
        if name not in FAULTS:
            raise AnswerError(f"{name!r} is not one of the four names: {', '.join(FAULTS)}.")
    if twice := [name for name in FAULTS if list(returned).count(name) > 1]:
        raise AnswerError(f"{twice[0]!r} came more than once: name each kind of fault once.")
    return sorted(returned)


NAMES = {
    "wrong-label-dtype": "dtype", "label-out-of-range": "labels",
}  # fmt: skip


def reference(inputs: Tensor, targets: Tensor, num_classes: int) -> list[str]:
    """The course's contract, in this exercise's four words.

    It stops at sizes that differ, so the targets are checked with as many inputs, and it lets
    through the label that a criterion leaves out, which is no index of a class.
    """
    as_many = inputs.new_zeros(len(targets), *inputs.shape[1:])
    report = check_batch((as_many, targets), num_classes=num_classes)
    found = {NAMES[id] for id in report.ids if id in NAMES}
    if len(inputs) != len(targets):
        found.add("sizes")
    if not torch.isfinite(inputs).all():
        found.add("non-finite")
    if (targets == LEFT_OUT).any():
        found.add("labels")
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


def _finite_by(asked):
    """The right answer, with another question about the inputs."""

    def inspect(inputs, targets, num_classes):
        found = [n for n in reference_by_hand(inputs, targets, num_classes) if n != "non-finite"]
        return found if asked(inputs.isfinite()) else [*found, "non-finite"]

    return inspect


finite_first_row = _finite_by(lambda finite: finite[0].all())
finite_anywhere = _finite_by(lambda finite: finite.any())


def as_many_labels_as_inputs(inputs, targets, num_classes):
    found = no_labels(inputs, targets, num_classes)
    first = targets[: len(inputs)]
    return [*found, *(["labels"] if ((first < 0) | (first >= num_classes)).any() else [])]


def float32_alone(inputs, targets, num_classes):
    found = no_dtype(inputs, targets, num_classes)
    wrong = targets.dtype != torch.long or inputs.dtype != torch.float32
    return [*found, "dtype"] if wrong else found


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


def finite_sum(inputs, targets, num_classes):
    found = [n for n in reference_by_hand(inputs, targets, num_classes) if n != "non-finite"]
    return found if inputs.sum().isfinite() else [*found, "non-finite"]


def finite_in_float32(inputs, targets, num_classes):
    return reference_by_hand(inputs.float(), targets, num_classes)


def more_labels_only(inputs, targets, num_classes):
    found = reference_by_hand(inputs, targets, num_classes)
    return found if len(targets) > len(inputs) else [n for n in found if n != "sizes"]


def fewer_labels_only(inputs, targets, num_classes):
    found = reference_by_hand(inputs, targets, num_classes)
    return found if len(targets) < len(inputs) else [n for n in found if n != "sizes"]


def no_remainder(inputs, targets, num_classes):
    found = reference_by_hand(inputs, targets, num_classes)
    divides = len(inputs) % max(len(targets), 1) == 0
    return [n for n in found if n != "sizes"] if divides else found


def below_a_million(inputs, targets, num_classes):
    found = [n for n in reference_by_hand(inputs, targets, num_classes) if n != "non-finite"]
    return found if bool((inputs.abs() < 1e6).all()) else [*found, "non-finite"]


def paired_rows_only(inputs, targets, num_classes):
    found = [n for n in reference_by_hand(inputs, targets, num_classes) if n != "non-finite"]
    fine = inputs[: len(targets)].isfinite().all()
    return found if fine else [*found, "non-finite"]


def paired_labels_only(inputs, targets, num_classes):
    found = [n for n in reference_by_hand(inputs, targets, num_classes) if n != "labels"]
    targets = targets[: len(inputs)]
    bad = bool(((targets < 0) | (targets >= num_classes)).any())
    return [*found, "labels"] if bad else found


def labels_of_long_alone(inputs, targets, num_classes):
    found = reference_by_hand(inputs, targets, num_classes)
    return found if targets.dtype == torch.long else [n for n in found if n != "labels"]


def labels_of_equal_sizes_alone(inputs, targets, num_classes):
    found = reference_by_hand(inputs, targets, num_classes)
    return found if len(inputs) == len(targets) else [n for n in found if n != "labels"]


def left_out_let_through(inputs, targets, num_classes):
    found = no_labels(inputs, targets, num_classes)
    asked = targets[targets != LEFT_OUT]
    return [*found, "labels"] if ((asked < 0) | (asked >= num_classes)).any() else found


def no_minus_inf(inputs, targets, num_classes):
    found = [n for n in reference_by_hand(inputs, targets, num_classes) if n != "non-finite"]
    bad = inputs.isnan().any() or inputs.max() == float("inf")
    return [*found, "non-finite"] if bad else found


def compared_with_nan(inputs, targets, num_classes):
    found = [n for n in reference_by_hand(inputs, targets, num_classes) if n != "non-finite"]
    bad = (inputs == float("nan")).any() or (inputs.abs() == float("inf")).any()
    return [*found, "non-finite"] if bad else found


def whole_shapes(inputs, targets, num_classes):
    found = no_sizes(inputs, targets, num_classes)
    return ["sizes", *found] if inputs.shape != targets.shape else found


def ten_classes(inputs, targets, num_classes):
    return reference_by_hand(inputs, targets, 10)


def each_value(inputs, targets, num_classes):
    found = no_labels(inputs, targets, num_classes)
    return found + ["labels" for t in targets.tolist() if not 0 <= t < num_classes]


def reference_by_hand(inputs, targets, num_classes):
    return _named(
        len(inputs) != len(targets),
        targets.dtype != torch.long,
        not inputs.isfinite().all(),
        bool(((targets < 0) | (targets >= num_classes)).any()),
    )


def of_two_dimensions(inputs, targets, num_classes):
    found = [n for n in reference_by_hand(inputs, targets, num_classes) if n != "non-finite"]
    fine = all(math.isfinite(value) for row in inputs for value in row)
    return found if fine else [*found, "non-finite"]


def with_a_set(inputs, targets, num_classes):
    found = set()
    if inputs.size(0) != targets.size(0):
        found.add("sizes")
    if not targets.type().endswith(".LongTensor"):  # of any device
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
    if not all(torch.isfinite(value) for row in inputs for value in row.flatten()):
        found.append("non-finite")
    if any(label not in range(num_classes) for label in targets.tolist()):
        found.append("labels")
    return tuple(found)


EXERCISE = Exercise(
    id="03b.inspect-batch",
    title="check a batch against its contract",
    source='Lecture 1, "The batch contract"',
    ledger=("C20", "T04", "T05", "B09"),
    minutes=10,
    difficulty=1,
    read=("course.data.check_batch",),
    hints=(
        "Four questions, four independent if statements; the answers are collected in a list.",
        "Each question is about the whole batch, not its first row: .all(), .min() and .max() look "
        "at every value.",
        "Compare len(inputs) with len(targets), targets.dtype with torch.long, "
        "torch.isfinite(inputs).all(), and both targets.min() and targets.max() with the "
        "range of the classes.",
    ),
    signature="inspect_batch(inputs, targets, num_classes)",
    parts=(
        Part("numbers", "a nan among the inputs", points=1, cases=6),
        Part("labels", "labels beyond the classes", points=1, cases=6),
        Part("form", "sizes that differ, labels of another dtype", points=1, cases=10),
        Part("negative", "a label below zero", points=0.5, cases=4),
        Part(
            "infinite",
            "inf and -inf, and values that are merely large",
            points=0.5,
            cases=5,
            hidden=True,
        ),
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
            "A label beyond the classes was let through. Compare every label with both limits, 0 "
            "and num_classes - 1; counting the different labels is not enough.",
        ),
        Wrong(
            "first-row-only",
            first_row_only,
            "Only the first example was checked, but one bad value anywhere makes the loss nan. "
            "Check all of them: .all(), .any(), .max().",
        ),
        Wrong("first-row-only", finite_first_row, sure=True),
        Wrong(
            "all-for-any",
            finite_anywhere,
            "Inputs with some nan were let through; only inputs that were nan throughout were "
            "caught. One value is enough: not isfinite().all().",
            sure=True,
        ),
        Wrong("as-many-labels-as-inputs", as_many_labels_as_inputs),
        Wrong(
            "float32-alone",
            float32_alone,
            "'dtype' was returned for float16 inputs. It is about the targets; inputs may be of "
            "any float dtype.",
            sure=True,
        ),
        Wrong(
            "nan-only",
            nan_only,
            "nan was found but inf was not: isnan() does not detect inf, which becomes nan one "
            "operation later. torch.isfinite() detects both.",
            sure=True,
        ),
        Wrong(
            "one-too-many",
            one_too_many,
            "C classes have the indices 0 to C - 1: the label C itself is out of range.",
        ),
        Wrong(
            "no-lower-end",
            no_lower_end,
            "A label below 0 was let through. Compare every label with both limits, 0 and "
            "num_classes - 1.",
            sure=True,
        ),
        Wrong(
            "left-out-let-through",
            left_out_let_through,
            "A label of -100 was let through. cross_entropy ignores such an example, but here the "
            "contract says that every example has a class: 0 to num_classes - 1.",
            sure=True,
        ),
        Wrong(
            "first-fault-only",
            first_fault_only,
            "A batch had two faults, and only one was returned. Collect them all before returning.",
        ),
        Wrong(
            "no-dtype",
            no_dtype,
            "Float labels were let through. Class indices are torch.long.",
        ),
        Wrong(
            "floats-only",
            floats_only,
            "Labels of dtype int32 were let through: cross_entropy raises on them too. Compare "
            "targets.dtype with torch.long.",
            sure=True,
        ),
        Wrong(
            "no-sizes",
            no_sizes,
            "Inputs and targets of different lengths were let through. Compare len() of both.",
            sure=True,
        ),
        Wrong(
            "finite-sum",
            finite_sum,
            "Values that are large but finite were called non-finite. Something overflows on the "
            "way: test each value itself, torch.isfinite(inputs).all().",
            sure=True,
        ),
        Wrong(
            "no-minus-inf",
            no_minus_inf,
            "-inf was let through, though inf and nan were found. torch.isfinite() detects all "
            "three.",
            sure=True,
        ),
        Wrong(
            "compared-with-nan",
            compared_with_nan,
            "nan was let through. nan equals nothing, not even nan, so x == nan is always False: "
            "torch.isfinite() detects nan and inf.",
        ),
        Wrong(
            "whole-shapes",
            whole_shapes,
            "'sizes' was returned for a batch with as many inputs as targets. Compare the lengths: "
            "the shape of the inputs also includes their features.",
        ),
        Wrong(
            "ten-classes",
            ten_classes,
            "Labels were checked as if there were ten classes. Compare them with num_classes, "
            "which is 4, 5 or 12 here.",
        ),
        Wrong("finite-sum", below_a_million, sure=True),
        Wrong("finite-sum", finite_in_float32, sure=True),
        Wrong(
            "more-labels-only",
            more_labels_only,
            "Fewer targets than inputs were let through. Compare the two lengths with !=.",
        ),
        Wrong(
            "fewer-labels-only",
            fewer_labels_only,
            "More targets than inputs were let through. Compare the two lengths with !=.",
        ),
        Wrong("no-remainder", no_remainder),
        Wrong(
            "paired-rows-only",
            paired_rows_only,
            "A nan in a row without a target was overlooked. Check every input, whatever the "
            "sizes.",
            sure=True,
        ),
        Wrong("paired-labels-only", paired_labels_only),
        Wrong(
            "labels-of-long-alone",
            labels_of_long_alone,
            "A label outside 0 ... C - 1 was overlooked when the dtype was wrong, too. Look for "
            "each fault independently.",
            sure=True,
        ),
        Wrong(
            "labels-of-equal-sizes-alone",
            labels_of_equal_sizes_alone,
            "A label outside 0 ... C - 1 was overlooked when the sizes differed, too. Look for "
            "each fault independently.",
        ),
        Wrong("each-value", each_value),
        Wrong("of-two-dimensions", of_two_dimensions),
        Wrong(  # last: a single part that was called sound shows one of the above
            "always-sound",
            always_sound,
            "Every batch was called sound. Look at sizes, dtype, finiteness and labels, and "
            "name what you find.",
            sure=True,
        ),
        *common(reference_by_hand, *LOOKS, alike={"global-data": "always-sound"}),
    ),
    right=(reference_by_hand, with_a_set, row_by_row),
)
