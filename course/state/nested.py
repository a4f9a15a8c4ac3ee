"""Nested tensors: a batch may be a tensor, or tuples, lists, dictionaries and objects of tensors.

torch's own `pytree` walks the plain containers and whatever a library has registered with it (the
outputs of Hugging Face models). Mappings of other classes and dataclasses are walked here, and an
object with a method of its own, e.g. `PackedSequence.to`, is left to that.

Source: Lecture 3, "The batch contract"; ledger F07.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

Change = Callable[[Any], Any]


def moved(value: Any, device: torch.device) -> Any:
    """`value` with every tensor in it on `device`; pinned memory is copied without waiting.

    Towards the CPU every copy is waited for, as nothing else would wait before it is read.
    """
    if isinstance(value, Tensor):  # the hot path
        if value.device == device:
            return value
        return value.to(device, non_blocking=device.type != "cpu")
    if type(value) in (tuple, list):  # likewise
        return type(value)([moved(part, device) for part in value])

    def move(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return moved(leaf, device)
        return leaf.to(device) if _has(leaf, "to") else leaf

    return mapped(move, value)


def cloned(value: Any) -> Any:
    """`value` with a copy of every tensor in it: what a step does to one reaches no other."""

    def clone(leaf: Any) -> Any:
        if isinstance(leaf, PackedSequence):
            return leaf._replace(data=leaf.data.clone())
        return leaf.clone() if isinstance(leaf, Tensor) or _has(leaf, "clone") else leaf

    return mapped(clone, value)


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Every tensor in `value`, in order; those of a `PackedSequence` are its data alone."""
    for leaf in tree_leaves(value, _is_whole):
        if isinstance(leaf, Tensor):
            yield leaf
        elif isinstance(leaf, PackedSequence):
            yield leaf.data
        elif (parts := _parts_of(leaf)) is not None:
            yield from tensors_in(parts)


def num_examples(value: Any) -> int | None:
    """How many examples a batch holds; None where it holds nothing that can be counted.

    Tensors of one length have a row per example, as torch's `default_collate` makes them. Where
    lengths differ, or lists hold dictionaries, numbers or 0-d tensors, the lists have an entry per
    example, e.g. images and the boxes in them; else the first tensor decides. Of a
    `PackedSequence`, the number of sequences; of texts and numbers in a list, their number.

    >>> num_examples({"name": ["a", "b"], "inputs": torch.zeros(2, 3)})
    2
    >>> num_examples(([torch.zeros(3, 8, 8)] * 4, [{"boxes": torch.zeros(5, 4)}] * 4))
    4
    """
    if isinstance(value, Tensor):
        return len(value) if value.dim() else 1
    fields = _fields(value)
    if fields and all(isinstance(field, Tensor) and field.dim() for field in fields):
        return len(fields[0])  # the hot path
    lengths = list(_lengths(value))
    rows = [length for length in lengths if length is not None]
    entries = _entries(value) if len(set(rows)) != 1 or _lists_examples(value) else None
    if entries is not None:
        return entries
    if lengths:
        return rows[0] if rows else 1
    return len(value) if value and isinstance(value, (list, tuple)) else None


def _lengths(value: Any) -> Iterator[int | None]:
    """The length of each tensor in `value`; None for a 0-d one."""
    for leaf in tree_leaves(value, _is_whole):
        if isinstance(leaf, PackedSequence):
            yield int(leaf.batch_sizes[0])
        elif isinstance(leaf, Tensor):
            yield len(leaf) if leaf.dim() else None
        elif (parts := _parts_of(leaf)) is not None:
            yield from _lengths(parts)


def _lists_examples(value: Any) -> bool:
    """Whether lists in a batch hold what is no field of a batch, so that an entry is an example."""
    fields = _fields(value)
    if fields and all(isinstance(field, Mapping) for field in fields):
        return not isinstance(value, Mapping) and None in _lengths(value)
    entries = [entry for field in fields if isinstance(field, (list, tuple)) for entry in field]
    return any(isinstance(e, (Mapping, int, float, str)) or _is_0d(e) for e in entries)


def _entries(value: Any) -> int | None:
    """The length that lists side by side have in common, with tensors beside them; None without."""
    fields = _fields(value)
    if any(isinstance(field, (list, tuple)) for field in fields):
        several = (field for field in fields if isinstance(field, (list, tuple, Tensor)))
        lengths = {len(field) for field in several if not _is_0d(field)}
        return lengths.pop() if len(lengths) == 1 else None
    one_each = not isinstance(value, Mapping) and all(
        isinstance(field, Mapping) or _is_0d(field) for field in fields
    )
    return len(fields) if fields and one_each else None


def _fields(value: Any) -> list[Any]:
    """What a batch has side by side: the parts of a tuple, list or dictionary."""
    if isinstance(value, Mapping):
        return list(value.values())
    return list(value) if isinstance(value, (list, tuple)) else []


def _is_0d(value: Any) -> bool:
    return isinstance(value, Tensor) and not value.dim()


def mapped(change: Change, value: Any) -> Any:
    """`value` built again with `change` applied to each leaf: tensors, and what is no container."""
    leaves, structure = tree_flatten(value, _is_whole)
    return tree_unflatten([_changed(change, leaf) for leaf in leaves], structure)


def _changed(change: Change, leaf: Any) -> Any:
    parts = _parts_of(leaf)
    if parts is None:
        return change(leaf)
    parts = {name: mapped(change, part) for name, part in parts.items()}
    if isinstance(leaf, Mapping):
        try:
            whole = copy.copy(leaf)
            whole.update(parts)
        except (AttributeError, TypeError):  # a mapping that cannot be written
            return parts
        return whole
    whole = copy.copy(leaf)
    for name, part in parts.items():
        object.__setattr__(whole, name, part)  # also where the dataclass is frozen
    return whole


def _is_whole(value: Any) -> bool:
    """What is not taken apart, though pytree could: it knows by itself how to move and copy."""
    return isinstance(value, PackedSequence)


def _parts_of(leaf: Any) -> dict[Any, Any] | None:
    """What a leaf for pytree holds where it is a container for us; None for anything else."""
    if isinstance(leaf, Mapping) and not _has(leaf, "to"):
        return dict(leaf)
    if dataclasses.is_dataclass(leaf) and not isinstance(leaf, type) and not _has(leaf, "to"):
        return {field.name: getattr(leaf, field.name) for field in dataclasses.fields(leaf)}
    return None


def _has(leaf: Any, method: str) -> bool:
    """Whether an object, not a class or a model, brings this method."""
    return callable(getattr(leaf, method, None)) and not isinstance(leaf, (type, nn.Module))
