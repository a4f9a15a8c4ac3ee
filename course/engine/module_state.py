"""What modules hold besides their state_dict, and the next step depends on.

Frozen or not, train or eval mode, a plain counter or tensor in `forward`, a buffer registered with
`persistent=False`: a callback or the model itself may change them during the run, and in a new
process they would start again. What has changed since the run began is saved in the checkpoint and
restored; everything else stays as the new process sets it. Generators of their own are restored
too, also those of functions: a `loss_of`, or a step of the user's own.

Source: Lecture 3, "Saving and loading"; ledger C10, F127.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from course.engine.own_state import MOST_BYTES, PLAIN
from course.state.generators import Own, own_generators

TORCHS = set(vars(nn.Module())) - {"training"}
"""Attributes that torch itself keeps in each module."""
ADDRESS = re.compile(r" at 0x[0-9a-f]+")
"""Is another one in each process."""


class ModuleState:
    """Flags, plain values and unsaved buffers of modules, compared with those when the run began.

    Args:
        parts: By name, such as the model and the criterion; of what is not a module, only the
            generators are looked for.
    """

    def __init__(self, parts: Mapping[str, Any]) -> None:
        self._parts = dict(parts)
        self._modules = {name: m for name, m in parts.items() if isinstance(m, nn.Module)}
        self._first = {name: _copied(value) for name, value in self._values()}
        self._restored: set[str] = set()
        self.began = self.described()
        """What `described` gave when the run began."""

    def described(self) -> dict[str, str]:
        """The model's modules in words, each with its settings and what is frozen in it."""
        model = self._modules["model"]
        return {path: _words(module) for path, module in model.named_modules(prefix="model")}

    def now(self) -> dict[str, Any]:
        """All of it, by name."""
        return dict(self._values())

    def changed(self) -> dict[str, Any]:
        """What differs from when the run began, in this process or in those before it."""
        return {
            name: value
            for name, value in self._values()
            if name in self._restored
            or name not in self._first
            or not _same(self._first[name], value)
        }

    def put_back(self, values: Mapping[str, Any]) -> None:
        """Restore what `changed` gave; tensors in place, on their device."""
        self._restored |= values.keys()
        owners = {path: owner for path, owner, _ in self._owners()}
        for name, value in values.items():
            path, _, attribute = name.rpartition(".")
            if path not in owners:
                continue
            here = getattr(owners[path], attribute, None)
            if isinstance(value, Tensor):
                device = here.device if isinstance(here, Tensor) else self._device
                value = value.detach().to(device, copy=True)
                if isinstance(here, Tensor) and here.shape == value.shape:
                    with torch.no_grad():
                        here.copy_(value)
                    continue
            setattr(owners[path], attribute, value)

    def generators(self) -> list[Own]:
        """The parts' own generators, each once, in an order determined by the code."""
        roots = []
        for part in self._parts.values():
            modules = part.modules() if isinstance(part, nn.Module) else ()
            roots += [value for m in modules for name, value in vars(m).items() if _is_own(name)]
            roots += [] if isinstance(part, nn.Module) else [part]
        found = {id(own): own for root in roots for own in own_generators(root)}
        return list(found.values())

    @property
    def _device(self) -> torch.device:
        """Where the model is."""
        first = next(self._modules["model"].parameters(), torch.empty(0))
        return first.device

    def _owners(self) -> Iterator[tuple[str, Any, list[str]]]:
        """(path, module or parameter, names of what may change in it) of each."""
        for root, top in self._modules.items():
            for path, module in top.named_modules(prefix=root):
                names = [n for n, value in vars(module).items() if _is_own(n) and _is_kept(value)]
                yield path, module, [*names, *getattr(module, "_non_persistent_buffers_set", ())]
            for path, parameter in top.named_parameters(prefix=root):
                yield path, parameter, ["requires_grad"]

    def _values(self) -> Iterator[tuple[str, Any]]:
        """(name, value) of each."""
        for path, owner, names in self._owners():
            for name in names:
                yield f"{path}.{name}", getattr(owner, name)


def _is_own(name: str) -> bool:
    """Whether an attribute of a module is its author's, not torch's."""
    return name not in TORCHS


def _is_kept(value: Any) -> bool:
    """A plain value, or a tensor that is neither data nor a part of a graph."""
    if isinstance(value, Tensor):
        small = value.layout == torch.strided and value.nbytes <= MOST_BYTES
        return small and not value.requires_grad
    return type(value) in PLAIN


def _words(module: nn.Module) -> str:
    options = ADDRESS.sub("", module.extra_repr())
    own = module.named_parameters(recurse=False)
    frozen = ", ".join(name for name, parameter in own if not parameter.requires_grad)
    return f"{type(module).__name__}({options})" + (f" with {frozen} frozen" if frozen else "")


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        alike = one.shape == other.shape and one.device == other.device
        return alike and torch.equal(one, other)
    return type(one) is type(other) and one == other
