"""Samplers and loaders that remember from epoch to epoch: resumed to the same bits, or refused."""

import itertools
import random
from collections import deque

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, Sampler, TensorDataset

from course.data import make_loader
from course.engine import CheckpointError, Trainer

NUM = 24
X = torch.randn(NUM, 5, generator=torch.Generator().manual_seed(1))
Y = X[:, :3].argmax(1)


class Own(Sampler):
    """A sampler whose order comes from what it remembers."""

    def __init__(self) -> None:
        self.begin()

    def __len__(self) -> int:
        return NUM

    def __iter__(self):
        return iter(self.order_of_epoch())


def order_by(seed):
    return torch.randperm(NUM, generator=torch.Generator().manual_seed(seed)).tolist()


class ShufflesItsList(Own):
    def begin(self):
        self.order = list(range(NUM))

    def order_of_epoch(self):
        random.shuffle(self.order)
        return list(self.order)


class ShufflesItsTensor(Own):
    def begin(self):
        self.order = torch.arange(NUM)

    def order_of_epoch(self):
        self.order.copy_(self.order[torch.randperm(NUM)])
        return self.order.tolist()


class ShufflesItsArray(Own):
    def begin(self):
        self.order, self.seen = None, deque([1], maxlen=3)

    def order_of_epoch(self):
        self.order = np.arange(NUM) if self.order is None else self.order
        self.seen.append(self.seen[-1] + 1)
        np.random.default_rng(sum(self.seen)).shuffle(self.order)
        return self.order.tolist()


class Memory:
    def __init__(self):
        self.epochs = {"done": [0]}


class CountsInAnotherObject(Own):
    def begin(self):
        self.memory = Memory()

    def order_of_epoch(self):
        self.memory.epochs["done"][0] += 1
        return order_by(self.memory.epochs["done"][0])


class HoldsAnIterator(Own):
    def begin(self):
        self.epochs = itertools.count()

    def order_of_epoch(self):
        return order_by(next(self.epochs))


class OwnLoader:
    """No DataLoader at all."""

    def __init__(self):
        self.epoch = 0

    def __len__(self):
        return NUM // 3

    def __iter__(self):
        self.epoch += 1
        rows = torch.tensor(order_by(self.epoch)).split(3)
        return ((X[row], Y[row]) for row in rows)


def loader_of(kind):
    if kind is OwnLoader:
        return OwnLoader()
    return DataLoader(TensorDataset(X, Y), 3, sampler=kind())


def train(kind, run_dir=None, max_updates=None, **options):
    """3 epochs of 8 updates in what stands for a new process: everything is made again."""
    random.seed(0)
    torch.manual_seed(0)
    model = nn.Linear(5, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    trainer = Trainer(model, nn.CrossEntropyLoss(), optimizer, run_dir=run_dir, device="cpu")
    trainer.fit(loader_of(kind), epochs=3, max_updates=max_updates, progress=False, **options)
    return model.weight.detach()


KINDS = [ShufflesItsList, ShufflesItsTensor, ShufflesItsArray, CountsInAnotherObject, OwnLoader]


@pytest.mark.parametrize("stopped", [11, 16], ids=["inside an epoch", "at an epoch's end"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_resumed_run_gets_the_orders_that_the_sampler_would_have_given(kind, stopped, tmp_path):
    train(kind, tmp_path, stopped)
    assert torch.equal(train(kind, tmp_path, resume="auto"), train(kind))


def test_an_iterator_that_outlives_the_epochs_is_refused_unless_accepted(tmp_path):
    with pytest.warns(UserWarning, match="cannot hold epochs of HoldsAnIterator"):
        train(HoldsAnIterator, tmp_path, 16)
    with pytest.raises(CheckpointError, match="epochs of HoldsAnIterator: it continues from epoch"):
        train(HoldsAnIterator, tmp_path, resume="auto")
    with pytest.warns(UserWarning, match="a resumed run would get different batches"):
        train(HoldsAnIterator, tmp_path, resume="auto", on_change="accept")


def test_settings_that_did_not_change_in_the_run_stay_those_of_the_new_process():
    """A resumed run may give another path or another number of workers."""
    from course.engine.own_state import OwnState

    old, new = Memory(), Memory()
    old.where, new.where = "/old", "/new"
    saved = OwnState(lambda: [old])
    old.epochs["done"][0] = 7
    OwnState(lambda: [new]).put_back(saved.changed())
    assert (new.where, new.epochs) == ("/new", {"done": [7]})


class Noting(torch.utils.data.Dataset):
    """Keeps a cache, and notes in an object of somebody else's what it was asked for."""

    def __init__(self, notes):
        self.notes, self.cache, self.asked = notes, {}, 0

    def __len__(self):
        return NUM

    def __getitem__(self, index):
        self.asked += 1
        self.notes.rows.append(index)
        return self.cache.setdefault(index, (X[index], Y[index]))


class Notes:
    def __init__(self):
        self.rows = []


def test_what_a_data_set_caches_and_notes_is_left_alone():
    from course.engine.own_state import OwnState

    data = Noting(Notes())
    state = OwnState(lambda: [data, RandomSampler(data)])
    assert state.changed() == {} and len(data[3]) == 2
    assert state.changed() == {"0.asked": 1} and state.lost() == []
    state.put_back({})
    assert (data.asked, data.notes.rows, list(data.cache)) == (0, [3], [3])


VAL = TensorDataset(X, Y)


def own_generator():
    return torch.Generator().manual_seed(3)


VALIDATIONS = {
    "sampler": lambda: DataLoader(
        VAL,
        5,
        sampler=RandomSampler(VAL, replacement=True, num_samples=10, generator=own_generator()),
    ),
    "shuffle": lambda: DataLoader(VAL, 5, shuffle=True, generator=own_generator()),
    "counter": lambda: DataLoader(VAL, 5, sampler=SomeOfThem()),
    "position": lambda: make_loader(VAL, 5, shuffle=True, drop_last=True),
}


class SomeOfThem(Own):
    """Other rows at each pass, counted by itself."""

    def begin(self):
        self.passes = 0

    def order_of_epoch(self):
        self.passes += 1
        return order_by(self.passes)[:10]


@pytest.mark.parametrize("name", VALIDATIONS)
def test_validation_draws_in_a_resumed_run_as_it_would_have(tmp_path, name):
    def losses(epochs, directory=None, resume=None):
        torch.manual_seed(0)
        model = nn.Linear(5, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        trainer = Trainer(model, nn.CrossEntropyLoss(), optimizer, seed=1, run_dir=directory)
        history = trainer.fit(
            [(X, Y)], VALIDATIONS[name](), epochs=epochs, resume=resume, progress=False
        )
        return history.column("val_loss")

    losses(2, tmp_path / "run")
    assert losses(4, tmp_path / "run", resume="auto") == losses(4)
