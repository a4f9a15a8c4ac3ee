"""The engine leaves out the profiler's labels: what happens must be what torch does with them."""

import warnings
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam, Optimizer
from torch.optim.lr_scheduler import LinearLR
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

from course.engine import unprofiled
from tests.engine.test_trainer import make_loader, make_model, make_trainer, weights_of

LABELS = {"Optimizer.step#SGD.step", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"}


def make_parameter():
    weight = nn.Parameter(torch.ones(3))
    weight.grad = torch.tensor([1.0, 2.0, 3.0])
    return weight


@pytest.mark.parametrize("make", [
    lambda p: SGD(p, lr=0.1, momentum=0.9), lambda p: Adam(p, lr=0.1, fused=True),
    lambda p: torch.optim.RMSprop(p), lambda p: torch.optim.AdamW(p, amsgrad=True),
])  # fmt: skip
def test_a_step_is_torchs(make):
    ours, theirs = make_parameter(), make_parameter()
    own, other = make([ours]), make([theirs])
    for _ in range(3):
        unprofiled.step(own)
        other.step()
    assert torch.equal(ours, theirs) and ours.is_leaf


def test_a_profiler_sees_the_labels():
    with torch.profiler.profile() as profiler:
        make_trainer().fit(make_loader(), epochs=1, progress=False)
    assert {event.key for event in profiler.key_averages()} >= LABELS


def test_hooks_of_one_and_of_all_are_called():
    called = []
    optimizer = SGD([make_parameter()], lr=0.1)
    handles = [
        optimizer.register_step_pre_hook(lambda *_: called.append("before")),
        optimizer.register_step_post_hook(lambda *_: called.append("after")),
        register_optimizer_step_pre_hook(lambda *_: called.append("everybody's")),
    ]
    unprofiled.step(optimizer)
    assert called == ["everybody's", "before", "after"]
    for handle in handles:
        handle.remove()
    unprofiled.step(optimizer)
    assert len(called) == 3


def test_a_scheduler_still_sees_the_steps():
    optimizer = SGD([make_parameter()], lr=0.1)
    scheduler = LinearLR(optimizer)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # lr_scheduler.step() before optimizer.step()
        unprofiled.step(optimizer)
        scheduler.step()


def test_a_step_of_somebodys_own_is_called_whole(monkeypatch):
    """Decorated, replaced on the object or on the class: nothing of it is left out."""

    class Own(Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, {})

        @torch.no_grad()
        def step(self):
            for parameter in self.param_groups[0]["params"]:
                parameter.sub_(parameter.grad)

    weight = make_parameter()
    unprofiled.step(Own([weight]))
    assert weight.tolist() == [0.0, -1.0, -2.0]

    called = []
    optimizer = SGD([make_parameter()], lr=0.1)
    torchs = type(optimizer).step
    monkeypatch.setattr(SGD, "step", lambda self: called.append("class") or torchs(self))
    unprofiled.step(optimizer)
    optimizer.step = lambda: called.append("object")
    unprofiled.step(optimizer)
    assert called == ["class", "object"]


def test_batches_and_draws_are_the_dataloaders():
    data = TensorDataset(torch.arange(10.0), torch.arange(10))
    loaders = [
        DataLoader(data, 4, shuffle=True, generator=torch.Generator().manual_seed(1))
        for _ in range(2)
    ]
    for _ in range(2):
        ours, theirs = unprofiled.batches(loaders[0]), iter(loaders[1])
        assert torch.equal(loaders[0].generator.get_state(), loaders[1].generator.get_state())
        for mine, others in zip(ours, theirs, strict=True):
            assert all(map(torch.equal, mine, others))


def test_an_error_in_the_data_set_passes_through():
    class Stops(TensorDataset):
        def __getitem__(self, index):
            raise KeyError("no such image")

    with pytest.raises(KeyError, match="no such image"):
        next(unprofiled.batches(DataLoader(Stops(torch.ones(4)), 2)))


def test_a_stream_longer_than_it_says_is_warned_of():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(range(12))

        def __len__(self):
            return 4

    loader = DataLoader(Stream(), 2)
    assert len(loader) == 2
    with pytest.warns(UserWarning, match="reported to be 4"):
        assert len(list(unprofiled.batches(loader))) == 6


@pytest.mark.parametrize("loader", [
    [1, 2], (n for n in [1, 2]), DataLoader(range(2), batch_size=None, num_workers=1),
])  # fmt: skip
def test_other_loaders_are_iterated_as_they_are(loader):
    assert len(list(unprofiled.batches(loader))) == 2


def test_somebody_who_watches_the_batches_sees_them(monkeypatch):
    seen = []
    torchs = _BaseDataLoaderIter.__next__
    monkeypatch.setattr(
        _BaseDataLoaderIter, "__next__", lambda self: seen.append(torchs(self)) or seen[-1]
    )
    assert len(list(unprofiled.batches(make_loader()))) == len(seen) == 3


def test_a_run_under_a_profiler_ends_with_the_same_weights():
    ends = []
    for watching in (nullcontext(), torch.profiler.profile()):
        model = make_model()
        with watching:
            make_trainer(model, seed=0).fit(make_loader(), epochs=2, progress=False)
        ends.append(weights_of(model))
    assert all(map(torch.equal, *ends))
