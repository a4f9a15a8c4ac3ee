"""Relations on items read one by one: each stays as it was, and draws its own random numbers.

A batch is made of items that are all held at once, so an item that changes when the next is read
never gets into the batch.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.state.nested import tensors_in

HELD = 8
"""Items that are held at once, and asked what they draw: so many are alike by no chance."""
ORDERS = {"permutation", "permuted", "shuffle", "getrandbits", "seed"}
"""Methods that make an order, which may be the same for all on purpose, and what they call."""


def stays(session: Session) -> Iterator[Finding]:
    """An item that was returned stays as it is when others are read."""
    loader = session.setup.train_loader
    data = _asked(loader)
    if getattr(loader, "batch_sampler", None) is None or getattr(loader, "batch_size", 2) == 1:
        raise NotChecked("items are not joined into batches")
    with session.observe():
        held = [_parts(data[index]) for index in range(min(HELD, len(data)))]
        held, was = zip(*held, strict=True)
        now = [[part.clone() for part in item] for item in held]
    changed = sum(
        any(a.shape != b.shape or not torch.equal(a, b) for a, b in zip(one, other, strict=True))
        for one, other in zip(was[:-1], now[:-1], strict=True)
    )
    if 2 * changed > len(held):
        yield Finding(
            "memory-shared", "error",
            f"{changed} of {len(held)} items changed after they were returned, when others were "
            "read: all share one buffer, which is refilled, so in a batch all rows are the last "
            "one.",
            {"items": len(held), "changed": changed},
            "return torch.tensor(buffer), label  # a copy; torch.from_numpy(buffer) shares memory",
        )  # fmt: skip


def _parts(item: Any) -> tuple[list[Tensor], list[Tensor]]:
    """Tensors and arrays of an item as they are, and copies of them."""
    parts = [torch.as_tensor(leaf).detach() for leaf in tree_leaves(item)
             if isinstance(leaf, (Tensor, np.ndarray))]  # fmt: skip
    parts = [part.nan_to_num() if part.isnan().any() else part for part in parts]
    return parts, [part.clone() for part in parts]


def rows_apart(session: Session) -> Iterator[Finding]:
    """Rows of a batch with different targets are not all the same."""
    same = seen = 0
    for batch in session.epoch.batches:
        floats = [t for t in tensors_in(batch) if t.is_floating_point() and t.dim() > 1]
        others = [t for t in tensors_in(batch) if t.dim() == 1 or not t.is_floating_point()]
        if len(floats) != 1 or not others or len(floats[0]) < HELD or floats[0][0].numel() < 2:
            raise NotChecked("batches are not one table of rows with targets")
        x = floats[0]
        seen += 1
        differ = any(t.dim() and len(t) == len(x) and bool((t != t[:1]).any()) for t in others)
        same += differ and bool((x == x[:1]).all()) and bool((x != x.flatten()[0]).any())
    if seen > 1 and same == seen:
        yield Finding(
            "memory-shared", "error",
            f"In each of {seen} batches all rows are the same, with different targets: they were "
            "collected in one buffer that was refilled for each.",
            {"batches": seen, "rows": len(session.epoch.batches[0])},
            "rows.append(buffer.copy())  # else the list holds one array, with the last contents",
        )  # fmt: skip


def seeded_alike(session: Session) -> Iterator[Finding]:
    """A generator is not created again from the same seed for each item.

    If it only makes an order, e.g. of the columns, that may be intended: all items get the same
    one.
    """
    data = _asked(session.setup.train_loader)
    with session.observe():
        seeds = []
        for index in range(min(HELD, len(data))):
            heard = _Seeds()
            with heard.listening():
                data[index]
            seeds.append(heard)
    if not all(one.seeds for one in seeds):
        raise NotChecked("reading an item seeds no generator")
    drawn = any(one.drawn - ORDERS for one in seeds)
    if len(seeds) == HELD and drawn and all(one.seeds == seeds[0].seeds for one in seeds):
        yield Finding(
            "same-draws", "warning",
            f"Each of {HELD} items creates its generator again from the seed "
            f"{seeds[0].seeds[0]!r}: all of them draw exactly the same random numbers, in every "
            "epoch.",
            {"items": HELD, "seed": seeds[0].seeds[0]},
            "self.rng = np.random.default_rng(seed)  # once, in __init__; not in __getitem__",
        )  # fmt: skip


class _Seeds:
    """Seeds that NumPy's and Python's generators are made from, and what is drawn of them."""

    def __init__(self) -> None:
        self.seeds: list[Any] = []
        self.drawn: set[str] = set()

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Record what is seeded while the block runs."""
        with contextlib.ExitStack() as stack:
            made = self._made_by(np.random.default_rng)
            stack.enter_context(mock.patch.object(np.random, "default_rng", made))
            for owner, name in ((np.random, "RandomState"), (random, "Random")):
                kind = self._kind_of(getattr(owner, name))
                stack.enter_context(mock.patch.object(owner, name, kind))
            for owner, name in ((np.random, "seed"), (random, "seed")):
                set_again = self._set_by(getattr(owner, name))
                stack.enter_context(mock.patch.object(owner, name, set_again))
            yield

    def _made_by(self, kind: Callable[..., Any]) -> Callable[..., Any]:
        def made(*args: Any, **kwargs: Any) -> Any:
            seed = args[0] if args else next(iter(kwargs.values()), None)
            generator = kind(*args, **kwargs)
            if not isinstance(seed, (int, tuple)):
                return generator
            self.seeds.append(seed)
            return _Heard(generator, self.drawn)

        return made

    def _kind_of(self, kind: type) -> type:
        heard = self

        class Heard(kind):
            def __init__(self, *args: Any) -> None:
                super().__init__(*args)
                if args and isinstance(args[0], (int, str)):
                    heard.seeds.append(args[0])

            def __getattribute__(self, name: str) -> Any:
                if not name.startswith("_"):
                    heard.drawn.add(name)
                return super().__getattribute__(name)

        return Heard

    def _set_by(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def set_again(*args: Any, **kwargs: Any) -> Any:
            if args and isinstance(args[0], (int, str)):
                self.seeds.append(args[0])
                self.drawn.add("numbers")
            return original(*args, **kwargs)

        return set_again


class _Heard:
    """A generator that remembers which of its methods were used."""

    def __init__(self, generator: Any, drawn: set[str]) -> None:
        self._generator, self._drawn = generator, drawn

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._generator, name)
        if callable(value):
            self._drawn.add(name)
        return value


def _asked(loader: Any) -> Any:
    """The data set of a loader, which can be asked for an item."""
    data = getattr(loader, "dataset", None)
    if data is None or not hasattr(data, "__getitem__") or not hasattr(data, "__len__"):
        raise NotChecked("the loader has no data set that can be indexed")
    if hasattr(data, "__getitems__"):
        raise NotChecked("the data set returns several items at once")
    return data
