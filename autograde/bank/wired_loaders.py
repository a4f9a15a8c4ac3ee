"""03c.loaders: a training and a validation loader, wired so that a seed repeats their order."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
)

from autograde.apart import in_a_process
from autograde.bank.common_wrong import named
from autograde.exercise import Answer, AnswerError, Case, Draw, Exercise, Part, Wrong
from course.data.loading import make_loader
from course.state import undisturbed

KINDS = ("tensors", "pairs", "class")
"""What a data set is made of, in turn."""
FURTHER = 1, 2**16 * 5**6
"""By how much the other seeds are larger; the second, a multiple of round moduli, fits 32 bits."""


def draw(source: Draw, part: str) -> Case:
    """Lengths with the rest that the part asks about; nothing else differs between the parts."""
    size, full = source.integer(5, 8), source.integer(5, 7)
    several = source.integer(2, size - 1)
    rest = several
    val_rest = source.integer(2, 4)
    if part == "rest":  # and another one in validation, which says nothing about training
        rest = (1, 2, 0, 1, size - 1)[source.index]
        val_rest = (2, 1, 1, 3, 2)[source.index]
    if part == "val":  # the same the other way round
        rest = (1, several, 1)[source.index]
        val_rest = (1, 3, 4)[source.index]
    return {
        "num_train": full * size + rest,
        "num_val": source.integer(2, 3) * size + val_rest,
        "batch_size": size,
        "seed": 2 * source.integer(0, 5_000),  # the next one has all but the last bit in common
        "kind": KINDS[source.index % 3],
    }


class Rows(Dataset):
    """Examples with positions, and nothing else."""

    def __init__(self, num: int) -> None:
        self.num = num

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if not 0 <= index < self.num:
            raise IndexError(index)
        return torch.full((2,), float(index)), index % 3

    def __len__(self) -> int:
        return self.num


def build(kind: str, num: int) -> Any:
    """A data set whose example i holds the number i twice."""
    rows = Rows(num)
    if kind == "class":
        return rows
    pairs = [rows[i] for i in range(num)]
    if kind == "pairs":
        return pairs
    return TensorDataset(torch.stack([x for x, _ in pairs]), torch.tensor([y for _, y in pairs]))


def run(function, case: Case, device: torch.device) -> Answer:
    """Two epochs of both loaders, of others with the same seed among other draws, and of other
    seeds; compared with each other, since any order will do."""
    elsewhere = in_a_process(lambda: _elsewhere(function, case))
    states = [torch.get_rng_state()]
    made = _made(function, case, case["seed"])
    states.append(torch.get_rng_state())
    train = [_numbers(made[0]) for _ in range(4)]
    val = [_numbers(made[1]), _numbers(made[1])]
    states.append(torch.get_rng_state())
    torch.manual_seed(case["seed"] + 31)  # somebody seeds, too
    again, *others = (_made(function, case, case["seed"] + more) for more in (0, *FURTHER))
    _somebody_draws()
    repeated = [_numbers(again[0])]
    _numbers(again[1])
    _somebody_draws()
    repeated.append(_numbers(again[0]))
    other = [_numbers(train_loader) for train_loader, _ in others]
    flat = [_flat(epoch) for epoch in train]
    return {
        "sizes": [len(batch) for batch in train[0]],
        "val_sizes": [len(batch) for batch in val[0]],
        "val_in_order": "that of the data set" if _in_order(val[0]) else "another one",
        "val_rows": _flat(val[0]),
        "val_again": _flat(val[1]),
        "most_often": max(map(flat[0].count, flat[0]), default=0),
        "shuffled": "that of the data set" if _in_order(train[0]) else "a shuffled one",
        "orders": f"{len(set(map(tuple, flat)))} in {len(flat)} epochs",
        "always_missing": _always_missing(flat, case["num_train"]),
        "same_first_epoch": SAME[repeated[0] == elsewhere[0] == train[0]],
        "same_second_epoch": SAME[repeated[1] == elsewhere[1] == train[1]],
        "seeds_differ": {
            f"with seed + {more}": SAME[order == train[0]]
            for more, order in zip(FURTHER, other, strict=True)
        },
        "untouched": {
            when: "unchanged" if torch.equal(a, b) else "changed"
            for when, (a, b) in zip(
                ("after the loaders are made", "after passes over them"),
                pairwise(states),
                strict=True,
            )
        },
    }


SAME = {True: "the same", False: "different"}


def _elsewhere(function, case: Case) -> list[list[list[int]]]:
    """Two epochs in another process, whose global generators are in another state."""
    with undisturbed():
        torch.default_generator.manual_seed(case["seed"] + 47)
        train_loader, _ = _made(function, case, case["seed"])
        return [_numbers(train_loader) for _ in range(2)]


def _in_order(batches: list[list[int]]) -> bool:
    return all(a <= b for a, b in pairwise(_flat(batches)))


def _flat(batches: list[list[int]]) -> list[int]:
    return [row for batch in batches for row in batch]


def _somebody_draws() -> None:
    """Draw from every global generator, as augmentation and initialisation do."""
    torch.rand(3)
    random.random()
    np.random.rand()


def _always_missing(epochs: list[list[int]], num: int) -> int:
    """How many examples come in none of the epochs, where each misses one at most."""
    fewest = min(map(len, epochs))
    return num - len({row for epoch in epochs for row in epoch}) if num - fewest == 1 else 0


def _made(function, case: Case, seed: int) -> tuple[Any, Any]:
    """The two loaders.

    Raises:
        AnswerError: They are not a pair of DataLoaders.
    """
    sets = [build(case["kind"], case[name]) for name in ("num_train", "num_val")]
    returned = function(*sets, case["batch_size"], seed)
    if not isinstance(returned, (tuple, list)) or len(returned) != 2:
        kind = type(returned).__name__
        raise AnswerError(f"Return two loaders, train_loader, val_loader; a {kind} came back.")
    for loader in returned:
        if not isinstance(loader, DataLoader):
            raise AnswerError(f"A DataLoader is expected, and a {type(loader).__name__} came.")
    return tuple(returned)


def _numbers(loader: DataLoader) -> list[list[int]]:
    """The number of each example of a pass, by batch.

    Raises:
        AnswerError: A batch is not a pair of inputs and targets.
    """
    return [list(_of_batch(batch)) for batch in loader]


def _of_batch(batch: Any) -> Iterator[int]:
    if not isinstance(batch, (tuple, list)) or len(batch) != 2 or getattr(batch[0], "ndim", 0) != 2:
        raise AnswerError(
            "A batch is a pair: inputs [B, 2] and targets [B]. Keep the default collation."
        )
    inputs, targets = batch
    for row, target in zip(inputs[:, 0].tolist(), targets.tolist(), strict=True):
        if target != int(row) % 3:
            raise AnswerError("A batch's targets do not belong to its inputs.")
        yield int(row)


def reference(train_set: Any, val_set: Any, batch_size: int, seed: int) -> tuple[Any, Any]:
    """The course's loaders."""
    how = {"drop_last": len(train_set) % batch_size == 1, "pin_memory": False}
    train = make_loader(train_set, batch_size, shuffle=True, seed=seed, **how)
    return train, make_loader(val_set, batch_size, pin_memory=False)


def _own(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def plain(train_set, val_set, batch_size, seed):
    train = DataLoader(train_set, batch_size, shuffle=True, generator=_own(seed),
                       drop_last=len(train_set) % batch_size == 1)  # fmt: skip
    return train, DataLoader(val_set, batch_size, generator=_own(seed))


def with_samplers(train_set, val_set, batch_size, seed):
    own = _own(seed)
    order = BatchSampler(
        RandomSampler(train_set, generator=own), batch_size, len(train_set) % batch_size == 1
    )
    in_order = BatchSampler(SequentialSampler(val_set), batch_size, False)
    train = DataLoader(train_set, batch_sampler=order, generator=torch.Generator())
    return train, DataLoader(val_set, batch_sampler=in_order, generator=torch.Generator())


def by_arithmetic(train_set, val_set, batch_size, seed):
    full = len(train_set) // batch_size
    single = len(train_set) - full * batch_size == 1
    sampler = RandomSampler(range(len(train_set)), generator=_own(seed + 17))
    loaders = [
        DataLoader(
            train_set, batch_size, sampler=sampler, drop_last=single, generator=torch.Generator()
        ),
        DataLoader(val_set, batch_size, generator=torch.Generator()),
    ]
    return loaders


def wired(*, train: dict | None = None, val: dict | None = None):
    """A right answer with other options for one of its loaders."""

    def wrong(train_set, val_set, batch_size, seed):
        how = {"batch_size": batch_size, "generator": _own(seed)}
        drop = {"shuffle": True, "drop_last": len(train_set) % batch_size == 1}
        return (DataLoader(train_set, **(how | drop | (train or {}))),
                DataLoader(val_set, **(how | {"generator": _own(seed)} | (val or {}))))  # fmt: skip

    return wrong


def seeded_globally(train_set, val_set, batch_size, seed):
    torch.manual_seed(seed)
    drop = len(train_set) % batch_size == 1
    return (DataLoader(train_set, batch_size, shuffle=True, drop_last=drop),
            DataLoader(val_set, batch_size))  # fmt: skip


def no_seed(train_set, val_set, batch_size, seed):
    drop = len(train_set) % batch_size == 1
    return (DataLoader(train_set, batch_size, shuffle=True, drop_last=drop),
            DataLoader(val_set, batch_size))  # fmt: skip


def shared_generator(train_set, val_set, batch_size, seed):
    own, drop = _own(seed), len(train_set) % batch_size == 1
    return (DataLoader(train_set, batch_size, shuffle=True, drop_last=drop, generator=own),
            DataLoader(val_set, batch_size, generator=own))  # fmt: skip


def swapped(train_set, val_set, batch_size, seed):
    train, val = plain(train_set, val_set, batch_size, seed)
    return val, train


def shuffled_once(train_set, val_set, batch_size, seed):
    order = torch.randperm(len(train_set), generator=_own(seed)).tolist()
    drop = len(train_set) % batch_size == 1
    return (DataLoader(Subset(train_set, order), batch_size, drop_last=drop, generator=_own(1)),
            DataLoader(val_set, batch_size, generator=_own(1)))  # fmt: skip


def with_replacement(train_set, val_set, batch_size, seed):
    sampler = RandomSampler(train_set, replacement=True, generator=_own(seed))
    drop = len(train_set) % batch_size == 1
    return (DataLoader(train_set, batch_size, sampler=sampler, drop_last=drop, generator=_own(1)),
            DataLoader(val_set, batch_size, generator=_own(1)))  # fmt: skip


def without_one_generator(train_set, val_set, batch_size, seed):
    train, _ = plain(train_set, val_set, batch_size, seed)
    return train, DataLoader(val_set, batch_size)


def in_the_sampler_alone(train_set, val_set, batch_size, seed):
    sampler = RandomSampler(train_set, generator=_own(seed))
    return wired(train={"shuffle": False, "sampler": sampler, "generator": None})(
        train_set, val_set, batch_size, seed
    )


def as_lists(train_set, val_set, batch_size, seed):
    return tuple(list(loader) for loader in plain(train_set, val_set, batch_size, seed))


def seeded_with_the_global_seed_too(train_set, val_set, batch_size, seed):
    return plain(train_set, val_set, batch_size, (torch.initial_seed() + seed) % 2**63)


def sampler_without_generator(train_set, val_set, batch_size, seed):
    return wired(train={"shuffle": False, "sampler": RandomSampler(train_set)})(
        train_set, val_set, batch_size, seed
    )


def two_dropped(train_set, val_set, batch_size, seed):
    drop = len(train_set) % batch_size in (1, 2)
    return wired(train={"drop_last": drop})(train_set, val_set, batch_size, seed)


def val_drops_one(train_set, val_set, batch_size, seed):
    drop = len(val_set) % batch_size == 1
    return wired(val={"drop_last": drop})(train_set, val_set, batch_size, seed)


def size_ignored(train_set, val_set, batch_size, seed):
    return plain(train_set, val_set, 64, seed)


def wrong_way_round(train_set, val_set, batch_size, seed):
    return wired(train={"drop_last": len(train_set) % batch_size != 1})(
        train_set, val_set, batch_size, seed
    )


def rest_of_one_merged(train_set, val_set, batch_size, seed):
    """Leaves a last batch of one out by one more example in each batch."""
    size = batch_size + (len(train_set) % batch_size == 1)
    return (DataLoader(train_set, size, shuffle=True, generator=_own(seed)),
            DataLoader(val_set, batch_size, generator=_own(seed)))  # fmt: skip


def drops_in_both(train_set, val_set, batch_size, seed):
    drop = len(train_set) % batch_size == 1
    return wired(val={"drop_last": drop})(train_set, val_set, batch_size, seed)


def asked_of_validation(train_set, val_set, batch_size, seed):
    drop = len(val_set) % batch_size == 1
    return wired(train={"drop_last": drop})(train_set, val_set, batch_size, seed)


def one_never_comes(train_set, val_set, batch_size, seed):
    num = len(train_set) - (len(train_set) % batch_size == 1)
    return (DataLoader(Subset(train_set, range(num)), batch_size, shuffle=True,
                       generator=_own(seed)),
            DataLoader(val_set, batch_size, generator=_own(seed)))  # fmt: skip


ONE_FOR_ALL = torch.Generator()


def one_for_all_calls(train_set, val_set, batch_size, seed):
    ONE_FOR_ALL.manual_seed(seed)
    return wired(train={"generator": ONE_FOR_ALL})(train_set, val_set, batch_size, seed)


class ByRandom(Sampler):
    """Orders from Python's global generator, or from NumPy's."""

    def __init__(self, num: int, shuffle: Any) -> None:
        self.num, self.shuffle = num, shuffle

    def __len__(self) -> int:
        return self.num

    def __iter__(self) -> Iterator[int]:
        order = list(range(self.num))
        self.shuffle(order)
        return iter(order)


def seeded_in_python(train_set, val_set, batch_size, seed):
    random.seed(seed)
    sampler = ByRandom(len(train_set), random.shuffle)
    return _with_sampler(train_set, val_set, batch_size, sampler)


def seeded_in_numpy(train_set, val_set, batch_size, seed):
    np.random.seed(seed)
    sampler = ByRandom(len(train_set), np.random.shuffle)
    return _with_sampler(train_set, val_set, batch_size, sampler)


def draws_in_making(train_set, val_set, batch_size, seed):
    torch.manual_seed(seed)
    return plain(train_set, val_set, batch_size, seed)


class SameOrder(Sampler):
    """A permutation from a generator seeded again in each epoch, or with the epoch, too."""

    def __init__(self, num: int, seed: int, *, epoch: int | None = None) -> None:
        self.num, self.seed, self.epoch = num, seed, epoch

    def __len__(self) -> int:
        return self.num

    def __iter__(self) -> Iterator[int]:
        key = self.seed
        if self.epoch is not None:
            self.epoch += 1
            key = 1000 * self.seed + self.epoch
        return iter(torch.randperm(self.num, generator=_own(key)).tolist())


class TwoOrders(SameOrder):
    """Two permutations in turn."""

    def __iter__(self) -> Iterator[int]:
        self.epoch %= 2
        return super().__iter__()


def _with_sampler(train_set, val_set, batch_size, sampler):
    drop = len(train_set) % batch_size == 1
    return (DataLoader(train_set, batch_size, sampler=sampler, drop_last=drop, generator=_own(0)),
            DataLoader(val_set, batch_size, generator=_own(0)))  # fmt: skip


def two_orders_in_turn(train_set, val_set, batch_size, seed):
    sampler = TwoOrders(len(train_set), seed, epoch=0)
    return _with_sampler(train_set, val_set, batch_size, sampler)


def same_order_in_each_epoch(train_set, val_set, batch_size, seed):
    return _with_sampler(train_set, val_set, batch_size, SameOrder(len(train_set), seed))


def keyed_by_epoch(train_set, val_set, batch_size, seed):
    sampler = SameOrder(len(train_set), seed, epoch=0)
    return _with_sampler(train_set, val_set, batch_size, sampler)


def weighted(train_set, val_set, batch_size, seed):
    num = len(train_set)
    sampler = WeightedRandomSampler(torch.ones(num), num, generator=_own(seed))
    drop = num % batch_size == 1
    return (DataLoader(train_set, batch_size, sampler=sampler, drop_last=drop, generator=_own(1)),
            DataLoader(val_set, batch_size, generator=_own(1)))  # fmt: skip


def in_global_worker_seed(train_set, val_set, batch_size, seed):
    """The order is seeded, and both loaders still draw a seed for workers from torch."""
    sampler = RandomSampler(train_set, generator=_own(seed))
    drop = len(train_set) % batch_size == 1
    return (DataLoader(train_set, batch_size, sampler=sampler, drop_last=drop),
            DataLoader(val_set, batch_size))  # fmt: skip


def first_examples_only(train_set, val_set, batch_size, seed):
    num = len(train_set) // batch_size * batch_size
    kept = Subset(train_set, range(num))  # the rest is never seen, in any epoch
    return (DataLoader(kept, batch_size, shuffle=True, generator=_own(seed)),
            DataLoader(val_set, batch_size, generator=_own(seed)))  # fmt: skip


WRONG = (
    ("never-drops", wired(train={"drop_last": False}),
     "Training yielded a last batch of one example. BatchNorm cannot train on it: leave it out."),
    ("always-drops", wired(train={"drop_last": True}),
     "A last training batch of several examples was left out. Only a batch of a single example "
     "should be."),
    ("wrong-way-round", wrong_way_round,
     "The last training batch was kept when it held one example, and left out when it held more. "
     "It should be the other way round: drop_last=True if it holds one."),
    ("not-shuffled", wired(train={"shuffle": False}),
     "The training examples came in the order of the data set. shuffle=True for training."),
    ("val-shuffled", wired(val={"shuffle": True}),
     "The validation examples did not come in order. Shuffling is for training."),
    ("val-drops", wired(val={"drop_last": True}),
     "Validation lost its last batch. Every example counts there, so nothing is dropped."),
    ("small-rest-dropped", two_dropped,
     "A last training batch of two examples was left out. Only a batch of a single example should "
     "be."),
    ("val-drops-one", val_drops_one,
     "Validation lost a last batch of one example. BatchNorm in eval mode accepts it: drop nothing "
     "there."),
    ("drops-in-both", drops_in_both,
     "Validation lost its last batch when that of training held one example. Drop nothing in "
     "validation."),
    ("asked-of-validation", asked_of_validation,
     "Training lost its last batch exactly when that of validation held one example. What matters "
     "is the last batch of train_set."),
    ("seeded-globally", seeded_globally,
     "The order depends on torch's global generator, from which other code draws as well. Give the "
     "loader its own: generator=torch.Generator().manual_seed(seed)."),
    ("no-seed", no_seed,
     "The order comes from torch's global generator, and the seed has no effect on it. Give the "
     "loader its own generator, seeded with seed."),
    ("no-seed", sampler_without_generator, ""),
    ("own-seed", lambda t, v, b, seed: plain(t, v, b, 42),
     "Another seed gave the same order. Seed the generator with the seed that is passed in."),
    ("part-of-the-seed", lambda t, v, b, seed: plain(t, v, b, seed % 100),
     "Two seeds far apart gave the same order. Seed the generator with the whole seed, not with a "
     "remainder of it."),
    ("part-of-the-seed", lambda t, v, b, seed: plain(t, v, b, seed & 0xFFFF), ""),
    ("one-for-all-calls", one_for_all_calls,
     "Loaders with the same seed gave different first epochs when other loaders had been made "
     "before their passes, or other code had drawn or seeded. Create a torch.Generator in each "
     "call, and draw the order from it alone."),
    ("one-for-all-calls", seeded_in_python, ""),
    ("one-for-all-calls", seeded_in_numpy, ""),
    ("one-for-all-calls", seeded_with_the_global_seed_too, ""),
    ("shared-generator", shared_generator,
     "A pass over validation changed the next training epoch: both loaders draw from one "
     "generator, and each pass draws, shuffled or not. Give each loader its own."),
    ("swapped", swapped,
     "The first loader yields validation's examples, the second training's. Return train_loader, "
     "val_loader."),
    ("shuffled-once", shuffled_once,
     "All four epochs had the same order. Draw a new order in each epoch, as shuffle=True does "
     "with a generator that continues from epoch to epoch."),
    ("one-never-comes", one_never_comes,
     "When the last batch would hold a single example, the same example was left out in all four "
     "epochs. Drop a batch (drop_last), not a fixed example of the data set."),
    ("val-twice-as-large", lambda t, v, b, seed: (plain(t, v, b, seed)[0],
                                                  DataLoader(v, 2 * b, generator=_own(seed))),
     "The validation batches are larger than batch_size, which applies to both loaders."),
    ("shuffled-once", same_order_in_each_epoch, ""),
    ("orders-come-back", two_orders_in_turn,
     "Four epochs had only two different orders. Draw a new order in each epoch, as shuffle=True "
     "does with a generator that continues from epoch to epoch."),
    ("with-replacement", with_replacement,
     "Some training examples came more than once in an epoch. Sampling with replacement also "
     "leaves others out."),
    ("with-replacement", weighted, ""),
    ("without-one-generator", without_one_generator,
     "The orders are right, but a pass still drew from torch's global generator: a DataLoader "
     "without a generator takes a seed from there in every pass, even without shuffling or with a "
     "sampler of its own. Give each DataLoader a generator."),
    ("without-one-generator", in_the_sampler_alone, ""),
    ("without-one-generator", in_global_worker_seed, ""),
    ("draws-in-making", draws_in_making,
     "The orders are right, but making the loaders seeded torch's global generator or drew from "
     "it. Seed the loader's own torch.Generator() instead: torch.manual_seed() affects all other "
     "code."),
    ("as-lists", as_lists, ""),
    ("merged", rest_of_one_merged, ""),
    ("always-drops", first_examples_only, ""),
    ("one-by-one", wired(train={"batch_size": 1, "drop_last": False}), ""),
    ("val-in-one", lambda t, v, b, seed: (plain(t, v, b, seed)[0],
                                          DataLoader(v, len(v), generator=_own(seed))),
     "Validation came in one batch. batch_size applies to both loaders."),
    ("size-ignored", size_ignored,
     "Everything came in one batch, in both loaders. Pass batch_size to both."),
    ("not-collated", wired(train={"collate_fn": list}), ""),
)  # fmt: skip


SURE = "one-never-comes", "small-rest-dropped", "val-drops-one"
"""Told by one case alone."""


EXERCISE = Exercise(
    id="03c.loaders",
    title="set up two loaders",
    source='Annotated-loop essay, "The data"',
    ledger=("X46", "C15", "C17", "F86", "F96", "B30"),
    minutes=10,
    difficulty=2,
    read=("F86", "F96", "course.data.make_loader"),
    hints=(
        "Two loaders, six decisions: for each, the order, the batch size and the last batch. Which "
        "of them depend on the lengths?",
        "A loader draws from its generator whenever a pass begins. If it has none, it uses torch's "
        "global one, in validation too.",
        "drop_last=len(train_set) % batch_size == 1, and "
        "generator=torch.Generator().manual_seed(seed), one for each loader.",
    ),
    signature="make_loaders(train_set, val_set, batch_size, seed)",
    parts=(
        Part("rest", "training batches, with a last batch of one, full, and of several "
                     "examples", points=1,
             cases=5, fields=("sizes", "most_often", "shuffled", "always_missing")),
        Part("val", "validation: all examples, in order", points=0.5, cases=3,
             fields=("val_sizes", "val_in_order", "val_rows", "val_again")),
        Part("order", "shuffled in each epoch, each example once", points=0.5, cases=3,
             fields=("shuffled", "most_often", "orders")),
        Part("seed", "an order that the seed reproduces, whatever else draws", points=1, cases=3,
             fields=("shuffled", "same_first_epoch", "same_second_epoch", "seeds_differ")),
        Part("global", "nothing drawn from torch's global generator", points=0.5, cases=3,
             fields=("shuffled", "untouched")),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "sizes": "the sizes of the training batches",
        "val_sizes": "the sizes of the validation batches",
        "val_in_order": "the order of validation",
        "val_rows": "the validation examples, by number,",
        "val_again": "the validation examples of a second pass",
        "most_often": "the most times that one training example came in an epoch",
        "shuffled": "the order of training",
        "always_missing": "the number of examples that never came in four epochs",
        "orders": "the number of different orders",
        "same_first_epoch": "from loaders made again with the same seed, the first epoch",
        "same_second_epoch": "from these, the second epoch, after a pass over validation,",
        "seeds_differ": "the order",
        "untouched": "the state of torch's global generator",
    },
    by_hand=(make_loader,),
    wrong=tuple(
        Wrong(name, named(name, function), message, sure=name in SURE)
        for name, function, message in WRONG
    ),
    right=(plain, with_samplers, by_arithmetic, keyed_by_epoch),
)  # fmt: skip
