"""Giving everything back as it came: a snapshot of what can be reached, and its return.

From the given values we walk everything that a step could change: modules, optimizers,
schedulers, loaders, data sets, lists, dictionaries, tensors, generators, and what the user's
functions hold in their closures and read from their globals. Each gets an entry that puts it back
in place, under its own identity. A live iterator cannot be saved.

Pass large read-only objects (a data set) as `only_read`: their lists, counters and generators are
kept, their tensors and arrays are not copied. With `rng=False` the global random numbers go on.
"""

from __future__ import annotations

import operator
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course.state.generators import Own, rewinder
from course.state.seeding import global_rewinder

FOREIGN = {
    "numpy", "pandas", "matplotlib", "sklearn", "scipy", "rich", "typer", "pytest", "_pytest",
    "PIL",
}  # fmt: skip
WORD = 8
"""Bytes of an int64."""


class Snapshot:
    """The state of all that can be reached from the roots; `restore` may be called many times."""

    def __init__(self, *roots: Any, only_read: Iterable[Any] = (), rng: bool = True) -> None:
        self._entries: list[Callable[[], None]] = []
        self._seen: dict[int, Any] = {}
        self._rewind = global_rewinder() if rng else None
        self._flags = (torch.is_grad_enabled(), torch.get_default_dtype())
        self._copies = False
        self._walk(list(only_read))
        self._copies = True
        self._walk(list(roots))

    def restore(self) -> None:
        """Everything as it was when the snapshot was taken, random number generators included."""
        torch.set_grad_enabled(self._flags[0])
        torch.set_default_dtype(self._flags[1])
        with torch.no_grad():
            for entry in self._entries:
                entry()
        if self._rewind is not None:
            self._rewind()

    def _walk(self, todo: list[Any]) -> None:
        while todo:
            todo.extend(self._keep(todo.pop()))

    def _keep(self, thing: Any) -> list[Any]:
        """Remember one thing; what it leads to."""
        if id(thing) in self._seen or _is_inert(thing):
            return []
        self._seen[id(thing)] = thing
        if isinstance(thing, Tensor):
            return self._keep_tensor(thing)
        if isinstance(thing, np.ndarray):
            return self._keep_array(thing)
        if isinstance(thing, dict):
            return self._keep_dict(thing)
        if isinstance(thing, (list, set)) or type(thing).__name__ == "deque":
            return self._keep_collection(thing)
        if isinstance(thing, (tuple, frozenset)):
            return list(thing)
        if isinstance(thing, Own):
            self._entries.append(rewinder(thing))
            return []
        if isinstance(thing, types.MethodType):
            return [thing.__self__, thing.__func__]
        if isinstance(thing, partial):
            return [thing.func, thing.args, thing.keywords]
        if isinstance(thing, types.FunctionType):
            return self._keep_function(thing)
        return self._keep_object(thing)

    def _keep_tensor(self, tensor: Tensor) -> list[Any]:
        if tensor.layout != torch.strided or tensor.is_meta or not self._copies:
            return []
        alias, copy, needs_grad = tensor.data, tensor.data.clone(), tensor.requires_grad
        grad = tensor.grad if tensor.is_leaf else None
        grad_copy = None if grad is None else grad.detach().clone()
        hooks, is_unchanged = tensor._backward_hooks, _comparison(alias, copy)

        def entry() -> None:
            if tensor.data_ptr() != alias.data_ptr() or tensor.dtype != alias.dtype:
                tensor.data = alias
            if tensor.shape != alias.shape:
                tensor.data = alias
            if not is_unchanged():  # what did not change may be read-only memory
                alias.copy_(copy)
            if not tensor.is_leaf:
                return
            if tensor.requires_grad != needs_grad:
                tensor.requires_grad_(needs_grad)
            if grad is not None:
                grad.data.copy_(grad_copy)
            if tensor.grad is not grad:
                tensor.grad = grad
            if tensor._backward_hooks is not hooks:
                tensor._backward_hooks = hooks

        self._entries.append(entry)
        return [] if hooks is None else [hooks]

    def _keep_array(self, array: np.ndarray) -> list[Any]:
        changes = array.flags.writeable and array.dtype != object
        if self._copies and changes and not isinstance(array, np.memmap):
            copy = array.copy()
            self._entries.append(lambda: np.copyto(array, copy))
        return []

    def _keep_dict(self, mapping: dict) -> list[Any]:
        keys, values = list(mapping), list(mapping.values())

        def entry() -> None:
            if (
                len(mapping) != len(keys)
                or not all(map(operator.is_, mapping, keys))
                or not all(map(operator.is_, mapping.values(), values))
            ):
                mapping.clear()
                mapping.update(zip(keys, values, strict=True))

        self._entries.append(entry)
        return [*keys, *values]

    def _keep_collection(self, many: Any) -> list[Any]:
        items = list(many)

        def entry() -> None:
            if isinstance(many, list):
                many[:] = items
            else:
                many.clear()
                (many.update if isinstance(many, set) else many.extend)(items)

        self._entries.append(entry)
        # A long list of plain numbers or strings leads nowhere.
        return [] if all(_is_inert(item) for item in items) else items

    def _keep_function(self, function: types.FunctionType) -> list[Any]:
        found: list[Any] = [function.__defaults__, function.__kwdefaults__, function.__dict__]
        for cell in function.__closure__ or ():
            try:
                contents = cell.cell_contents
            except ValueError:  # not yet assigned
                continue
            self._entries.append(partial(setattr, cell, "cell_contents", contents))
            found.append(contents)
        scope = function.__globals__
        names = [name for name in _names(function.__code__) if name in scope]
        for name in names:
            value = scope[name]
            if not isinstance(value, (types.ModuleType, type)):
                self._entries.append(partial(scope.__setitem__, name, value))
                found.append(value)
        return found

    def _keep_object(self, thing: Any) -> list[Any]:
        state = getattr(thing, "__dict__", None)
        if isinstance(state, dict):
            return [state]
        slots = [name for kind in type(thing).__mro__ for name in _slots(kind)]
        values = [(name, getattr(thing, name)) for name in slots if hasattr(thing, name)]
        for name, value in values:
            self._entries.append(partial(_try_setattr, thing, name, value))
        return [value for _, value in values]


def reached(*roots: Any) -> list[Any]:
    """Everything that a snapshot of these would walk through; nothing is copied.

    Objects that share memory or identity with what should be apart can be found among them.
    """
    return list(Snapshot(only_read=roots, rng=False)._seen.values())


@contextmanager
def kept(*things: Any, only_read: Iterable[Any] = (), rng: bool = True) -> Iterator[None]:
    """Afterwards the things, and all that can be reached from them, are as before."""
    snapshot = Snapshot(*things, only_read=only_read, rng=rng)
    try:
        yield
    finally:
        snapshot.restore()


def _comparison(one: Tensor, other: Tensor) -> Callable[[], bool]:
    """Whether two tensors hold the same bytes, asked again and again: how to look is settled once,
    since a data set may be a list of thousands."""
    plain = type(one) is Tensor and not (one.is_conj() or one.is_neg() or one.is_quantized)
    if not plain or not one.is_contiguous() or not other.is_contiguous():
        return partial(_same_bits, one, other)
    parts = [*zip(_words(one), _words(other), strict=False)]
    if [len(a) for a, _ in parts] != [len(b) for _, b in parts]:
        return partial(_same_bits, one, other)
    if len(parts) == 1:
        return partial(torch.equal, *parts[0])
    return lambda: all(torch.equal(a, b) for a, b in parts)


def _words(tensor: Tensor) -> list[Tensor]:
    """The bytes of a contiguous tensor, eight at a time as whole numbers, and those left over; as
    they are where the first does not lie on such a place in memory.

    Comparing so takes an eighth of the time that comparing bytes does.
    """
    flat = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    flat = flat.flatten().view(torch.uint8)
    whole = len(flat) // WORD * WORD
    if not whole or flat.storage_offset() % WORD:
        return [flat]
    return [flat[:whole].view(torch.int64), *([flat[whole:]] if whole < len(flat) else [])]


def _same_bits(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors hold the same bytes: nan is itself here, and 0.0 is not -0.0."""
    if one.layout != torch.strided or (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    pair = (torch.view_as_real(t) if t.is_complex() else t for t in (one, other))
    return torch.equal(*(t.contiguous().flatten().view(torch.uint8) for t in pair))


def _is_inert(thing: Any) -> bool:
    """Plain values, classes, modules of Python, and objects of libraries that no step changes."""
    if thing is None or isinstance(
        thing, (bool, int, float, complex, str, bytes, type, types.ModuleType, torch.device)
    ):
        return True
    if isinstance(thing, (torch.Size, torch.dtype, types.BuiltinFunctionType)):
        return True
    if isinstance(thing, (Tensor, np.ndarray, dict, list, set, tuple, Own)):
        return False
    if isinstance(thing, (partial, types.MethodType)):
        return False
    module = getattr(thing, "__module__", None) if isinstance(thing, types.FunctionType) else None
    root = str(module or type(thing).__module__).split(".")[0]
    if isinstance(thing, types.FunctionType):
        return root in FOREIGN or root == "torch" or _is_standard(root)
    if type(thing).__name__ in ("deque", "SimpleNamespace"):
        return False
    return root in FOREIGN or _is_standard(root)


def _is_standard(root: str) -> bool:
    return root in sys.stdlib_module_names and root != "__main__"


def _names(code: types.CodeType) -> set[str]:
    """Global names that a function reads, also in the functions inside it."""
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return set(code.co_names).union(*(_names(c) for c in inner))


def _slots(kind: type) -> list[str]:
    slots = kind.__dict__.get("__slots__", ())
    return [slots] if isinstance(slots, str) else list(slots)


def _try_setattr(thing: Any, name: str, value: Any) -> None:
    try:
        setattr(thing, name, value)
    except (AttributeError, TypeError):  # a read-only slot cannot have changed either
        return
