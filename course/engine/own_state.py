"""What the user's own loaders, samplers and data sets remember from epoch to epoch.

A sampler may count its epochs, or shuffle its own list in place. In a new process it would start
again with its first epoch's order, and the resumed run would silently be a different one. So their
plain values, lists, arrays and tensors are compared: what has changed since the run began is saved
in the checkpoint and restored. For a data set with rows by position, only plain values are: it may
keep a cache, or hold objects that record what is done. The position of an iterator that lives from
epoch to epoch cannot be read; a checkpoint names it, and resuming from that checkpoint is refused.

Source: Lecture 3, "Saving and loading"; ledger C10, C14, F86, F103.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Sampler

PLAIN = (bool, int, float, str, type(None))
MOST_OBJECTS = 64
"""Objects looked into: one that answers to every name must not be looked into for ever."""
LONGEST = 1000
"""The entries of longer lists are not looked into, only which they are and in which order."""
MOST_BYTES = 2**24
"""Larger tensors and arrays are data, which is only read: 16 MiB hold the order of two million."""
ARRAY, DEQUE = "numpy array", "deque"
"""How a checkpoint says what a value was."""
NOT_OWN = {"torch", "course", "numpy", "pandas", "PIL", "torchvision", "__future__"}


class OwnState:
    """The values of a loader's own parts, compared with those at the start of the run.

    Args:
        roots: Returns the loader and its parts. Called each time, because keeping a DataLoader
            keeps its workers alive.
    """

    def __init__(self, roots: Callable[[], list[Any]]) -> None:
        self._roots = roots
        self._first = self._values()
        self._restored: set[str] = set()
        self._iterators: dict[str, Any] = {}

    def begin_epoch(self) -> None:
        """Record which iterators there are: those that outlive the epoch cannot be resumed."""
        self._iterators = dict(self._iterators_now())

    def changed(self) -> dict[str, Any]:
        """Values that differ from when the run began; settings stay those of the new process."""
        return {name: _saved(value) for name, value in self._changes() if _can_be_saved(value)}

    def lost(self) -> list[str]:
        """What changes from epoch to epoch but cannot be saved in a checkpoint, in words."""
        objects = [name for name, value in self._changes() if not _can_be_saved(value)]
        living = dict(self._iterators_now())
        same = [name for name, value in living.items() if self._iterators.get(name) is value]
        owners = dict(self._owners())
        pairs = (name.rsplit(".", 1) for name in (*objects, *same))
        return [f"{attribute} of {type(owners[path]).__name__}" for path, attribute in pairs]

    def _changes(self) -> Iterator[tuple[str, Any]]:
        for name, value in self._values().items():
            first = self._first.get(name, self)
            if name in self._restored or not _same(first, value):
                yield name, value

    def put_back(self, values: dict[str, Any]) -> None:
        """Restore what was saved, and everything else to its state when the run began."""
        owners = dict(self._owners())
        self._restored |= values.keys()  # changed in an earlier call, if not in this one
        for name, value in (self._first | values).items():
            path, attribute = name.rsplit(".", 1)
            if path in owners:
                _put(owners[path], attribute, _read(value))

    def _owners(self) -> Iterator[tuple[str, Any]]:
        """Objects of the user's own that the roots lead to, each once, with the way to it."""
        waiting = [(str(number), root) for number, root in enumerate(self._roots())][::-1]
        seen: dict[int, Any] = {}
        while waiting and len(seen) < MOST_OBJECTS:
            path, thing = waiting.pop()
            if id(thing) in seen or not _is_own(thing):
                continue
            seen[id(thing)] = thing
            yield path, thing
            if _is_data(thing):
                continue
            inner = ((f"{path}.{name}", part) for name, part in vars(thing).items())
            waiting += [(way, part) for way, part in inner if _is_own(part)][::-1]

    def _values(self) -> dict[str, Any]:
        return {
            f"{path}.{name}": _copied(value)
            for path, owner in self._owners()
            for name, value in vars(owner).items()
            if (type(value) in PLAIN if _is_data(owner) else _is_value(value))
        }

    def _iterators_now(self) -> Iterator[tuple[str, Any]]:
        for path, owner in self._owners():
            for name, value in () if _is_data(owner) else vars(owner).items():
                if hasattr(value, "__next__") and name != "_iterator":  # that is a DataLoader's
                    yield f"{path}.{name}", value


def _is_own(thing: Any) -> bool:
    """An object of a class that is neither Python's, torch's nor this project's."""
    root = type(thing).__module__.split(".")[0]
    library = root in NOT_OWN or (root in sys.stdlib_module_names and root != "__main__")
    attributes = isinstance(getattr(thing, "__dict__", None), dict)
    return attributes and not library and not isinstance(thing, (nn.Module, type))


def _is_data(thing: Any) -> bool:
    """Rows by position: their order is others' work, and its lists are caches, logs or the data."""
    return hasattr(type(thing), "__getitem__") and not isinstance(thing, Sampler)


def _is_value(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value.layout == torch.strided and value.nbytes <= MOST_BYTES
    if isinstance(value, np.ndarray):
        return value.dtype != object and value.nbytes <= MOST_BYTES
    return type(value) in (*PLAIN, list, tuple, set, dict, deque)


def _copied(value: Any) -> Any:
    """A copy that a change in place does not reach; of a long collection, of its entries' order."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, np.ndarray):
        return value.copy()
    if type(value) is dict:
        short = len(value) <= LONGEST
        return {key: _copied(entry) for key, entry in value.items()} if short else dict(value)
    if type(value) in (list, tuple, set, deque):
        entries = map(_copied, value) if len(value) <= LONGEST else value
        return type(value)(entries)
    return value


def _same(one: Any, other: Any) -> bool:
    """Whether two values are equal; tensors and arrays number by number."""
    if type(one) is not type(other):
        return False
    if isinstance(one, Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, np.ndarray):
        numbers = one.dtype.kind in "fc"
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=numbers)
    if isinstance(one, dict) and len(one) <= LONGEST:
        pairs = ((one[key], other[key]) for key in one if key in other)
        return one.keys() == other.keys() and all(_same(*pair) for pair in pairs)
    if isinstance(one, (list, tuple, deque)) and len(one) <= LONGEST:
        return len(one) == len(other) and all(map(_same, one, other))
    try:
        return bool(one is other or one == other)
    except (RuntimeError, ValueError):  # entries that are tensors, in another order
        return False


def _can_be_saved(value: Any) -> bool:
    """Whether a checkpoint reads it back as it was."""
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "biuf"
    if type(value) in PLAIN or isinstance(value, Tensor):
        return True
    if type(value) is dict:
        return all(type(key) in PLAIN and _is_saved_inside(entry) for key, entry in value.items())
    return all(map(_is_saved_inside, value))


def _is_saved_inside(entry: Any) -> bool:
    """Inside a collection, arrays would come back as tensors and a deque as a list."""
    inside = type(entry) in (*PLAIN, list, tuple, set, dict) or isinstance(entry, Tensor)
    return inside and _can_be_saved(entry)


def _saved(value: Any) -> Any:
    """A value as a checkpoint holds it: no arrays, no deques."""
    if isinstance(value, np.ndarray):
        return {ARRAY: torch.from_numpy(value)}
    return {DEQUE: list(value)} if isinstance(value, deque) else value


def _read(value: Any) -> Any:
    """What `_saved` was given."""
    if isinstance(value, dict) and set(value) in ({ARRAY}, {DEQUE}):
        ((kind, content),) = value.items()
        return content.numpy().copy() if kind == ARRAY else deque(content)
    return value


def _put(owner: Any, attribute: str, value: Any) -> None:
    """Set a value, in place where others may hold the same list, array or tensor."""
    here = vars(owner).get(attribute)
    if _same(here, value):
        return
    if _fits(here, value):
        with torch.no_grad():
            here[...] = value
        return
    if type(here) is type(value) and isinstance(value, list):
        here[:] = _copied(value)
    elif isinstance(here, deque):
        here.clear()
        here.extend(value)
    else:
        setattr(owner, attribute, _copied(value))


def _fits(here: Any, value: Any) -> bool:
    """Whether a tensor or array can take another one's numbers."""
    numbers = type(here) is type(value) and isinstance(value, (Tensor, np.ndarray))
    return numbers and here.shape == value.shape and here.dtype == value.dtype
