"""Collate: examples of different lengths become one padded batch, with a mask of what is real.

Stacking needs equal shapes, so examples are padded to the longest of the batch (F89). The mask says
which cells are real: a mean, an attention or a loss must leave the others out.

Source: the training-loop chapter, "Collate"; ledger N08, C19.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor


class PaddedBatch(NamedTuple):
    """A batch of sequences, all as long as the longest."""

    inputs: Tensor
    """[B, T, ...], padded at the end."""
    targets: Tensor
    """[B, ...]; with `per_token`, [B, T] padded with `ignore_index`."""
    mask: Tensor
    """[B, T], bool: True where `inputs` is real."""


def pad_collate(
    examples: Sequence[tuple[Any, Any]],
    *,
    pad_value: float = 0,
    per_token: bool = False,
    ignore_index: int = -100,
) -> PaddedBatch:
    """Pad (sequence, target) pairs; use it as `DataLoader(collate_fn=pad_collate)`.

    Args:
        examples: Pairs of a sequence [T_i, ...] and a target. Integers give long, floats float32.
        pad_value: Value of the padded cells, such as the tokenizer's pad id.
        per_token: Each target is [T_i] and is padded too, instead of one shape for all.
        ignore_index: Target of a padded token; cross-entropy ignores -100 by default.

    Raises:
        ValueError: No examples, sequences that differ in more than their length, or, with
            `per_token`, not as many targets as tokens.

    >>> batch = pad_collate([([5, 6, 7], 1), ([8], 0)])
    >>> batch.inputs.tolist(), batch.mask.sum(1).tolist(), batch.targets.tolist()
    ([[5, 6, 7], [8, 0, 0]], [3, 1], [1, 0])

    Source: the training-loop chapter, "Collate"; N08: lengths 12 and 47 waste 35 of 94 cells.
    """
    if not examples:
        raise ValueError("there are no examples: a batch needs at least 1. Is the sampler empty?")
    sequences = [_tensor(sequence) for sequence, _ in examples]
    targets = [_tensor(target) for _, target in examples]
    lengths = [len(sequence) if sequence.dim() else _scalar(sequence) for sequence in sequences]
    if len({sequence.shape[1:] for sequence in sequences if len(sequence)}) > 1:
        shapes = sorted({tuple(sequence.shape[1:]) for sequence in sequences})
        raise ValueError(
            f"items of the sequences have shapes {shapes}: expected a single shape. Only the first "
            "dimension may differ; resize the others in the data set."
        )
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    if per_token and (got := [len(t) if t.dim() else 0 for t in targets]) != lengths:
        raise ValueError(
            f"{got} targets for sequences of {lengths} tokens: per_token=True expects one per "
            "token."
        )
    return PaddedBatch(
        _pad(sequences, lengths, pad_value),
        _pad(targets, lengths, ignore_index) if per_token else torch.stack(targets),
        mask,
    )


def by_length(lengths: Sequence[int], batch_size: int) -> Iterator[list[int]]:
    """Batches of indices of similar length, shortest first: less padding; only for scoring.

    >>> list(by_length([9, 2, 8, 3], 2))
    [[1, 3], [2, 0]]
    """
    if batch_size < 1:
        raise ValueError(f"batch_size = {batch_size}: a batch needs at least 1 example.")
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    for first in range(0, len(order), batch_size):
        yield order[first : first + batch_size]


def _pad(parts: list[Tensor], lengths: list[int], value: float) -> Tensor:
    model = next((part for part in parts if len(part)), parts[0])
    dtypes = (part.dtype for part in parts if len(part))  # [1, 2] with [0.5] is not integer
    model = model.to(reduce(torch.promote_types, dtypes, model.dtype))
    padded = model.new_full((len(parts), max(lengths), *model.shape[1:]), value)
    for row, part in zip(padded, parts, strict=True):
        row[: len(part)] = part.to(padded.dtype) if len(part) else 0
    return padded


def _tensor(value: Any) -> Tensor:
    tensor = value if isinstance(value, Tensor) else torch.as_tensor(value)
    if tensor.dtype == torch.float64:  # Python floats and NumPy's default: layers are float32
        return tensor.float()
    return tensor.long() if tensor.dtype in (torch.int32, torch.int16, torch.int8) else tensor


def _scalar(sequence: Tensor) -> int:
    raise ValueError(
        f"a sequence is the single number {sequence.item()}: expected [T, ...]. "
        "Examples are pairs (sequence, target)."
    )
