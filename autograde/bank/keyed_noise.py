"""03g.noise: a data set whose noise is keyed by seed, epoch and example, in whichever worker."""

from __future__ import annotations

import random

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import get_worker_info

from autograde.bank.harness import Watch
from autograde.bank.noise_seen import (
    Noisy,
    Table,
    absent,
    in_another_process,
    inputs_seen,
    moved,
    of_many_epochs,
    shared,
    told,
    unusual,
)
from autograde.exercise import Answer, Case, Draw, Exercise, Part, Wrong
from course.data import noisy

NEAR = (0, 1, 2, 3)
FAR = (0, 1, 10, 100, 1000)
"""Epochs and examples that sums such as seed + 1000 * epoch + index mix up."""
PLACES = (2, 4, 5, 8, 16, 20, 32, 50, 64, 99, 101, 127, 128, 200, 255, 256, 500, 512, 999)
"""Other factors that give an epoch, or a seed, its place: where one of them is the factor, this
example of epoch 0 meets example 0 of epoch 1."""


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
    watch, made = Watch(data={"inputs": inputs}), Noisy(function, inputs, case["sd"])
    seed, keys = case["seed"], case["keys"]
    elsewhere = in_another_process(made, seed, keys[1])  # before it can know anything of here
    table = {}
    for other in (seed, seed + 1, 0):
        dataset = made.fresh(other)
        for epoch in keys:
            dataset.set_epoch(epoch)
            table |= {(other, epoch, i): made.noise(dataset, i) for i in keys}
    disturbed = told(made.written) or watch.changed()
    table |= at_places(made, seed, keys) if keys[-1] > max(PLACES) else {}
    noise = of_many_epochs(made, seed)
    return {
        "there": told(absent(noise)),
        "noise": told(unusual(noise, inputs_seen(made))),
        "repeats": told(moved(made, seed, keys, table, elsewhere)),
        "distinct": told(shared(table)),
        "disturbed": disturbed,
    }


def at_places(made: Noisy, seed: int, keys: list[int]) -> Table:
    """The noise of one example in many epochs and for many seeds, and of many examples in one."""
    dataset, table = made.fresh(seed), {}
    for place in PLACES:
        dataset.set_epoch(place)
        table[seed, place, 0] = made.noise(dataset, 0)
    dataset.set_epoch(0)
    table |= {(other, 0, 0): made.noise(made.fresh(other), 0) for other in (*keys, *PLACES)}
    return table | {(seed, 0, place): made.noise(dataset, place) for place in PLACES}


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
up_to_999 = keyed(lambda seed, epoch, i: (seed * 1000 + epoch) * 1000 + i)
in_hundreds = keyed(lambda seed, epoch, i: 10_000 * seed + 100 * epoch + i)
seed_below_100 = keyed(lambda seed, epoch, i: 100 * (1001 * epoch + i) + seed)
seed_of_a_byte = keyed(lambda seed, epoch, i: [seed % 256, epoch, i])
by_bits = keyed(lambda seed, epoch, i: (seed << 20) ^ (epoch << 8) ^ i)
hash_of_text = keyed(lambda seed, epoch, i: hash(f"{seed} {epoch} {i}") % 2**63)
hash_with_text = keyed(lambda seed, epoch, i: hash(("noise", seed, epoch, i)) % 2**63)
hash_of_numbers = keyed(lambda seed, epoch, i: hash((seed, epoch, i)) % 2**63)
summed_places = keyed(lambda seed, epoch, i: seed + epoch * 6 + i)
multiplied = keyed(lambda seed, epoch, i: seed * (epoch + 1) * (i + 1))
sorted_key = keyed(lambda seed, epoch, i: sorted([seed, epoch, i]))
with_worker_id = keyed(lambda seed, epoch, i: [
    seed, epoch, i, info.id if (info := get_worker_info()) else 0])  # fmt: skip
with_worker_seed = keyed(lambda seed, epoch, i: [
    info.seed if (info := get_worker_info()) else seed, epoch, i])  # fmt: skip
by_torch = drawing(lambda self, i, shape: torch.randn(shape))
by_numpy = drawing(lambda self, i, shape: torch.from_numpy(np.random.standard_normal(shape)))


def in_lowest_bits(key) -> type[KeyedNoise]:
    """Of torch's CPU generator, which drops all bits of a seed but the lowest 32."""
    return drawing(lambda self, i, shape: torch.randn(shape, generator=torch.Generator()
        .manual_seed(key(self.seed, self.epoch, i))))  # fmt: skip


seed_too_high = in_lowest_bits(lambda seed, epoch, i: (seed << 40) + (epoch << 20) + i)
epoch_too_high = in_lowest_bits(lambda seed, epoch, i: (epoch << 40) + (seed << 20) + i)
index_too_high = in_lowest_bits(lambda seed, epoch, i: (i << 40) + (seed << 20) + epoch)
FRESH = torch.Generator().manual_seed(1)
of_the_module = drawing(lambda self, i, shape: torch.randn(shape, generator=FRESH))


class BeginsAtOne(KeyedNoise):
    def __init__(self, inputs, seed, sd):
        super().__init__(inputs, seed, sd)
        self.epoch = 1


class GeneratorHeld(KeyedNoise):
    def __init__(self, inputs, seed, sd):
        super().__init__(inputs, seed, sd)
        self.own = np.random.default_rng(seed)

    def noise(self, index, shape):
        return torch.from_numpy(self.own.standard_normal(shape))


class GeneratorOfEpoch(GeneratorHeld):
    def set_epoch(self, epoch):
        self.own = np.random.default_rng([self.seed, epoch])


class EpochsCounted(KeyedNoise):
    def __init__(self, inputs, seed, sd):
        super().__init__(inputs, seed, sd)
        self.epoch = -1

    def set_epoch(self, epoch):
        self.epoch += 1


class FirstKept(KeyedNoise):
    """Keeps what was drawn first for an example, whatever the epoch."""

    def __init__(self, inputs, seed, sd):
        super().__init__(inputs, seed, sd)
        self.drawn = {}

    def noise(self, index, shape):
        if index not in self.drawn:
            self.drawn[index] = super().noise(index, shape)
        return self.drawn[index]


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


class NoiseAlone(KeyedNoise):
    def __getitem__(self, index):
        clean = self.inputs[index]
        return self.sd * self.noise(index, tuple(clean.shape)).to(clean)


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
    title="noise that does not depend on the worker",
    source='Lecture 3, "Reproducibility in five layers"; annotated-loop essay, "The data"',
    kind="class",
    ledger=("B33", "C15", "F95", "T26"),
    minutes=15,
    difficulty=2,
    read=("F94", "F95", "course.data.noisy"),
    hints=(
        "Which three numbers may the noise of an example depend on? A generator that is shared "
        "between examples depends on what was drawn from it before.",
        "A generator made for one example alone does not depend on workers or on the order.",
        "np.random.default_rng([seed, epoch, index]) mixes a list of numbers into one seed. If you "
        "added them up, many triples would give the same seed.",
    ),
    signature="KeyedNoise(inputs, seed, sd)",
    parts=(
        Part("noise", "normal noise, in the shape and the dtype of the input", points=0.5,
             fields=("there", "noise")),
        Part("repeats", "the same in any order, and in any worker", points=1,
             fields=("there", "repeats")),
        Part("distinct", "different noise for each example, epoch and seed", points=1,
             fields=("there", "repeats", "distinct")),
        Part("far", "different noise, for numbers up to 1000", points=1,
             fields=("there", "repeats", "distinct")),
        Part("still", "inputs and global generators unchanged", points=0.5, cases=1,
             fields=("there", "repeats", "disturbed")),
        Part("hidden", "all of it at once", points=0.5, hidden=True, cases=1),
    ),
    reference=reference,
    draw=draw,
    run=run,
    by_hand=(noisy.KeyedNoise.__getitem__,),
    wrong=(
        Wrong("global-generator", by_torch,
              "The noise depends on what a global generator has drawn before, and therefore on the "
              "order of the examples and on the worker. Make a new generator for each example."),
        Wrong("global-generator", by_numpy),
        Wrong("generator-held", GeneratorHeld,
              "The noise depends on how many examples were fetched before: one generator continues "
              "from example to example, and every worker has its own copy of it. Make a new "
              "generator for each example."),
        Wrong("generator-held", GeneratorOfEpoch),
        Wrong("epoch-left-out", epoch_left_out,
              "Each epoch has the same noise as the one before. The epoch is not in the seed of an "
              "example's generator, or only in bits that are lost: torch's CPU generator uses the "
              "lowest 32 bits of its seed."),
        Wrong("epoch-left-out", epoch_too_high),
        Wrong("index-left-out", index_left_out,
              "All examples of an epoch have the same noise. The index is not in the generator's "
              "seed, or only in bits that are lost: torch's CPU generator uses the lowest 32 bits "
              "of its seed."),
        Wrong("index-left-out", index_too_high),
        Wrong("seed-left-out", seed_left_out,
              "A different seed gives the same noise. It is not in the seed of an example's "
              "generator, or only in bits that are lost: torch's CPU generator uses the lowest 32 "
              "bits of its seed."),
        Wrong("seed-left-out", seed_too_high),
        Wrong("sum", summed,
              "Example 0 of epoch 1 has the same noise as example 1 of epoch 0: epoch + index is "
              "the same for both. Use np.random.default_rng([seed, epoch, index])."),
        Wrong("thousands", in_thousands,
              "Small numbers give different noise, but larger ones collide: epoch * factor + index "
              "gives each epoch only a limited range of seeds. Use np.random.default_rng([seed, "
              "epoch, index])."),
        Wrong("up-to-999", up_to_999,
              "Example 1000 of an epoch has the same noise as example 0 of the next: indices go up "
              "to 1000, so a factor of 1000 is too small. Use np.random.default_rng([seed, epoch, "
              "index])."),
        Wrong("hundreds", in_hundreds),
        Wrong("seed-below-100", seed_below_100),
        Wrong("seed-below-100", seed_of_a_byte),
        Wrong("product", multiplied),
        Wrong("sorted", sorted_key),
        Wrong("by-bits", by_bits),
        Wrong("hash-of-text", hash_of_text,
              "hash() of a string is a different number in each process, so tomorrow's run has "
              "different noise. Mix numbers instead: np.random.default_rng([seed, epoch, index])."),
        Wrong("hash-of-text", hash_with_text),
        Wrong("epochs-before", EpochsCounted,
              "The noise of an epoch depends on which epochs were set before. It should depend "
              "only on the number passed to set_epoch(): do not count calls, and do not keep "
              "earlier noise."),
        Wrong("epochs-before", FirstKept),
        Wrong("begins-at-one", BeginsAtOne,
              "Before set_epoch() is called, the noise is not that of epoch 0. Start with epoch "
              "0.", sure=True),
        Wrong("worker-number", with_worker_id,
              "The noise depends on the number of the worker that fetches the example, so a "
              "different number of workers gives a different run. Leave the worker out of the "
              "seed."),
        Wrong("worker-seed", with_worker_seed),
        Wrong("seeds-global", SeedsTorch,
              "The noise is right, but a global generator was seeded for it: whatever else draws "
              "from that generator, such as dropout, starts again at each example. Make a separate "
              "generator.",
              sure=True),
        Wrong("seeds-global", SeedsNumpy, sure=True),
        Wrong("seeds-global", SeedsPython, sure=True),
        Wrong("seeds-global-per-epoch", SeedsTorchPerEpoch),
        Wrong("sum-of-places", summed_places),
        Wrong("generator-held", of_the_module),
        Wrong("in-place", InPlace,
              "The noise was added to the inputs in place, so the next epoch adds its own on top. "
              "Make a new tensor, inputs[index] + noise; += writes into the old one.", sure=True),
        Wrong("variance", Variance),
        Wrong("uniform", Uniform),
        Wrong("one-number", OneNumber,
              "All numbers of an example get the same noise: one draw was added to the whole "
              "example. Draw as many numbers as the input has: its shape.", sure=True),
        Wrong("no-noise", Clean),
        Wrong("noise-alone", NoiseAlone),
    ),
    right=(KeyedNoise, OwnGenerator, OfText, Forked, WholeEpochs, hash_of_numbers),
)  # fmt: skip
