"""Relations on the data: what is stored and each item stay the same, an epoch can be repeated."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils.data import RandomSampler

from course.debug.probes.report import Finding
from course.debug.probes.session import STEPS, NotChecked, Session
from course.debug.probes.tape import Tape
from course.state.generators import own_generators, rewinder
from course.state.nested import tensors_in

LEAVES = (Tensor, np.ndarray, np.number, bool, int, float)
ITEMS = 16
"""Items of a data set that are asked for twice."""
LEAST_SAME = 8
"""Steps in a row on one batch before it is more than a coincidence of two epochs' ends."""
BYTE = 256
"""Values of a byte: its arithmetic is modulo so many."""
WHOLE = 0.01
"""Distance from a whole number that rounding stays below: a byte over 255 in float32 comes back to
2e-5."""
MOST_PARTS = 64
"""Entries of a list up to which each is searched: a longer one is a list of examples."""


def stored(session: Session) -> Iterator[Finding]:
    """Reading an item does not change the stored data.

    Memory that is only written to, or filled once, does not count: read a second time with the same
    random numbers, it is the same, and so are the items.
    """
    for side, loader in _loaders(session):
        data = getattr(loader, "dataset", None)
        held = dict(_storage(data)) if data is not None else {}
        if not held or not hasattr(data, "__getitem__"):
            continue
        with session.observe():
            rewind = [rewinder(generator) for generator in own_generators(data)]
            before = {name: _copy(values) for name, values in held.items()}
            items, once = _read(data)
            moved = [n for n, was in before.items() if n in once and not _equal(once[n], was)]
            if moved:
                for back in rewind:
                    back()
                again, twice = _read(data)
                alike = all(map(_same_item, items, again))
                moved = [n for n in moved if not _equal(once[n], twice.get(n)) and not alike]
        if moved:
            yield Finding(
                "dataset-changes-itself", "error",
                f"Reading items of the {side} data changes what is stored ({moved[0]}): each epoch "
                "reads different data from the one before.",
                {"changed": moved[0], "items_read": len(_indices(data))},
                "x = self.x[index].clone()  # and no method that ends in _ on what is stored",
            )  # fmt: skip
            return
    if not any(getattr(loader, "dataset", None) is not None for _, loader in _loaders(session)):
        raise NotChecked("the loaders have no data set")


def same_item(session: Session) -> Iterator[Finding]:
    """A validation item is the same each time it is read."""
    loader = session.setup.val_loader
    data = getattr(loader, "dataset", None)
    if data is None or not hasattr(data, "__getitem__") or not hasattr(data, "__len__"):
        raise NotChecked("the val_loader has no data set that can be indexed")
    with session.observe():
        first, again = ([_leaves(_ask(data, i)) for i in _indices(data)] for _ in range(2))
    if not first or {len(item) for item in (*first, *again)} != {len(first[0])}:
        raise NotChecked("items have different parts")
    moving = [
        i for i in range(len(first[0]))
        if 2 * sum(not _equal(a[i], b[i]) for a, b in zip(first, again, strict=True)) >= len(first)
    ]  # fmt: skip
    drawn = [i for i in moving if first[0][i].is_floating_point() and first[0][i].numel() > 1]
    if len(drawn) < len(moving) or len(moving) == len(first[0]):
        return  # the target is drawn with the input: a task made up on the way
    fixed = [t.shape for i, t in enumerate(first[0]) if i not in drawn and t.numel() > 1]
    if drawn and not any(first[0][i].shape in fixed for i in drawn):  # no noise to be removed
        yield Finding(
            "augmented-validation", "warning",
            f"The same item of the validation data differs each time it is read ({len(first)} "
            "items read twice): the random training transform is applied to it.",
            {"items": len(first), "tensors_that_differ": len(drawn)},
            "val_set = Data(rows, transform=plain_transform)  # nothing random in it",
        )  # fmt: skip


def wrapped(session: Session) -> Iterator[Finding]:
    """Stored bytes reach the model through arithmetic that does not wrap around."""
    for side, loader in _loaders(session):
        data = getattr(loader, "dataset", None)
        raw = [v for _, v in _storage(data) if str(v.dtype).endswith("uint8")] if data else []
        if not raw or not hasattr(data, "__getitem__") or not hasattr(data, "__len__"):
            continue
        with session.observe():
            items = [_leaves(_ask(data, i)) for i in _indices(data)]
        for stored_bytes in raw:
            found = _wraps(torch.as_tensor(stored_bytes)[: len(items)], items)
            if len(stored_bytes) == len(data) and found:
                yield Finding(
                    "uint8-arithmetic", "error",
                    f"{found:.0%} of the values of the {side} data have wrapped around: bytes are "
                    "subtracted as bytes, where 3 - 5 is 254.",
                    {"wrapped": found, "items_read": len(items)},
                    "x = x.astype(np.float32) - mean  # floats first",
                )  # fmt: skip
                return
    if not any(str(v.dtype).endswith("uint8") for _, loader in _loaders(session)
               for _, v in _storage(getattr(loader, "dataset", None))):  # fmt: skip
        raise NotChecked("no bytes are stored")


def _wraps(raw: Tensor, items: list[list[Tensor]]) -> float:
    """Share of values that differ from the stored byte by one number per place, modulo 256."""
    size = raw[0].numel()
    for which in range(min(map(len, items), default=0)):
        given = [item[which] for item in items]
        if any(g.numel() != size or not g.is_floating_point() for g in given):
            continue
        rows = torch.stack([g.flatten().double() for g in given])
        for scale in (1.0, 255.0):
            less = raw.reshape(len(raw), -1).double() - scale * rows
            whole = bool((less - less.round()).abs().max() < WHOLE)
            less = less.round()
            constant = bool((less % BYTE == less[:1] % BYTE).all())
            jumps = (less != less.median(0).values).double().mean()
            if whole and constant and float(jumps) > 0:
                return float((less < 0).double().mean())
    return 0.0


def one_pass(session: Session) -> Iterator[Finding]:
    """A loader can be read again for the next epoch."""
    for side, loader in _loaders(session):
        if not hasattr(loader, "__next__"):
            continue
        epoch = session.epoch if side == "train" else session.val_epoch
        if epoch.whole and epoch.batches:
            yield Finding(
                "loader-exhausted", "error",
                f"The {side}_loader is an iterator that ends after {len(epoch.batches)} batches: "
                "every epoch after the first finds none.",
                {"batches": len(epoch.batches)},
                f"{side}_loader = DataLoader(dataset, batch_size)  # not iter(...) or a generator",
            )  # fmt: skip
            return


def same_batch(session: Session) -> Iterator[Finding]:
    """Training moves on to the next batch."""
    if session.setup.train is None:
        raise NotChecked("no train(n_steps)")
    batches = session.epoch.batches
    heads = {_head(batch) for batch in batches}
    if len(heads) < 3:
        raise NotChecked("fewer than three different batches")
    sampler = getattr(session.setup.train_loader, "sampler", None)
    if isinstance(sampler, RandomSampler):
        raise NotChecked("a fresh iterator of a shuffled loader draws a different batch")
    tape, seen = Tape(session.model, session.optimizers), []

    def listen(_: Any, args: tuple, kwargs: dict) -> None:
        if torch.is_grad_enabled():
            seen.append(_head((args, kwargs)))

    with session.observe():
        handle = session.model.register_forward_pre_hook(listen, with_kwargs=True)
        try:
            with tape.running():
                session.setup.train(min(STEPS, 2 * len(batches)))
        except Exception as error:
            raise NotChecked(f"train() raises {type(error).__name__}") from error
        finally:
            handle.remove()
    runs = max((len(list(run)) for _, run in itertools.groupby(seen)), default=0)
    per_step = max(1, round(len(seen) / max(1, len(tape.of("backward")))))
    if runs >= LEAST_SAME * per_step and len(set(seen)) == 1:
        yield Finding(
            "same-batch-forever", "error",
            f"{runs} steps in a row trained on the same batch: next(iter(loader)) starts again at "
            "the first batch each time.",
            {"steps": runs, "batches_in_the_loader": len(batches)},
            "for batch in train_loader: ...  # one iterator for the whole epoch",
        )  # fmt: skip


def _loaders(session: Session) -> list[tuple[str, Any]]:
    both = (("train", session.setup.train_loader), ("val", session.setup.val_loader))
    return [(side, loader) for side, loader in both if loader is not None]


def _indices(data: Any) -> range:
    try:
        return range(min(ITEMS, len(data)))
    except TypeError:
        return range(0)


def _ask(data: Any, index: int) -> Any:
    try:
        return data[index]
    except Exception as error:
        raise NotChecked(f"dataset[{index}] raises {type(error).__name__}") from error


def _read(data: Any) -> tuple[list[list[Tensor]], dict[str, Any]]:
    """Copies of the first items, with the same random numbers each time, and of what is stored
    after that."""
    random.seed(0), np.random.seed(0), torch.manual_seed(0)
    items = [[leaf.clone() for leaf in _leaves(_ask(data, index))] for index in _indices(data)]
    return items, {name: _copy(values) for name, values in _storage(data)}


def _same_item(one: list[Tensor], other: list[Tensor]) -> bool:
    return len(one) == len(other) and all(map(_equal, one, other))


def _leaves(item: Any) -> list[Tensor]:
    """Tensors, arrays and numbers of an item, as tensors."""
    leaves = [leaf for leaf in tree_leaves(item) if isinstance(leaf, LEAVES)]
    return [torch.as_tensor(leaf) for leaf in leaves]


def _storage(data: Any, path: str = "dataset", depth: int = 3) -> Iterator[tuple[str, Any]]:
    """Tensors and arrays that hold one entry per example, by where they stand."""
    if isinstance(data, Tensor) or (isinstance(data, np.ndarray) and data.dtype.kind in "fiub"):
        if data.ndim and len(data) > 1:
            yield path, data
    elif isinstance(data, dict) and depth:
        for key, value in data.items():
            yield from _storage(value, f"{path}[{key!r}]", depth - 1)
    elif isinstance(data, (list, tuple)) and depth and len(data) <= MOST_PARTS:
        for number, value in enumerate(data):
            yield from _storage(value, f"{path}[{number}]", depth - 1)
    elif depth and hasattr(data, "__dict__") and hasattr(data, "__getitem__"):
        for name, value in vars(data).items():
            yield from _storage(value, f"{path}.{name}", depth - 1)


def _copy(values: Any) -> Any:
    return values.clone() if isinstance(values, Tensor) else values.copy()


def _equal(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, Tensor):
        return a.shape == b.shape and bool(torch.equal(a.nan_to_num(), b.nan_to_num()))
    return a.shape == b.shape and bool(np.array_equal(a, b, equal_nan=a.dtype.kind == "f"))


def _head(value: Any) -> bytes:
    """What tells one batch from another: the bytes of its first tensor."""
    first = next(iter(tensors_in(value)), None)
    return b"" if first is None else first.detach().cpu().contiguous().float().numpy().tobytes()
