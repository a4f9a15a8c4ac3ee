"""03e.leaking-pipeline: statistics, columns and repeats that know validation."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from autograde.bank.harness import Watch
from autograde.exercise import Answer, AnswerError, Case, Draw, Exercise, Part, Wrong, kept
from autograde.kinds.fix import change_size, variant

GIVEN = """
def prepare(inputs, targets, num_train, num_columns):
    inputs = (inputs - inputs.mean(0)) / inputs.std(0)
    gap = inputs[targets == 1].mean(0) - inputs[targets == 0].mean(0)
    best = gap.abs().topk(num_columns).indices
    inputs = inputs[:, best]
    rare = targets == 1
    inputs = torch.cat([inputs, inputs[rare]])
    targets = torch.cat([targets, targets[rare]])
    train = inputs[:num_train], targets[:num_train]
    val = inputs[num_train:], targets[num_train:]
    return train, val
"""
MOST = 14
"""Lines that may differ: three leaks take two to four each."""


def draw(source: Draw, part: str) -> Case:
    """Rows of which validation looks unlike training: other means, and another telling column.

    `scale` asks for all columns, so that which are chosen does not matter. The telling columns of
    the two sides are known, so that `columns` can tell whose were taken.
    """
    num_train, num_val = source.integer(9, 14), source.integer(6, 9)
    width, most = source.integer(5, 7), source.integer(1, 2)
    targets = torch.cat([_labels(source, num_train), _labels(source, num_val)])
    most = 3 if part == "columns" else most
    inputs = source.normal(num_train + num_val, width).double()
    ours, theirs = source.shuffled(range(width))[:2]
    sign = -1 if source.index == 1 else 1  # a gap below 0 tells as much as one above
    inputs[:num_train, ours] += sign * 2.5 * targets[:num_train]
    inputs[num_train:, theirs] += 9.0 * targets[num_train:]
    inputs[num_train:] += source.uniform(1.0, 2.0)
    if part == "columns":
        inputs = _mixed_order(inputs, targets, num_train, most)
    return {
        "inputs": inputs * torch.tensor([source.uniform(0.5, 3.0) for _ in range(width)]),
        "targets": targets,
        "num_train": num_train,
        "num_columns": width if part == "scale" else most,
        "dtype": "float64" if source.index == 1 else "float32",
    }


def _mixed_order(inputs: Tensor, targets: Tensor, num_train: int, most: int) -> Tensor:
    """The columns, moved so that the most telling stand neither in their order nor backwards."""
    seen, labels = inputs[:num_train], targets[:num_train]
    seen = (seen - seen.mean(0)) / seen.std(0)
    gap = (seen[labels == 1].mean(0) - seen[labels == 0].mean(0)).abs()
    best = gap.topk(most).indices.tolist()
    low, middle, high = sorted(best)
    moved = list(range(inputs.shape[1]))
    moved[middle], moved[low], moved[high] = best
    return inputs[:, moved]


def _labels(source: Draw, num: int) -> Tensor:
    """Two or three ones among zeros."""
    labels = [1] * source.integer(2, 3)
    return torch.tensor(source.shuffled(labels + [0] * (num - len(labels))))


def run(function, case: Case, device: torch.device) -> Answer:
    """Both sides; which columns were taken; the rows without repeats, for the scale alone."""
    inputs = case["inputs"].to(device, getattr(torch, case["dtype"]))
    targets, num_train = case["targets"].to(device), case["num_train"]
    watch = Watch(data={"inputs": inputs, "targets": targets})
    returned = function(inputs, targets, num_train, case["num_columns"])
    sides = _sides(returned)
    (train, train_targets), (val, val_targets) = sides
    num_val = len(targets) - num_train
    return {
        "train_targets": train_targets,
        "val_targets": val_targets,
        "columns": kept(_columns, val[:num_val], case["inputs"][num_train:]),
        "scaled_train": train[:num_train],
        "scaled_val": val[:num_val],
        "train": train,
        "val": val,
        "changed": change_size(GIVEN, function, most=MOST),
        "disturbed": watch.changed(),
    }


def _sides(returned: object) -> list[list[Tensor]]:
    """Two pairs of tensors on the CPU."""
    wanted = "Return (training inputs, targets), (validation inputs, targets), all as tensors"
    if not isinstance(returned, (tuple, list)) or len(returned) != 2:
        raise AnswerError(f"{wanted}; got a {type(returned).__name__}.")
    for side in returned:
        both = isinstance(side, (tuple, list)) and len(side) == 2
        if not both or not all(isinstance(part, Tensor) for part in side):
            raise AnswerError(f"{wanted}; one of the two sides is not a pair of tensors.")
        if side[0].ndim != 2 or side[1].ndim != 1:
            raise AnswerError(
                f"A side has inputs [n, columns] and targets [n]; one has "
                f"{list(side[0].shape)} and {list(side[1].shape)}."
            )
    return [[part.detach().cpu() for part in side] for side in returned]


def _columns(val: Tensor, raw: Tensor) -> list[int]:
    """Which column of the given rows each returned one is: scaling leaves the order of rows."""
    if len(val) != len(raw):
        raise AnswerError(f"{len(val)} validation rows were returned; there are {len(raw)}.")
    orders = raw.argsort(0).T.tolist()
    found = [column.argsort().tolist() for column in val.T]
    if any(order not in orders for order in found):
        raise AnswerError("A validation column does not match any of the given columns, scaled.")
    return [orders.index(order) for order in found]


SEEN = "    seen, labels = inputs[:num_train], targets[:num_train]\n"
SCALE = "    inputs = (inputs - seen.mean(0)) / seen.std(0)\n"
AGAIN = "    seen = inputs[:num_train]\n"
GAP = "    gap = seen[labels == 1].mean(0) - seen[labels == 0].mean(0)\n"
VAL = "    val = inputs[num_train:], targets[num_train:]\n"
RARE = "    rare = labels == 1\n"
TRAIN = """    seen = inputs[:num_train]
    train = torch.cat([seen, seen[rare]]), torch.cat([labels, labels[rare]])
"""
HEAD = "\ndef prepare(inputs, targets, num_train, num_columns):\n"
FIXED = (
    HEAD + SEEN + SCALE + AGAIN + GAP
    + "    best = gap.abs().topk(num_columns).indices\n    inputs = inputs[:, best]\n"
    + VAL + RARE + TRAIN + "    return train, val\n"
)  # fmt: skip

fixed = partial(variant, FIXED, __file__)
reference = fixed()
scaled_by_all = fixed((SCALE, "    inputs = (inputs - inputs.mean(0)) / inputs.std(0)\n"))
mean_alone = fixed((SCALE, "    inputs = (inputs - seen.mean(0)) / inputs.std(0)\n"))
std_alone = fixed((SCALE, "    inputs = (inputs - inputs.mean(0)) / seen.std(0)\n"))
each_by_itself = fixed(
    (SCALE, "    other = inputs[num_train:]\n"
     "    inputs = torch.cat([(seen - seen.mean(0)) / seen.std(0),\n"
     "                        (other - other.mean(0)) / other.std(0)])\n"),
)  # fmt: skip
val_not_scaled = fixed(
    (SCALE, "    inputs = torch.cat([(seen - seen.mean(0)) / seen.std(0), inputs[num_train:]])\n")
)
after_repeats = fixed(
    (SCALE, "    both = torch.cat([seen, seen[labels == 1]])\n"
     "    inputs = (inputs - both.mean(0)) / both.std(0)\n"),
)  # fmt: skip
columns_by_all = fixed(
    (GAP, "    gap = inputs[targets == 1].mean(0) - inputs[targets == 0].mean(0)\n")
)
columns_by_val = fixed(
    (AGAIN + GAP, "    other, truth = inputs[num_train:], targets[num_train:]\n"
     "    gap = other[truth == 1].mean(0) - other[truth == 0].mean(0)\n"),
)  # fmt: skip
columns_signed = fixed(("gap.abs()", "gap"))
first_columns = fixed(("gap.abs().topk(num_columns).indices", "torch.arange(num_columns)"))
repeats_in_both = fixed(
    (VAL, "    other, truth = inputs[num_train:], targets[num_train:]\n"
     "    val = torch.cat([other, other[truth == 1]]), torch.cat([truth, truth[truth == 1]])\n"),
)  # fmt: skip
never_repeated = fixed((TRAIN, "    train = inputs[:num_train], labels\n"))
others_repeated = fixed((RARE, "    rare = labels == 0\n"))
still_before_the_split = fixed(
    (VAL + RARE + TRAIN,
     "    rare = targets == 1\n    inputs = torch.cat([inputs, inputs[rare]])\n"
     "    targets = torch.cat([targets, targets[rare]])\n"
     "    train = inputs[:num_train], targets[:num_train]\n" + VAL),
)  # fmt: skip
all_repeats_to_training = fixed(
    (VAL + RARE + TRAIN,
     VAL + "    rare = targets == 1\n"
     "    train = (torch.cat([inputs[:num_train], inputs[rare]]),\n"
     "             torch.cat([labels, targets[rare]]))\n"),
)  # fmt: skip
biased_std = fixed(("seen.std(0)", "seen.std(0, unbiased=False)"))
least_telling_first = fixed((".indices\n", ".indices.flip(0)\n"))
in_order_of_place = fixed((".indices\n", ".indices.sort().values\n"))
gap_before_scaling = fixed(
    (SCALE + AGAIN, ""),
    ("    inputs = inputs[:, best]\n", SCALE + "    inputs = inputs[:, best]\n"),
)
in_place = fixed(
    (SCALE, "    mean, std = seen.mean(0), seen.std(0)\n    inputs -= mean\n    inputs /= std\n")
)
repeats_alone_first = fixed(
    (SCALE, "    inputs = (inputs - inputs.mean(0)) / inputs.std(0)\n"),
    (GAP, "    gap = inputs[targets == 1].mean(0) - inputs[targets == 0].mean(0)\n"),
)
repeats_to_val = fixed(
    (VAL + RARE + TRAIN,
     "    rare = labels == 1\n    inputs = torch.cat([inputs, inputs[:num_train][rare]])\n"
     "    targets = torch.cat([targets, labels[rare]])\n"
     "    train = inputs[:num_train], targets[:num_train]\n" + VAL),
)  # fmt: skip
repeats_in_front = fixed(
    ("torch.cat([seen, seen[rare]]), torch.cat([labels, labels[rare]])",
     "torch.cat([seen[rare], seen]), torch.cat([labels[rare], labels])"),
)  # fmt: skip
sides_swapped = fixed(("return train, val", "return val, train"))

with_indices = fixed(
    (SEEN, "    first = torch.arange(num_train, device=inputs.device)\n"
     "    seen, labels = inputs[first], targets[first]\n"),
)  # fmt: skip
split_first = partial(variant, """
def prepare(inputs, targets, num_train, num_columns):
    train, val = inputs[:num_train], inputs[num_train:]
    labels, val_labels = targets[:num_train], targets[num_train:]
    mean, std = train.mean(0), train.std(0)
    train, val = (train - mean) / std, (val - mean) / std
    gap = train[labels == 1].mean(0) - train[labels == 0].mean(0)
    best = gap.abs().topk(num_columns).indices
    train, val = train[:, best], val[:, best]
    rare = labels == 1
    train = torch.cat([train, train[rare]])
    labels = torch.cat([labels, labels[rare]])
    return (train, labels), (val, val_labels)
""", __file__)()  # fmt: skip
rows_repeated = fixed(
    (RARE + TRAIN, "    places = torch.arange(num_train, device=targets.device)\n"
     "    rows = torch.cat([places, places[labels == 1]])\n"
     "    train = inputs[rows], targets[rows]\n"),
)  # fmt: skip


EXERCISE = Exercise(
    id="03e.leaking-pipeline",
    title="three leaks in a pipeline",
    source='Lecture 3, "Before trusting validation"; training-loop chapter, c5, bug 5',
    kind="fix",
    ledger=("F99", "F100", "T24"),
    minutes=12,
    difficulty=2,
    read=("F99", "F100", "course.analysis.leakage"),
    hints=(
        "For each line ask: which rows went into this number?",
        "Three steps use validation rows: the scaling, the class means, and the concatenation.",
        "Compute mean, standard deviation and gap from the first num_train rows, and split off "
        "validation before the rare rows are repeated.",
    ),
    signature="prepare(inputs, targets, num_train, num_columns)",
    parts=(
        Part("scale", "mean and standard deviation; all columns, in the order of their gaps",
             points=1,
             fields=("scaled_train", "scaled_val")),
        Part("columns", "the chosen columns", points=1, fields=("columns",)),
        Part("repeats", "the targets of both sides, repeats included", points=1,
             fields=("train_targets", "val_targets")),
        Part("whole", f"everything together, at most {MOST} lines changed", points=1, cases=3,
             fields=("train", "val", "train_targets", "val_targets", "changed", "disturbed")),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "scaled_train": "in the training rows without repeats, entry",
        "scaled_val": "in the validation rows, entry",
        "columns": "the chosen columns, largest gap first, at",
        "train_targets": "the training targets at",
        "val_targets": "the validation targets at",
        "train": "in the training inputs, entry",
        "val": "in the validation inputs, entry",
        "changed": "the number of lines changed",
    },
    wrong=(
        Wrong("scaled-by-all", scaled_by_all,
              "Rows were scaled by the mean and deviation of all rows, including validation. Use "
              "those of the first num_train rows."),
        Wrong("mean-alone", mean_alone,
              "The mean comes from training, but the deviation still comes from all rows."),
        Wrong("std-alone", std_alone,
              "The deviation comes from training, but the mean still comes from all rows."),
        Wrong("each-by-itself", each_by_itself,
              "Validation was scaled by its own mean and deviation. New inputs will not have their "
              "own: scale by training's."),
        Wrong("val-not-scaled", val_not_scaled,
              "Validation was not scaled. Scale it by training's mean and deviation."),
        Wrong("after-repeats", after_repeats,
              "The mean and deviation count the repeated rows twice. Count each training row "
              "once."),
        Wrong("columns-by-all", columns_by_all,
              "The columns were chosen with all labels, including validation's. Choose them with "
              "the training rows only."),
        Wrong("columns-by-val", columns_by_val,
              "The columns were chosen with validation's labels. Choose them with the training "
              "rows only."),
        Wrong("columns-signed", columns_signed,
              "The columns are those with the largest positive gap. A column in which class 1 lies "
              "lower is just as useful: compare the absolute gaps."),
        Wrong("first-columns", first_columns),
        Wrong("repeats-in-both", repeats_in_both,
              "Validation's rare rows were repeated too. Repeat only training's."),
        Wrong("never-repeated", never_repeated,
              "The rare rows are in training once; they should be there twice."),
        Wrong("others-repeated", others_repeated,
              "The rows of class 0 were repeated in training. Repeat those of class 1."),
        Wrong("still-before-the-split", still_before_the_split,
              "The repeated rows are in validation, including training's rare rows. Split first, "
              "then repeat training's."),
        Wrong("all-repeats-to-training", all_repeats_to_training,
              "Training holds validation's rare rows as well: they were repeated into it."),
        Wrong("biased-std", biased_std,
              "The deviation divides by n. std(0) in the given line divides by n − 1: leave that "
              "as it is."),
        Wrong("in-order-of-place", in_order_of_place,
              "The columns are right, but in table order. The one with the largest gap comes "
              "first."),
        Wrong("least-telling-first", least_telling_first,
              "The columns are right, but the one with the smallest gap comes first. Put the "
              "largest gap first."),
        Wrong("gap-before-scaling", gap_before_scaling,
              "The columns are those with the largest gap before scaling, which favours columns in "
              "large units. Scale first, then compare the gaps."),
        Wrong("repeats-in-front", repeats_in_front,
              "The repeated rows are at the start of training; they belong at the end."),
        Wrong("repeats-to-val", repeats_to_val,
              "Training's rare rows were repeated at the end of validation. Split before you "
              "repeat them."),
        Wrong("repeats-alone-first", repeats_alone_first,
              "Mean, deviation and columns still come from all rows, including validation. Use the "
              "first num_train rows for each."),
        Wrong("in-place", in_place),
        Wrong("sides-swapped", sides_swapped),
    ),
    right=(with_indices, split_first, rows_repeated),
)  # fmt: skip
