"""Chapter 3c's questions against torch's own loaders and samplers, and loops that count."""

import warnings

import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, TensorDataset
from torch.utils.data import WeightedRandomSampler as Weighted

from autograde import bank
from autograde.kit.student import plain_name

NAMES = ("ada", "李", *(f"student{i}" for i in range(8)))


@pytest.mark.parametrize("option", bank.load("03c.flags").options, ids=lambda option: option.key)
def test_torch_refuses_the_flags_that_are_said_to_exclude_each_other(option, monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda *_: False)
    data = TensorDataset(torch.zeros(100, 1))
    names = {"data": data, "DataLoader": DataLoader, "RandomSampler": RandomSampler}
    assert eval("len(data)", names) == 100
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if option.right:
            with pytest.raises(ValueError):
                eval(option.text.strip("`"), names)
        else:
            batches = list(eval(option.text.strip("`"), names))
            assert bool(batches) == (option.key != "nothing-left")


def walked(n, b, k, e):
    """Oracle: every micro-batch of the run, one after another."""
    updates = {"a": 0, "b": 0, "one": 0}
    for _ in range(e):
        order = list(range(n))
        updates["one"] += len(order)
        batches = [order[i : i + b] for i in range(0, n, b)]
        waiting = 0
        for i in range(len(batches)):
            waiting += 1
            updates["b"] += (i + 1) % k == 0
            if waiting == k or i == len(batches) - 1:
                updates["a"], waiting = updates["a"] + 1, 0
    return {"all": len(batches), "last": len(batches[-1]), **updates}


@pytest.mark.parametrize("name", NAMES)
def test_the_counts_are_those_of_a_walk_through_the_run(name):
    exercise = bank.load("03c.counts")
    assert exercise.right_value(plain_name(name)) == walked(**exercise.inputs_of(name))


@pytest.mark.parametrize("name", NAMES[:4])
def test_what_is_drawn_is_what_torchs_samplers_draw(name):
    exercise = bank.load("03c.drawn")
    big, small, b, r = exercise.inputs_of(name).values()
    right, total = exercise.right_value(name), big + small
    every = [i for rank in range(r) for i in DistributedSampler(range(total + 1), r, rank)]
    assert right["twice"] == sum(every.count(i) == 2 for i in range(total + 1))
    torch.manual_seed(0)
    weights = [1 / big] * big + [1 / small] * small
    epochs = [set(Weighted(weights, total)) for _ in range(40)]
    seen = [sum(i < big for i in epoch) for epoch in epochs]
    assert right["seen"] == pytest.approx(sum(seen) / len(seen), rel=0.02)
    first = [torch.randperm(total)[:b] >= big for _ in range(2000)]
    assert right["plain"] == pytest.approx(
        torch.stack(first).sum(1).double().mean().item(), rel=0.06
    )
