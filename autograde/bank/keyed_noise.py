"""03g.noise: a data set whose noise is keyed by seed, epoch and example, in whichever worker."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import get_worker_info
from torch.utils.data._utils import worker as torchs_worker

from autograde.bank.harness import Watch
from autograde.exercise import UNFIT, Answer, AnswerError, Case, Draw, Exercise, Part, Wrong
from course.data import noisy

NEAR = (0, 1, 2, 3)
FAR = (0, 1, 10, 100, 1000)
"""Epochs and examples that sums such as seed + 1000 * epoch + index mix up."""
EPOCHS = 200
"""Epochs whose noise is taken together: enough for its mean and spread."""
SURE = 5.0
"""Standard errors by which mean and spread may be off: no right answer ever is."""
TAIL = 0.01
"""Share of numbers beyond two standard deviations that normal noise exceeds; of it 4.6 % are."""


def draw(source: Draw, part: str) -> Case:
    """Clean examples, a seed, and which epochs and examples are looked at."""
    keys = FAR if part in ("far", "hidden") else NEAR
    shape = ((4,), (2, 2))[source.index % 2]
    return {
        "keys": list(keys), "length": keys[-1] + 1, "clean": source.normal(*shape),
        "dtype": ("float32", "float64")[source.index % 2],
        "seed": source.integer(2, 90), "sd": source.choice([0.25, 0.5, 2.0]),
    }  # fmt: skip


def run(function, case: Case, device: torch.device) -> Answer:
    """What the noise is like: each field empty, or a sentence that says what was seen."""
    clean = case["clean"].to(getattr(torch, case["dtype"]))
    steps = torch.arange(case["length"], dtype=clean.dtype) / 8
    inputs = clean + steps.view(-1, *[1] * clean.ndim)
    watch, made = Watch(data=[inputs]), Noisy(function, inputs, case["sd"])
    seed, keys = case["seed"], case["keys"]
    table = {}
    for other in (seed, seed + 1, 0):
        dataset = made.fresh(other)
        for epoch in keys:
            dataset.set_epoch(epoch)
            table |= {(other, epoch, i): made.noise(dataset, i) for i in keys}
    disturbed = watch.changed()
    noise = of_many_epochs(made, seed)
    return {
        "there": told(absent(noise)),
        "noise": told(unusual(noise)),
        "repeats": told(moved(made, seed, keys, table)),
        "distinct": told(shared(table)),
        "disturbed": disturbed,
    }


def told(text: str) -> list | dict[str, str]:
    """A field of an answer: empty, or what was seen."""
    return {UNFIT: text} if text else []


class Noisy:
    """Makes data sets, and asks them for noise."""

    def __init__(self, function: Any, inputs: Tensor, sd: float) -> None:
        self.function, self.inputs, self.sd = function, inputs, sd

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
        given, clean = dataset[index], self.inputs[index]
        if not isinstance(given, Tensor):
            kind = type(given).__name__
            raise AnswerError(f"dataset[{index}] is a {kind}; a tensor is asked for.")
        if given.shape != clean.shape or given.dtype != clean.dtype:
            raise AnswerError(
                f"dataset[{index}] has the shape {list(given.shape)} in {given.dtype}; the input "
                f"has {list(clean.shape)} in {clean.dtype}."
            )
        return (given.detach() - clean) / self.sd


Table = dict[tuple[int, int, int], Tensor]


def of_many_epochs(made: Noisy, seed: int) -> Tensor:
    """The noise of two examples, in every other epoch of many: [EPOCHS, numbers]."""
    dataset, examples = made.fresh(seed), []
    for epoch in range(EPOCHS):
        dataset.set_epoch(epoch)
        examples.append(made.noise(dataset, 1 + epoch % 2).double().flatten())
    return torch.stack(examples)


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


def unusual(noise: Tensor) -> str:
    """How noise differs from standard normal numbers; empty if it does not."""
    if alike(noise):
        return "All numbers of an example have the same noise; each has its own."
    drawn = len(noise.round(decimals=2).unique(dim=0)) * noise.shape[1]  # apart from repetitions
    error = SURE / drawn**0.5
    mean, spread = noise.mean().item(), noise.std().item()
    if abs(mean) > error or abs(spread - 1) > error:
        return (
            f"{noise.numel()} numbers of noise have the mean {mean:.2f} sd and the standard "
            f"deviation {spread:.2f} sd; 0 and 1 are asked for."
        )
    tail = (noise.abs() > 2).double().mean().item()
    if drawn == noise.numel() and tail < TAIL:
        return f"{tail:.1%} of the noise is beyond 2 sd; of normal numbers 4.6 % are."
    return ""


def moved(made: Noisy, seed: int, keys: list[int], table: Table) -> str:
    """The first noise that is another in another order, or in a worker; empty if none is."""
    again = made.fresh(seed)
    for epoch in reversed(keys):
        again.set_epoch(epoch)
        for i in reversed(keys):
            if not torch.equal(made.noise(again, i), table[seed, epoch, i]):
                return (
                    f"Example {i} of epoch {epoch} has another noise where examples are asked for "
                    "in another order."
                )
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
    seen: dict[tuple, tuple[int, int, int]] = {}
    pairs = []
    for key, noise in table.items():
        rounded = tuple(noise.double().flatten().round(decimals=2).tolist())
        other = seen.setdefault(rounded, key)
        if other != key:
            pairs.append((other, key))
    if not pairs:
        return ""
    first, second = (f"seed {s}, epoch {e}, example {i}" for s, e, i in pairs[0])
    return (
        f"{first} and {second} have the same noise; {len(table)} of such triples have "
        f"{len(seen)} different ones."
    )


def reference(inputs: Tensor, seed: int, sd: float) -> noisy.KeyedNoise:
    """What `run` asks."""
    return noisy.KeyedNoise(inputs, seed, sd=sd)


class KeyedNoise:
    """A right answer; the wrong ones change one method of it."""

    def __init__(self, inputs, seed, sd):
        self.inputs, self.seed, self.sd, self.epoch = inputs, seed, sd, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return len(self.inputs)

    def key(self, index):
        return [self.seed, self.epoch, index]

    def noise(self, index, shape):
        return torch.from_numpy(np.random.default_rng(self.key(index)).standard_normal(shape))

    def __getitem__(self, index):
        clean = self.inputs[index]
        return clean + self.sd * self.noise(index, tuple(clean.shape)).to(clean)


def keyed(key) -> type[KeyedNoise]:
    """The same with another key of (seed, epoch, index)."""
    return type("Keyed", (KeyedNoise,), {
        "key": lambda self, index: key(self.seed, self.epoch, index)})  # fmt: skip


def drawing(noise) -> type[KeyedNoise]:
    """The same with other noise, of (data set, index, shape)."""
    return type("Drawing", (KeyedNoise,), {"noise": noise})


epoch_left_out = keyed(lambda seed, epoch, i: [seed, i])
index_left_out = keyed(lambda seed, epoch, i: [seed, epoch])
seed_left_out = keyed(lambda seed, epoch, i: [epoch, i])
summed = keyed(lambda seed, epoch, i: seed + epoch + i)
in_thousands = keyed(lambda seed, epoch, i: seed + 1000 * epoch + i)
in_hundreds = keyed(lambda seed, epoch, i: 10_000 * seed + 100 * epoch + i)
summed_places = keyed(lambda seed, epoch, i: seed + epoch * 6 + i)
multiplied = keyed(lambda seed, epoch, i: seed * (epoch + 1) * (i + 1))
sorted_key = keyed(lambda seed, epoch, i: sorted([seed, epoch, i]))
with_worker_id = keyed(lambda seed, epoch, i: [
    seed, epoch, i, info.id if (info := get_worker_info()) else 0])  # fmt: skip
with_worker_seed = keyed(lambda seed, epoch, i: [
    info.seed if (info := get_worker_info()) else seed, epoch, i])  # fmt: skip
by_torch = drawing(lambda self, i, shape: torch.randn(shape))
by_numpy = drawing(lambda self, i, shape: torch.from_numpy(np.random.standard_normal(shape)))
FRESH = torch.Generator().manual_seed(1)
of_the_module = drawing(lambda self, i, shape: torch.randn(shape, generator=FRESH))


class GeneratorHeld(KeyedNoise):
    def __init__(self, inputs, seed, sd):
        super().__init__(inputs, seed, sd)
        self.own = np.random.default_rng(seed)

    def noise(self, index, shape):
        return torch.from_numpy(self.own.standard_normal(shape))


class GeneratorOfEpoch(GeneratorHeld):
    def set_epoch(self, epoch):
        self.own = np.random.default_rng([self.seed, epoch])


class SeedsTorch(KeyedNoise):
    def noise(self, index, shape):
        torch.default_generator.manual_seed(hash((self.seed, self.epoch, index)))
        return torch.randn(shape)


class SeedsNumpy(KeyedNoise):
    def noise(self, index, shape):
        np.random.seed([self.seed, self.epoch, index])
        return torch.from_numpy(np.random.standard_normal(shape))


class SeedsPython(KeyedNoise):
    def noise(self, index, shape):
        random.seed(f"{self.seed} {self.epoch} {index}")
        return torch.tensor([random.gauss(0, 1) for _ in range(4)]).view(shape)


class SeedsTorchPerEpoch(KeyedNoise):
    def set_epoch(self, epoch):
        torch.default_generator.manual_seed(self.seed + epoch)

    def noise(self, index, shape):
        return torch.randn(shape)


class InPlace(KeyedNoise):
    def __getitem__(self, index):
        example = self.inputs[index]
        example += self.sd * self.noise(index, tuple(example.shape)).to(example)
        return example


class Variance(KeyedNoise):
    def __init__(self, inputs, seed, sd):
        super().__init__(inputs, seed, sd**0.5)


class Uniform(KeyedNoise):
    def noise(self, index, shape):
        return (
            torch.from_numpy(np.random.default_rng(self.key(index)).random(shape)) - 0.5
        ) * 12**0.5


class OneNumber(KeyedNoise):
    def noise(self, index, shape):
        return super().noise(index, (1,))


class Clean(KeyedNoise):
    def noise(self, index, shape):
        return torch.zeros(shape)


def seed_of(dataset, index) -> int:
    """A prime's powers keep seed, epoch and index apart; below 2**63."""
    return (dataset.seed * 1_000_003 + dataset.epoch) * 1_000_003 + index


class OwnGenerator(KeyedNoise):
    def noise(self, index, shape):
        return torch.randn(shape, generator=torch.Generator().manual_seed(seed_of(self, index)))


class OfText(KeyedNoise):
    def noise(self, index, shape):
        own = random.Random(f"{self.seed} {self.epoch} {index}")
        return torch.tensor([own.gauss(0, 1) for _ in range(4)]).view(shape)


class Forked(KeyedNoise):
    def noise(self, index, shape):
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed_of(self, index))
            return torch.randn(shape)


class WholeEpochs(KeyedNoise):
    """All noise of an epoch at once, when it is set."""

    def __init__(self, inputs, seed, sd):
        super().__init__(inputs, seed, sd)
        self.set_epoch(0)

    def set_epoch(self, epoch):
        drawn = np.random.default_rng([self.seed, epoch]).standard_normal(self.inputs.shape)
        self.all = torch.from_numpy(drawn)

    def noise(self, index, shape):
        return self.all[index]


EXERCISE = Exercise(
    id="03g.noise",
    title="noise that no worker changes",
    source='Lecture 3, "Reproducibility in five layers"; annotated-loop essay, "The data"',
    kind="class",
    ledger=("B33", "C15", "F95", "T26"),
    minutes=15,
    difficulty=2,
    read=("F94", "F95", "course.data.noisy"),
    hints=(
        "Which three numbers may the noise of an example depend on? Everything else that is drawn "
        "from depends on who drew before.",
        "A generator that lives for one example knows nothing of workers and of their order.",
        "np.random.default_rng([seed, epoch, index]) mixes a list of numbers into one seed; "
        "added up, many triples would be alike.",
    ),
    signature="KeyedNoise(inputs, seed, sd)",
    parts=(
        Part("noise", "normal noise, in the shape and the dtype of the input", points=0.5,
             fields=("there", "noise")),
        Part("repeats", "the same in any order, and in any worker", points=1,
             fields=("there", "repeats")),
        Part("distinct", "another one for each example, epoch and seed", points=1,
             fields=("there", "repeats", "distinct")),
        Part("far", "the same for numbers up to 1000", points=1,
             fields=("there", "repeats", "distinct")),
        Part("still", "inputs and global generators stay as they are", points=0.5, cases=1,
             fields=("there", "repeats", "disturbed")),
        Part("hidden", "all of it at once", points=0.5, hidden=True, cases=1),
    ),
    reference=reference,
    draw=draw,
    run=run,
    by_hand=(noisy.KeyedNoise.__getitem__,),
    wrong=(
        Wrong("global-generator", by_torch,
              "The noise depends on what a global generator has drawn before, so on the order of "
              "the examples and on the worker. Make a generator for each example."),
        Wrong("global-generator", by_numpy),
        Wrong("generator-held", GeneratorHeld,
              "The noise depends on how many examples were asked for before: a generator that "
              "goes on from one to the next. Every worker has a copy of it. Make one for each "
              "example."),
        Wrong("generator-held", GeneratorOfEpoch),
        Wrong("epoch-left-out", epoch_left_out,
              "Each epoch has the noise of the one before. Let the epoch, too, seed the generator "
              "of an example."),
        Wrong("index-left-out", index_left_out,
              "All examples of an epoch have the same noise. Let the index, too, seed the "
              "generator."),
        Wrong("seed-left-out", seed_left_out,
              "Another seed has the same noise. Let it, too, seed the generator of an example."),
        Wrong("sum", summed,
              "Example 0 of epoch 1 has the noise of example 1 of epoch 0: the sum of their "
              "numbers is the same. Seed with the list [seed, epoch, index]."),
        Wrong("thousands", in_thousands,
              "Neighbouring numbers differ. Larger ones meet: with a factor an epoch has only so "
              "much room for its examples. Seed with the list [seed, epoch, index]."),
        Wrong("hundreds", in_hundreds),
        Wrong("product", multiplied),
        Wrong("sorted", sorted_key),
        Wrong("worker-number", with_worker_id,
              "The noise depends on the number of the worker that fetches an example, so other "
              "workers give another run. Leave it out."),
        Wrong("worker-seed", with_worker_seed),
        Wrong("seeds-global", SeedsTorch,
              "The noise is right, and a global generator was seeded for it: whatever else draws "
              "from that, dropout for example, begins again at each example. Make one of its own."),
        Wrong("seeds-global", SeedsNumpy),
        Wrong("seeds-global", SeedsPython),
        Wrong("seeds-global-per-epoch", SeedsTorchPerEpoch),
        Wrong("sum-of-places", summed_places),
        Wrong("generator-held", of_the_module),
        Wrong("in-place", InPlace),
        Wrong("variance", Variance),
        Wrong("uniform", Uniform),
        Wrong("one-number", OneNumber),
        Wrong("no-noise", Clean),
    ),
    right=(KeyedNoise, OwnGenerator, OfText, Forked, WholeEpochs),
)  # fmt: skip
