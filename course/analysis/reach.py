"""Which attributes of a module are trained, moved and saved with it.

Source: Lecture 3, "nn.Module · the container"; ledger S11, T07, F01, F02, F03.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

DEEP = 3
"""How deeply nested plain lists, tuples and dicts are searched for tensors."""


@dataclass(frozen=True)
class Reach:
    """Which of a module's methods reach all tensors of one attribute."""

    trained: bool
    """In `parameters()`, and requiring a gradient: an optimizer updates them."""
    moved: bool
    """`.to(...)` moves them."""
    saved: bool
    """In `state_dict()`: a checkpoint restores them."""


def reach(module: nn.Module) -> dict[str, Reach]:
    """Which methods reach each attribute of a module that holds tensors; registered ones first.

    Tested on a copy, so the module is unchanged; `.double()` stands for every move.

    Args:
        module: Any module; tensors inside lists, tuples and dictionaries count as their
            attribute's.
    """
    copied = copy.deepcopy(module)
    moved_too = copied.double()
    trained = {id(p) for p in module.parameters() if p.requires_grad}
    saved = {id(value) for value in module.state_dict(keep_vars=True).values()}
    found = {}
    for name, value in attributes(module).items():
        held = tensors_of(value)
        if held:
            after = tensors_of(getattr(moved_too, name))
            found[name] = Reach(
                trained=all(id(t) in trained for t in held),
                moved=all(t.dtype == torch.float64 for t in after if t.is_floating_point()),
                saved=all(id(t) in saved for t in held),
            )
    return found


def attributes(module: nn.Module) -> dict[str, Any]:
    """Everything assigned to a module: parameters, buffers, sub-modules, and the rest."""
    plain = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    named = {**module._parameters, **module._buffers, **module._modules}
    return {name: value for name, value in {**named, **plain}.items() if name != "training"}


def tensors_of(value: Any) -> list[Tensor]:
    """The tensors in an attribute, including those in modules, lists, tuples and dictionaries."""
    found: list[Tensor] = []
    for _, held in held_in(value):
        found += [held] if isinstance(held, Tensor) else [*held.parameters(), *held.buffers()]
    return found


def held_in(
    value: Any, where: str = "", deep: int = DEEP
) -> Iterator[tuple[str, Tensor | nn.Module]]:
    """The tensors and modules in an attribute, each with its path, e.g. `blocks[1]`.

    Args:
        value: A tensor or a module; lists, tuples and dictionaries of such.
        where: The attribute's name.
        deep: How deeply nested lists, tuples and dictionaries are searched.
    """
    if isinstance(value, (Tensor, nn.Module)):
        yield where, value
    elif deep and isinstance(value, (list, tuple, dict)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from held_in(item, f"{where}[{key!r}]", deep - 1)
