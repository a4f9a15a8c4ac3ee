"""What modules hold besides their state_dict, and the next step depends on.

Frozen or not, train or eval mode, a plain counter in `forward`, a buffer registered with
`persistent=False`: a callback or the model itself may change them during the run, and in a new
process they would start again. What has changed since the run began is saved in the checkpoint and
restored; everything else stays as the new process sets it.

Source: Lecture 3, "Saving and loading"; ledger C10, F127.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from course.engine.own_state import PLAIN

TORCHS = set(vars(nn.Module())) - {"training"}
"""Attributes that torch itself keeps in each module."""
ADDRESS = re.compile(r" at 0x[0-9a-f]+")
"""Is another one in each process."""


class ModuleState:
    """Flags, plain values and unsaved buffers of modules, compared with those when the run began.

    Args:
        modules: By name, such as the model and the criterion; what is not a module is left out.
    """

    def __init__(self, modules: Mapping[str, Any]) -> None:
        self._modules = {name: m for name, m in modules.items() if isinstance(m, nn.Module)}
        self._first = {name: _copied(value) for name, _, _, value in self._values()}
        self._restored: set[str] = set()
        self.began = self.described()
        """What `described` gave when the run began."""

    def described(self) -> dict[str, str]:
        """The model's modules in words, each with its settings and what is frozen in it."""
        model = self._modules["model"]
        return {path: _words(module) for path, module in model.named_modules(prefix="model")}

    def changed(self) -> dict[str, Any]:
        """What differs from when the run began, in this process or in those before it."""
        return {
            name: value
            for name, _, _, value in self._values()
            if name in self._restored
            or name not in self._first
            or not _same(self._first[name], value)
        }

    def put_back(self, values: Mapping[str, Any]) -> None:
        """Restore what `changed` gave; tensors in place, on their device."""
        self._restored |= values.keys()
        for name, owner, attribute, here in list(self._values()):
            if name not in values:
                continue
            value = values[name]
            if isinstance(value, Tensor) and isinstance(here, Tensor):
                value = value.to(here.device)
                if here.shape == value.shape:
                    with torch.no_grad():
                        here.copy_(value)
                    continue
            setattr(owner, attribute, value)

    def _values(self) -> Iterator[tuple[str, Any, str, Any]]:
        """(name, owner, attribute, value) of each."""
        for root, top in self._modules.items():
            for path, module in top.named_modules(prefix=root):
                for name, value in vars(module).items():
                    if type(value) in PLAIN and name not in TORCHS:
                        yield f"{path}.{name}", module, name, value
                for name in getattr(module, "_non_persistent_buffers_set", ()):
                    yield f"{path}.{name}", module, name, getattr(module, name)
            for path, parameter in top.named_parameters(prefix=root):
                frozen = "requires_grad"
                yield f"{path}.{frozen}", parameter, frozen, parameter.requires_grad


def _words(module: nn.Module) -> str:
    options = ADDRESS.sub("", module.extra_repr())
    own = module.named_parameters(recurse=False)
    frozen = ", ".join(name for name, parameter in own if not parameter.requires_grad)
    return f"{type(module).__name__}({options})" + (f" with {frozen} frozen" if frozen else "")


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.shape == other.shape and torch.equal(one, other)
    return type(one) is type(other) and one == other
