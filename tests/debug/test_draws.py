"""Draws in the data: copies of a generator in workers are an alarm, seeds by example a note."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset, get_worker_info

from course.data import load, make_loader
from course.debug import diagnose, museum
from course.debug.museum import cannot_see
from course.debug.probes import draws
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.setup import as_setup

DIGITS = load("digits")
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


class Noisy(Dataset):
    def __init__(self, draw) -> None:
        self.draw = draw

    def __len__(self) -> int:
        return 192

    def __getitem__(self, index: int):
        return DIGITS.train_inputs[index] + 0.1 * self.draw(index), DIGITS.train_targets[index]


class KnowsItsWorker(Noisy):
    def __getitem__(self, index: int):
        get_worker_info()  # and would seed by it
        return super().__getitem__(index)


def own(kind: str):
    generator = {
        "numpy": np.random.default_rng(0), "python": random.Random(0),
        "torch": torch.Generator().manual_seed(0),
    }[kind]  # fmt: skip
    if kind == "torch":
        return lambda _: float(torch.rand((), generator=generator))
    return lambda _: generator.random()


def by_example(index: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(index)
    return torch.randn(DIGITS.train_inputs.shape[1:], generator=generator)


def from_global(_index: int) -> torch.Tensor:
    return torch.randn(DIGITS.train_inputs.shape[1:])


def setup(loader) -> dict:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    return {"model": model, "loss_fn": nn.CrossEntropyLoss(), "optimizer": optimizer,
            "train_loader": loader, "num_classes": 10}  # fmt: skip


def found(loader) -> list:
    session = Session(as_setup(setup(loader)))
    try:
        return [(finding.id, finding.severity) for finding in draws.same_draws(session)]
    except NotChecked:
        return ["not checked"]


def in_workers(data: Dataset, num: int = 2, **options) -> DataLoader:
    return DataLoader(
        data, 32, shuffle=True, num_workers=num, multiprocessing_context="fork", **options
    )


@pytest.mark.parametrize("kind", ["numpy", "python", "torch"])
def test_a_generator_that_each_worker_gets_a_copy_of_is_an_alarm(kind):
    """The oracle is two passes over the loader, unshuffled: the noise is the same."""
    data = Noisy(own(kind))
    assert found(in_workers(data)) == [("same-draws", "warning")]
    loader = DataLoader(data, 32, num_workers=2, multiprocessing_context="fork")
    first, second = (torch.cat([inputs for inputs, _ in loader]) for _ in range(2))
    assert torch.equal(first, second)


def test_the_alarm_is_in_the_report_and_names_the_generator():
    report = diagnose(setup(in_workers(Noisy(own("numpy")))))
    assert [f.id for f in report.alarms] == ["same-draws"], str(report)
    assert (
        "its own numpy.random._generator.Generator, and each of 2 workers"
        in report.alarms[0].message
    )


@pytest.mark.parametrize(
    "loader",
    [
        lambda: in_workers(Noisy(from_global)),
        lambda: in_workers(Noisy(lambda _: 0.0)),
        lambda: in_workers(Noisy(by_example)),
        lambda: make_loader(Noisy(from_global), 32, num_workers=2, shuffle=True),
        lambda: DataLoader(Noisy(own("numpy")), 32, shuffle=True),
        lambda: DataLoader(Noisy(from_global), 32, shuffle=True),
        lambda: DataLoader(Noisy(lambda _: 0.0), 32, shuffle=True),
    ],
    ids=["global in workers", "none", "by example in workers", "make_loader", "own, no workers",
         "global", "none, no workers"],
)  # fmt: skip
def test_sound_draws_are_neither_alarm_nor_note(loader):
    assert found(loader()) == []


@pytest.mark.parametrize(
    "loader",
    [
        lambda: in_workers(Noisy(own("numpy")), worker_init_fn=lambda _: None),
        lambda: in_workers(KnowsItsWorker(own("numpy"))),
        lambda: in_workers(Noisy(own("numpy")), num=1, persistent_workers=True),
    ],
    ids=["worker_init_fn", "get_worker_info", "one that outlives the epoch"],
)
def test_what_may_be_seeded_anew_is_not_judged(loader):
    assert found(loader()) == ["not checked"]


def test_noise_seeded_by_the_example_alone_is_a_note():
    assert found(DataLoader(Noisy(by_example), 32, shuffle=True)) == [("same-draws", "note")]
    with_bug, without = (museum.exhibit("B33").make(bug)["train_loader"] for bug in (True, False))
    assert found(with_bug) == [("same-draws", "note")] and found(without) == []


def test_what_cannot_be_seen_is_listed_with_its_reason():
    unseen = cannot_see()
    assert {"B12", "B32", "B33", "B41"} <= set(unseen)
    assert all(len(reason.split()) > 8 for reason in unseen.values())
    assert not any(museum.exhibit(id).names for id in unseen)


class AlwaysDropping(nn.Module):
    """Dropout that stays on in evaluation, from a generator of its own."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 1)
        self.own = torch.Generator().manual_seed(3)

    def forward(self, x):
        hidden = self.first(x).relu()
        return self.last(hidden * (torch.rand(hidden.shape, generator=self.own) > 0.1))


def test_a_model_that_draws_from_its_own_generator_keeps_no_state_and_mixes_no_rows():
    torch.manual_seed(0)
    model, x = AlwaysDropping(), torch.randn(128, 8)
    setup = dict(
        model=model,
        loss_fn=nn.MSELoss(),
        optimizer=torch.optim.Adam(model.parameters(), 1e-2),
        train_loader=DataLoader(TensorDataset(x, x[:, :1].sin()), 16, shuffle=True),
    )
    report = diagnose(setup)
    assert not {finding.id for finding in report.alarms} & {"state-carried", "rows-mixed"}, report
