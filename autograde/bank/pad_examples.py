"""03c.collate: one padded batch of sequences of unlike length, and a mask of what is real."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from autograde.bank.common_wrong import LOOKS, common, named
from autograde.bank.harness import Watch
from autograde.exercise import Answer, AnswerError, Case, Draw, Exercise, Part, Wrong, kept
from course.data.collate import pad_collate

DTYPES = (torch.long, torch.float32, torch.float64)
MARKS = -1, -100
"""Numbers that look as if no real cell could hold them."""
VALUES = ("inputs", "targets", "mask", "disturbed")
"""Fields apart from the dtypes, which cost two parts and not all of them."""


def draw(source: Draw, part: str) -> Case:
    """Sequences of unlike length, whose longest is neither first nor last."""
    lengths = [source.integer(2, 4), source.integer(3, 4), 5 + source.integer(1, 3), 1]
    if part == "edges":  # an empty one; one example alone; all alike
        lengths = ([3, 0, 5, 2], [source.integer(3, 6)], [4, 4, 4])[source.index]
    if part == "longer":  # longer than those of a batch before it
        lengths = [source.integer(9, 12) + i for i in (0, 3, 1)]
    inner = [source.integer(2, 4)] if part == "wide" else []
    inner += [source.integer(2, 3)] * (part == "wide" and source.index == 1)
    dtype = DTYPES[source.index] if part == "kinds" else torch.long
    pad = {"plain": 0, "kinds": (7, -math.inf, 2.5)[source.index]}.get(part, source.integer(5, 60))
    sequences = []
    for length in lengths:
        drawn = source.normal(length, *inner) if dtype.is_floating_point else source.integers(
            90, length, *inner)  # fmt: skip
        sequences.append(torch.where(drawn == pad, drawn + 1, drawn).to(dtype))
    if part == "real":  # real values that are equal to what is padded with, also at the end
        for sequence in sequences[:3]:
            sequence[1] = 0
            sequence[-1] = sequence[0] = pad
        sequences[2][2:4] = torch.tensor(MARKS)  # what one may mark padding with at first
    return {"sequences": sequences, "targets": [source.integer(0, 11) for _ in lengths], "pad": pad}


def run(function, case: Case, device: torch.device) -> Answer:
    """The three parts of the batch, and whether what was handed over is as it was."""
    sequences = [sequence.to(device) for sequence in case["sequences"]]
    examples = list(zip(sequences, case["targets"], strict=True))
    watch = Watch(data=[*sequences, examples])
    returned = function(examples, case["pad"])
    if not isinstance(returned, (tuple, list)) or len(returned) != 3:
        kind = type(returned).__name__
        raise AnswerError(f"Return inputs, targets, mask; what came back was a {kind}.")
    wanted = {"inputs": case["sequences"][0].dtype, "targets": torch.long, "mask": torch.bool}
    found = dict(zip(wanted, returned, strict=True))
    return {
        **{name: kept(_tensor, found[name], wanted[name], name) for name in wanted},
        "dtypes": {k: str(getattr(value, "dtype", "none")) for k, value in found.items()},
        "disturbed": watch.changed(),
    }


def _tensor(value: Any, dtype: torch.dtype, what: str) -> Tensor:
    """A tensor, turned into the dtype asked for: what came is looked at in another field.

    Raises:
        AnswerError: It is something else.
    """
    if not isinstance(value, Tensor):
        raise AnswerError(f"{what}: a {type(value).__name__} came where a tensor is expected.")
    return value.detach().cpu().to(dtype)


def reference(examples: list[tuple[Tensor, int]], pad_value: float) -> tuple[Tensor, ...]:
    """The course's collation; it makes float64 float32, which this exercise does not ask for."""
    batch = pad_collate(examples, pad_value=pad_value)
    real = next((seq for seq, _ in examples if len(seq)), examples[0][0])
    inputs = batch.inputs
    if real.dtype == torch.float64:  # its values, not those rounded to float32
        inputs = torch.full(inputs.shape, pad_value, dtype=torch.float64, device=real.device)
        for row, (sequence, _) in zip(inputs, examples, strict=True):
            row[: len(sequence)] = sequence
    return inputs, batch.targets, batch.mask.to(inputs.device)


def row_by_row(examples, pad_value):
    sequences = [sequence for sequence, _ in examples]
    longest = max(map(len, sequences))
    shape = (len(sequences), longest, *sequences[0].shape[1:])
    inputs = sequences[0].new_full(shape, pad_value)
    mask = torch.zeros(shape[:2], dtype=torch.bool, device=inputs.device)
    for row, sequence in enumerate(sequences):
        inputs[row, : len(sequence)] = sequence
        mask[row, : len(sequence)] = True
    return inputs, torch.tensor([target for _, target in examples]), mask


def with_pad_sequence(examples, pad_value):
    sequences, targets = zip(*examples, strict=True)
    inputs = pad_sequence(list(sequences), batch_first=True, padding_value=pad_value)
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    mask = torch.arange(inputs.shape[1]) < lengths[:, None]
    return inputs, torch.tensor(targets, dtype=torch.long), mask.to(inputs.device)


def stacked(examples, pad_value):
    longest = max(len(sequence) for sequence, _ in examples)
    padded, masks = [], []
    for sequence, _ in examples:
        missing = longest - len(sequence)
        rest = torch.full((missing, *sequence.shape[1:]), pad_value, dtype=sequence.dtype,
                          device=sequence.device)  # fmt: skip
        padded.append(torch.cat([sequence, rest]))
        masks.append(torch.tensor([True] * len(sequence) + [False] * missing))
    return torch.stack(padded), torch.as_tensor([t for _, t in examples]), torch.stack(masks)


def padded_with_f(examples, pad_value):
    longest = max(len(sequence) for sequence, _ in examples)
    rows, masks = [], []
    for sequence, _ in examples:
        behind = [0, 0] * (sequence.dim() - 1) + [0, longest - len(sequence)]
        rows.append(F.pad(sequence, behind, value=pad_value))
        masks.append(torch.arange(longest) < len(sequence))
    return (
        torch.stack(rows),
        torch.LongTensor([target for _, target in examples]),
        torch.stack(masks),
    )


def changed(change: Callable[..., tuple]) -> Callable[..., tuple]:
    """A right answer whose three parts are spoiled."""

    def wrong(examples, pad_value):
        return change(*row_by_row(examples, pad_value), examples, pad_value)

    return wrong


def mask_from_values(inputs, targets, mask, examples, pad_value):
    seen = inputs != pad_value
    return inputs, targets, seen.flatten(2).any(2) if seen.dim() > 2 else seen


def mask_of_values(inputs, targets, mask, examples, pad_value):
    return inputs, targets, inputs != pad_value


def mask_not_zero(inputs, targets, mask, examples, pad_value):
    seen = inputs != 0
    return inputs, targets, seen.flatten(2).any(2) if seen.dim() > 2 else seen


def not_padding_counted(inputs, targets, mask, examples, pad_value):
    """A prefix as long as the number of cells that do not hold pad_value."""
    seen = mask_from_values(inputs, targets, mask, examples, pad_value)[2]
    return inputs, targets, torch.arange(mask.shape[1]) < seen.sum(1)[:, None].cpu()


def inputs_time_first(inputs, targets, mask, examples, pad_value):
    return inputs.transpose(0, 1), targets, mask


def one_mask_per_example(inputs, targets, mask, examples, pad_value):
    return inputs, targets, mask.any(1)


def mask_turned(inputs, targets, mask, examples, pad_value):
    return inputs, targets, ~mask


def mask_as_floats(inputs, targets, mask, examples, pad_value):
    return inputs, targets, mask.float()


def mask_of_all_cells(inputs, targets, mask, examples, pad_value):
    wide = mask.reshape(*mask.shape, *[1] * (inputs.dim() - 2)).expand_as(inputs)
    return inputs, targets, wide.clone()


def always_zeros(examples, pad_value):
    return row_by_row(examples, 0)


def padded_in_front(examples, pad_value):
    inputs, targets, mask = row_by_row([(seq.flip(0), t) for seq, t in examples], pad_value)
    return inputs.flip(1), targets, mask.flip(1)


def cut_to_the_shortest(examples, pad_value):
    least = min(len(sequence) for sequence, _ in examples)
    return row_by_row([(sequence[:least], target) for sequence, target in examples], pad_value)


def long_as_the_first(examples, pad_value):
    first = len(examples[0][0])
    inputs, targets, mask = row_by_row([(seq[:first], t) for seq, t in examples], pad_value)
    return inputs, targets, mask


def always_eight(examples, pad_value):
    ghost = examples[0][0].new_zeros(8, *examples[0][0].shape[1:])
    inputs, targets, mask = row_by_row([*((s[:8], t) for s, t in examples), (ghost, 0)], pad_value)
    return inputs[:-1], targets[:-1], mask[:-1]


def by_their_length(examples, pad_value):
    return row_by_row(sorted(examples, key=lambda pair: -len(pair[0])), pad_value)


def time_first(inputs, targets, mask, examples, pad_value):
    return inputs.transpose(0, 1), targets, mask.T


def all_time_first(inputs, targets, mask, examples, pad_value):
    """The mask is made of the swapped inputs' values."""
    mask = mask_from_values(inputs, targets, mask, examples, pad_value)[2]
    return inputs.transpose(0, 1), targets, mask.T


def mask_time_first(inputs, targets, mask, examples, pad_value):
    return inputs, targets, mask.T


def floats_of_all(inputs, targets, mask, examples, pad_value):
    return inputs.float(), targets, mask


def default_dtype(inputs, targets, mask, examples, pad_value):
    """torch.full() and torch.zeros() give it to floats."""
    return inputs.float() if inputs.is_floating_point() else inputs, targets, mask


def made_for_numbers(examples, pad_value):
    longest = max(len(sequence) for sequence, _ in examples)
    inputs = examples[0][0].new_full((len(examples), longest), pad_value)
    for row, (sequence, _) in zip(inputs, examples, strict=True):
        row[: len(sequence)] = sequence
    return inputs, *row_by_row(examples, pad_value)[1:]


def longs_of_all(inputs, targets, mask, examples, pad_value):
    return inputs.long(), targets, mask


def float_targets(inputs, targets, mask, examples, pad_value):
    return inputs, targets.float(), mask


def target_column(inputs, targets, mask, examples, pad_value):
    return inputs, targets[:, None], mask


def targets_as_list(inputs, targets, mask, examples, pad_value):
    return inputs, targets.tolist(), mask


def lengths_for_mask(inputs, targets, mask, examples, pad_value):
    return inputs, targets, mask.sum(1)


def one_short(inputs, targets, mask, examples, pad_value):
    lengths = mask.sum(1) - 1
    return inputs, targets, torch.arange(mask.shape[1], device=mask.device) < lengths[:, None]


def one_more(inputs, targets, mask, examples, pad_value):
    lengths = mask.sum(1)
    return inputs, targets, torch.arange(mask.shape[1], device=mask.device) <= lengths[:, None]


def up_to_eights(examples, pad_value):
    longest = -(-max(len(sequence) for sequence, _ in examples) // 8) * 8
    ghost = examples[0][0].new_zeros(longest, *examples[0][0].shape[1:])
    inputs, targets, mask = row_by_row([*examples, (ghost, 0)], pad_value)
    return inputs[:-1], targets[:-1], mask[:-1]


def without_empty(examples, pad_value):
    return row_by_row([pair for pair in examples if len(pair[0])] or examples, pad_value)


def short_rows_one_short(inputs, targets, mask, examples, pad_value):
    for row, (sequence, _) in zip(mask, examples, strict=True):
        if 0 < len(sequence) < len(row):
            row[len(sequence) - 1] = False
    return inputs, targets, mask


def empty_with_a_cell(inputs, targets, mask, examples, pad_value):
    mask[:, :1] = True
    return inputs, targets, mask


def mask_as_longs(inputs, targets, mask, examples, pad_value):
    return inputs, targets, mask.long()


def mask_second(inputs, targets, mask, examples, pad_value):
    return inputs, mask, targets


def squeezed(inputs, targets, mask, examples, pad_value):
    return inputs.squeeze(0), targets, mask.squeeze(0)


def one_cell_too_long(inputs, targets, mask, examples, pad_value):
    cell = inputs.new_full((len(inputs), 1, *inputs.shape[2:]), pad_value)
    return torch.cat([inputs, cell], 1), targets, torch.cat([mask, mask[:, :1] & False], 1)


def by_arithmetic(inputs, targets, mask, examples, pad_value):
    real = mask.reshape(*mask.shape, *[1] * (inputs.dim() - 2)).to(inputs.dtype)
    inputs = torch.where(real.bool(), inputs, torch.zeros_like(inputs))
    return (inputs * real + pad_value * (1 - real)).to(inputs.dtype), targets, mask


def zeros_replaced(inputs, targets, mask, examples, pad_value):
    return inputs.masked_fill(inputs == 0, pad_value), targets, mask


def marked(mark):
    """Padding is a number first that marks it, and pad_value later."""

    def wrong(examples, pad_value):
        inputs, targets, mask = row_by_row(examples, pad_value)
        is_mark = inputs == mark
        real = mask & ~(is_mark.flatten(2).all(2) if inputs.dim() > 2 else is_mark)
        wide = real.reshape(*real.shape, *[1] * (inputs.dim() - 2))
        return torch.where(wide, inputs, torch.full_like(inputs, pad_value)), targets, real

    return wrong


marked_by_1, marked_by_100 = (named(f"marked-by{mark}", marked(mark)) for mark in MARKS)


def inputs_sorted_alone(examples, pad_value):
    _, targets, _ = row_by_row(examples, pad_value)
    inputs, _, mask = by_their_length(examples, pad_value)
    return inputs, targets, mask


def mask_all_true(inputs, targets, mask, examples, pad_value):
    return inputs, targets, torch.ones_like(mask)


SPOILED = {
    "mask-from-values": "Real values equal to pad_value were masked out as padding. Compute the "
    "mask from the lengths, not from the contents of the cells.",
    "mask-not-zero": "",
    "not-padding-counted": "In each row, the mask counts the values other than pad_value. Real "
    "cells may hold pad_value, too: use the lengths.",
    "inputs-time-first": "The first two dimensions of inputs are swapped, though those of the mask "
    "are not. inputs should be [B, T, ...]: pad_sequence() needs batch_first=True for that.",
    "one-mask-per-example": "The mask has one value per example. It is [B, T]: one per position.",
    "mask-turned": "The mask is True where there is padding. True should mean a real cell.",
    "mask-as-floats": "The mask holds floats. It should be bool, True where a cell is real: ~mask "
    "and inputs[mask] do something else with numbers.",
    "mask-as-longs": "The mask holds integers. It should be bool, True where a cell is real: ~mask "
    "and inputs[mask] do something else with numbers.",
    "mask-second": "The mask was returned second and the targets third. Return inputs, targets, "
    "mask.",
    "empty-with-a-cell": "The mask of an empty sequence is True in its first cell. It has no real "
    "cell.",
    "short-rows-one-short": "The mask leaves out the last real cell of each sequence that is "
    "shorter than the longest.",
    "squeezed": "A batch of one example lost its first dimension. It should be [1, T, ...]: do not "
    "squeeze it.",
    "one-cell-too-long": "The batch is one cell longer than its longest sequence.",
    "by-arithmetic": "An infinite pad_value made real cells nan: 0 times infinity. Fill with "
    "pad_value first and write the sequences into it, or use torch.where().",
    "zeros-replaced": "Real zeros became pad_value. Pad with pad_value from the start.",
    "mask-of-all-cells": "For sequences of vectors, the mask has one value per number. It should "
    "be [B, T]: one per position.",
    "mask-of-values": "The mask is inputs != pad_value: real values equal to pad_value are masked "
    "out, and for vectors there is one value per number. Make it [B, T], from the lengths.",
    "time-first": "The first two dimensions of both inputs and mask are swapped: the batch comes "
    "first, [B, T].",
    "mask-time-first": "The mask is [T, B], but inputs are [B, T, ...]. Both should begin with the "
    "batch.",
    "floats-of-all": "The inputs are float32, whatever the sequences are. Create the batch in "
    "their dtype: sequence.new_full(...).",
    "default-dtype": "float64 sequences came back as float32, the default of torch.full() and "
    "torch.zeros(). Create the batch in the sequences' dtype: sequence.new_full(...).",
    "longs-of-all": "The inputs are integers, whatever the sequences are. Create the batch in "
    "their dtype: sequence.new_full(...).",
    "float-targets": "The targets are floats. Class indices are long.",
    "target-column": "The targets are a column, [B, 1]. They should be [B]: one class index per "
    "example.",
    "targets-as-list": "",
    "lengths-for-mask": "The third result holds one length per example. The mask should be [B, T], "
    "bool.",
    "one-short": "The mask leaves out the last real cell of each sequence.",
    "one-more": "The mask includes one cell of padding after each sequence that is shorter than "
    "the longest.",
    "mask-all-true": "The mask is True everywhere, even where there is padding.",
}
ALONE = {
    "always-zeros": "The padded cells hold 0. They should hold the given pad_value.",
    "padded-in-front": "The padding is before the sequences. It belongs after them.",
    "cut-to-the-shortest": "All sequences were cut to the length of the shortest. Pad up to the "
    "longest of the batch.",
    "long-as-the-first": "The batch is as long as its first sequence, and longer ones were cut. "
    "Take the longest.",
    "always-eight": "The batch has 8 positions, however long its sequences are. Take the longest "
    "of the batch.",
    "by-their-length": "The rows are in another order, longest first. Row i should be example i.",
    "up-to-eights": "The batch is longer than its longest sequence, rounded up to a multiple of 8. "
    "Pad only up to the longest.",
    "inputs-sorted-alone": "The inputs are sorted, longest first, but the targets are not, so they "
    "no longer match. Row i should be example i.",
    "marked-by-1": "Real cells that hold -1 were masked out. Any number may be real: compute the "
    "mask from the lengths.",
    "marked-by-100": "Real cells that hold -100 were masked out. Any number may be real: compute "
    "the mask from the lengths.",
    "without-empty": "An example with an empty sequence is missing. Its row should be all padding.",
}


SURE = ("always-zeros", "default-dtype", "without-empty", "empty-with-a-cell", "squeezed",
        "by-arithmetic", "mask-as-floats", "mask-as-longs", "marked-by-1",
        "marked-by-100")  # fmt: skip
"""Told by one case alone, or by a dtype."""


def _function(name: str) -> Callable[..., Any]:
    function = globals()[name.replace("-", "_")]
    return named(name, changed(function)) if name in SPOILED else function


EXERCISE = Exercise(
    id="03c.collate",
    title="sequences of different lengths",
    source='Training-loop chapter, c2, "Collate"',
    ledger=("C19", "N08", "F89"),
    minutes=12,
    difficulty=2,
    read=("N08", "F89", "course.data.pad_collate"),
    hints=(
        "You build three tensors, each from one column of the examples: what shape does each have?",
        "Find the longest length first, create a tensor full of pad_value with the right shape and "
        "dtype, then write each sequence into its row.",
        "inputs = first.new_full((B, longest, *first.shape[1:]), pad_value); the mask is "
        "torch.arange(longest) < lengths[:, None].",
    ),
    signature="collate(examples, pad_value)",
    parts=(
        Part("plain", "inputs, targets and mask", points=1),
        Part(
            "longer",
            "as long as the longest of this batch, padded with pad_value",
            points=0.5,
            fields=VALUES,
        ),
        Part("real", "real values equal to pad_value", points=1, fields=VALUES),
        Part("kinds", "longs, floats and doubles", points=0.5, cases=3),
        Part("wide", "sequences of vectors and of matrices", points=0.5, fields=VALUES),
        Part(
            "edges",
            "an empty sequence, a single example, equal lengths",
            points=0.5,
            cases=3,
            hidden=True,
            fields=VALUES,
        ),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "inputs": "inputs",
        "targets": "targets",
        "mask": "the mask",
        "dtypes": "the dtype of",
    },
    by_hand=(pad_collate,),
    wrong=(
        *(
            Wrong(name, _function(name), text, sure=name in SURE)
            for name, text in (SPOILED | ALONE).items()
        ),
        Wrong(
            "made-for-numbers",
            made_for_numbers,
            "A sequence of vectors did not fit into a row of numbers. The batch is [B, T, ...]: "
            "after T come the other dimensions of a sequence, sequence.shape[1:].",
            raises=r"expand\(torch\.\w+\{.*\}, size=\[\d+\]\): the number of sizes provided \(1\)",
        ),
        Wrong("time-first", named("all-time-first", changed(all_time_first))),
        *common(row_by_row, *(name for name in LOOKS if name != "global-data")),
    ),
    right=(row_by_row, with_pad_sequence, stacked, padded_with_f),
)
