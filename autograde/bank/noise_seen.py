"""What 03g.noise looks at in a data set: is there noise, does it stay, are two of them alike?

Each look gives a sentence that says what was seen, or an empty text. A worker is played: a copy of
the data set, with generators seeded otherwise and torch's worker info, as a loader's worker has it.
"""

from __future__ import annotations

import builtins
import copy
import random
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data._utils import worker as torchs_worker

from autograde.apart import in_a_process
from autograde.exercise import UNFIT, AnswerError
from course.state import undisturbed

EPOCHS = 200
"""Epochs whose noise is taken together: enough for its mean and spread."""
SURE = 5.0
"""Standard errors by which mean and spread may be off: no right answer ever is."""
BY_CHANCE = 8
"""Pairs of examples that may agree to three digits by chance where each has one number alone."""
TAIL = 0.01
"""Share of numbers beyond two standard deviations that normal noise exceeds; of it 4.6 % are."""


def told(text: str) -> list | dict[str, str]:
    """A field of an answer: empty, or what was seen."""
    return {UNFIT: text} if text else []


class Noisy:
    """Makes data sets, and asks them for noise."""

    def __init__(self, function: Any, inputs: Tensor, sd: float) -> None:
        self.function, self.inputs, self.sd = function, inputs, sd
        self.clean = inputs.clone()
        self.written = ""
        """Says so where an example's noise was written into the inputs, which are then restored."""

    def fresh(self, seed: int) -> Any:
        """A new data set.

        Raises:
            AnswerError: It is not one.
        """
        dataset = self.function(self.inputs, seed, self.sd)
        for name in ("set_epoch", "__getitem__", "__len__"):
            if not callable(getattr(dataset, name, None)):
                raise AnswerError(f"Your object has no method {name}().")
        if len(dataset) != len(self.inputs):
            raise AnswerError(f"len() is {len(dataset)}; there are {len(self.inputs)} inputs.")
        return dataset

    def noise(self, dataset: Any, index: int) -> Tensor:
        """What was added to an example, in standard deviations.

        Raises:
            AnswerError: It is not an example.
        """
        given, clean = dataset[index], self.clean[index]
        if isinstance(given, Tensor):
            given = given.detach().clone()
        if not torch.equal(self.inputs[index], clean):
            self.inputs[index] = clean
            self.written = "Asking for an example writes its noise into the inputs themselves."
        if not isinstance(given, Tensor):
            kind = type(given).__name__
            raise AnswerError(f"dataset[{index}] is a {kind}; a tensor is asked for.")
        if given.shape != clean.shape or given.dtype != clean.dtype:
            raise AnswerError(
                f"dataset[{index}] has the shape {list(given.shape)} in {given.dtype}; the input "
                f"has {list(clean.shape)} in {clean.dtype}."
            )
        return (given - clean) / self.sd


Table = dict[tuple[int, int, int], Tensor]


def of_many_epochs(made: Noisy, seed: int) -> Tensor:
    """The noise of two examples, in every other epoch of many: [EPOCHS, numbers]."""
    dataset, examples = made.fresh(seed), []
    for epoch in range(EPOCHS):
        dataset.set_epoch(epoch)
        examples.append(made.noise(dataset, 1 + epoch % 2).double().flatten())
    return torch.stack(examples)


def inputs_seen(made: Noisy) -> Tensor:
    """The inputs to that noise, in standard deviations: [EPOCHS, numbers]."""
    rows = [made.clean[1 + epoch % 2].double().flatten() for epoch in range(EPOCHS)]
    return torch.stack(rows) / made.sd


def absent(noise: Tensor) -> str:
    """Says so where there is no noise."""
    return (
        f"In {EPOCHS} epochs the noise is always {noise[0, 0]:.3g} sd."
        if alike(noise.flatten())
        else ""
    )


def alike(numbers: Tensor) -> bool:
    """Whether numbers differ by no more than roundings."""
    return bool((numbers.std(dim=-1) < 1e-3).all())


def unusual(noise: Tensor, inputs: Tensor) -> str:
    """How noise differs from standard normal numbers; empty if it does not."""
    if alike(noise):
        return "All numbers of an example have the same noise; each should have its own."
    drawn = len(noise.round(decimals=2).unique(dim=0)) * noise.shape[1]  # apart from repetitions
    error = SURE / drawn**0.5
    mean, spread = noise.mean().item(), noise.std().item()
    if abs(mean) > error or abs(spread - 1) > error:
        given = noise + inputs
        if abs(given.mean().item()) <= error and abs(given.std().item() - 1) <= error:
            return (
                "What dataset[index] gives is the noise alone, with mean 0 whatever the input. Add "
                "inputs[index]."
            )
        return (
            f"{noise.numel()} numbers of noise have the mean {mean:.2f} sd and the standard "
            f"deviation {spread:.2f} sd; 0 and 1 are asked for."
        )
    tail = (noise.abs() > 2).double().mean().item()
    if drawn == noise.numel() and tail < TAIL:
        return f"{tail:.1%} of the noise is beyond 2 sd; of normal numbers 4.6 % are."
    return ""


def moved(made: Noisy, seed: int, keys: list[int], table: Table, elsewhere: Tensor) -> str:
    """The first noise that is another when asked for otherwise; empty if none is.

    Args:
        made: Makes the data sets.
        seed: Of the table.
        keys: Epochs and examples in it.
        table: The noise seen.
        elsewhere: What `in_another_process` gave.
    """
    return (
        _moved_at_once(made, seed, keys)
        or _moved_by_order(made, seed, keys, table)
        or _moved_by_set_epoch(made, seed, keys, table)
        or _moved_in_a_worker(made, seed, keys, table)
        or _moved_in_a_process(keys[1], table[seed, keys[1], keys[1]], elsewhere)
    )


def _moved_at_once(made: Noisy, seed: int, keys: list[int]) -> str:
    dataset, i = made.fresh(seed), keys[1]
    dataset.set_epoch(keys[0])
    if torch.equal(made.noise(dataset, i), made.noise(dataset, i)):
        return ""
    return f"Example {i} of epoch {keys[0]} has another noise each time it is asked for."


def _moved_by_order(made: Noisy, seed: int, keys: list[int], table: Table) -> str:
    forward, backward = made.fresh(seed), made.fresh(seed)
    forward.set_epoch(keys[0])
    for i in reversed(keys):
        if not torch.equal(made.noise(forward, i), table[seed, keys[0], i]):
            return (
                f"Example {i} of epoch {keys[0]} has another noise where examples are asked for "
                "in another order."
            )
    for epoch in reversed(keys):
        backward.set_epoch(epoch)
        for i in reversed(keys):
            if not torch.equal(made.noise(backward, i), table[seed, epoch, i]):
                return (
                    f"Example {i} of epoch {epoch} has another noise where epochs are set in "
                    "another order."
                )
    return ""


def _moved_by_set_epoch(made: Noisy, seed: int, keys: list[int], table: Table) -> str:
    if torch.equal(made.noise(made.fresh(seed), keys[1]), table[seed, 0, keys[1]]):
        return ""
    return f"Before set_epoch() is called, example {keys[1]} has not the noise of epoch 0."


def _moved_in_a_worker(made: Noisy, seed: int, keys: list[int], table: Table) -> str:
    for epoch, number in product(keys[:2], range(2)):
        dataset = made.fresh(seed)
        dataset.set_epoch(epoch)
        with in_worker(number, epoch, dataset) as its_copy:
            for i in keys[number::2]:
                if not torch.equal(made.noise(its_copy, i), table[seed, epoch, i]):
                    return (
                        f"Example {i} of epoch {epoch} has another noise in worker {number} of 2 "
                        "than without workers."
                    )
    return ""


def in_another_process(made: Noisy, seed: int, key: int) -> Tensor:
    """The noise of an example in a process that knows nothing of this one.

    There hash() gives other numbers, and the global generators are in other states.
    """

    def noise() -> Tensor:
        with undisturbed(), hashing_as_in_another_process():
            for begin in (torch.default_generator.manual_seed, random.seed, np.random.seed):
                begin(seed + 4711)
            dataset = made.fresh(seed)
            dataset.set_epoch(key)
            return made.noise(dataset, key)

    return in_a_process(noise)


def _moved_in_a_process(key: int, here: Tensor, elsewhere: Tensor) -> str:
    if torch.equal(here, elsewhere):
        return ""
    return (
        f"Example {key} of epoch {key} has another noise in another process, where hash() of a "
        "text is another number, and nothing is kept of this one."
    )


@contextmanager
def hashing_as_in_another_process() -> Iterator[None]:
    """`hash` with other numbers for what holds a text, as without a fixed PYTHONHASHSEED."""
    usual = builtins.hash

    def salted(value: Any, /) -> int:
        return usual(("another process", usual(value))) if _holds_a_text(value) else usual(value)

    builtins.hash = salted
    try:
        yield
    finally:
        builtins.hash = usual


def _holds_a_text(value: Any) -> bool:
    if isinstance(value, (tuple, frozenset)):
        return any(map(_holds_a_text, value))
    return isinstance(value, (str, bytes))


@contextmanager
def in_worker(number: int, epoch: int, dataset: Any) -> Iterator[Any]:
    """A copy of the data set, with generators and worker info as a loader's worker has them."""
    seed = 9_000 + 17 * epoch + number  # torch's is a draw of the epoch, plus the worker's number
    its_copy = copy.deepcopy(dataset)
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    torchs_worker._worker_info = torchs_worker.WorkerInfo(
        id=number, num_workers=2, seed=seed, dataset=its_copy
    )
    try:
        yield its_copy
    finally:
        torchs_worker._worker_info = None


def shared(table: Table) -> str:
    """The first two keys that share their noise, and how many differ; empty if all do."""
    single = all(alike(noise.flatten()) for noise in table.values())
    digits, chance = (3, BY_CHANCE) if single else (2, 0)
    seen: dict[tuple, tuple[int, int, int]] = {}
    pairs = []
    for key, noise in table.items():
        rounded = tuple(noise.double().flatten().round(decimals=digits).tolist())
        other = seen.setdefault(rounded, key)
        if other != key:
            pairs.append((other, key))
    if len(pairs) <= chance:
        return ""
    first, second = (f"seed {s}, epoch {e}, example {i}" for s, e, i in pairs[0])
    return (
        f"{first} and {second} have the same noise; {len(table)} triples gave only "
        f"{len(seen)} different noises."
    )
