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
    """Length of the first tensor in `value`; None where there is none.

    Of a `PackedSequence`, the number of sequences; of texts and numbers in a list, their number.

    >>> num_examples({"name": ["a", "b"], "inputs": torch.zeros(2, 3)})
    2
    """
    leaves = tree_leaves(value, _is_whole)
    for leaf in leaves:
        if isinstance(leaf, PackedSequence):
            return int(leaf.batch_sizes[0])
        if isinstance(leaf, Tensor):
            return len(leaf) if leaf.dim() else 1
        if (parts := _parts_of(leaf)) is not None and (found := num_examples(parts)) is not None:
            return found
    return len(value) if leaves and isinstance(value, (list, tuple)) else None


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
