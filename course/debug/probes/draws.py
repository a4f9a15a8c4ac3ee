"""Probes on random draws in the data: augmentation that repeats in every epoch or worker.

A worker gets a copy of the data set. A generator in it starts, in each worker and in each epoch
that restarts the workers, from its state in the main process, where it never advances. Draws that a
data set seeds only by the example are the same in every epoch too; but so is a data set that
generates its examples from their index, so this is only a note.

Source: Lecture 3, "DataLoader"; ledger B33, F95.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils.data import IterableDataset

from course.debug.probes.answers import rows_of
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, pair
from course.state.generators import Own, own_generators, state_of

ASKED = 8
"""Examples that are asked what they draw: so many draw alike by no chance."""
RESEEDING = {"get_worker_info", "initial_seed", "set_epoch"}
"""Names in a data set's code that show it knows of workers or epochs."""
DRAWS = {
    torch.rand, torch.randn, torch.randint, torch.rand_like, torch.randn_like, torch.randint_like,
    torch.normal, torch.bernoulli, torch.randperm, torch.multinomial, torch.Tensor.normal_,
    torch.Tensor.uniform_, torch.Tensor.bernoulli_, torch.Tensor.random_,
}  # fmt: skip


def same_draws(session: Session) -> Iterator[Finding]:
    """The data's random numbers are drawn again in each epoch, and differ between workers."""
    loader = session.setup.train_loader
    workers = getattr(loader, "num_workers", 0)
    if workers:
        yield from _copied_generators(session, loader, workers)
    else:
        yield from _seeded_by_example(session, loader)


def _copied_generators(session: Session, loader: Any, workers: int) -> Iterator[Finding]:
    outlive = getattr(loader, "persistent_workers", False)
    if loader.worker_init_fn is not None or (outlive and workers == 1) or _knows(loader.dataset):
        raise NotChecked("the workers' generators may be reseeded")
    used = _used(session, loader.dataset)
    if not used:
        return
    kind = f"{type(used[0]).__module__}.{type(used[0]).__name__}"
    often = "every worker draws" if outlive else "every worker and every epoch draw"
    yield Finding(
        "same-draws", "warning",
        f"The data set draws from its own {kind}, and each of {workers} "
        f"worker{'s' * (workers > 1)} gets a copy in its current state: {often} the same numbers.",
        {"generators": len(used), "num_workers": workers, "persistent": outlive},
        "make_loader(dataset, batch_size, augment=...)  # and draw from torch's global generator\n"
        "# or reseed it in worker_init_fn, from torch.initial_seed()",
    )  # fmt: skip


def _used(session: Session, dataset: Any) -> list[Own]:
    """Generators of the data set that move when an example is read."""
    own = own_generators(dataset)
    if not own:
        return []
    with session.observe():
        if isinstance(dataset, IterableDataset):
            return moved(own, lambda: next(iter(dataset), None))
        return moved(own, lambda: dataset[0])


def moved(own: list[Own], by: Callable[[], Any]) -> list[Own]:
    """Those of some generators that a call draws from."""
    before = [_bytes(generator) for generator in own]
    by()
    return [g for g, state in zip(own, before, strict=True) if _bytes(g) != state]


def draws_for_itself(session: Session, call: Callable[[], Any]) -> bool:
    """Whether a call of the model draws from a generator that the model holds: then no output is
    that of the call before, whatever torch's global generator is set to."""
    own = own_generators(session.model)
    if not own:
        return False
    with session.observe(), torch.no_grad():
        session.model.eval()
        return bool(moved(own, call))


def _bytes(generator: Own) -> Any:
    state = state_of(generator)
    return state if isinstance(state, str) else state.numpy().tobytes()


def _knows(dataset: Any) -> bool:
    """Whether the data set's code speaks of workers or epochs."""
    methods = [method for kind in type(dataset).__mro__ for method in vars(kind).values()]
    codes = [method.__code__ for method in methods if hasattr(method, "__code__")]
    named = {name for code in codes for name in code.co_names}
    return bool(RESEEDING & named) or hasattr(dataset, "set_epoch")


def _seeded_by_example(session: Session, loader: Any) -> Iterator[Finding]:
    if not hasattr(loader, "dataset") or not session.epoch.whole:
        raise NotChecked("no DataLoader, or it could not be read whole")
    listener = _Draws()
    with session.observe(), listener:
        examples = [batch for _, batch in zip(range(2), loader, strict=False)]
    if not listener.in_data or not examples:
        return
    first, second = (
        sorted(row for batch in batches for row in rows_of(pair(batch)[0]))
        for batches in session.two_passes
    )
    if first == second and _alike_for_all(session, loader.dataset):
        yield Finding(
            "same-draws", "warning",
            f"Each of {ASKED} examples draws exactly the same random numbers, in every epoch: the "
            "generator is seeded again whenever an example is read, and not by the example's "
            "index.",
            {"examples": ASKED},
            "shift = torch.randint(-2, 3, (2,))  # from the global generator, seeded once",
        )  # fmt: skip
    elif first == second:
        yield Finding(
            "same-draws", "note",
            "The data draws random numbers for its examples, and they are the same in the second "
            "epoch. For augmentation, seed by the epoch too; for examples generated from their "
            "index, this is right.",
            {"draws_seen": listener.in_data, "examples": len(first)},
            "seed = base_seed + epoch * len(dataset) + index",
        )  # fmt: skip


def _alike_for_all(session: Session, dataset: Any) -> bool:
    """Examples asked for one by one draw the same numbers."""
    drawn = []
    with session.observe():
        for index in range(ASKED):
            listener = _Draws()
            with listener:
                dataset[index]
            drawn.append(listener.values)
    return bool(drawn[0]) and all(values == drawn[0] for values in drawn)


class _Draws(TorchFunctionMode):
    """Counts draws with a generator of the caller's, other than those that make an order."""

    def __init__(self) -> None:
        super().__init__()
        self.in_data = 0
        self.values: list[list[float]] = []

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None):
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        if function in DRAWS and function is not torch.randperm and torch.is_tensor(result):
            self.in_data += result.is_floating_point()  # an order or a seed is of whole numbers
            self.values.append(result.flatten().tolist())
        return result
