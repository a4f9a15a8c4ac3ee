"""Who trains or measures for a moment leaves the device's own random numbers where they were."""

import pytest
import torch
from torch import nn

from course.analysis import study
from course.analysis.race import losses_of
from course.analysis.switches import four_combinations
from course.analysis.window_gap import window_gap
from course.claims import registry as registry_of_claims
from course.data import load
from course.debug.museum.exhibit import seeded
from course.debug.one_batch import one_batch_losses
from course.debug.signatures import logged_run
from course.widgets.modes import state as modes
from course.widgets.registry import state as registry
from tests.second_device import GENERATOR, second_device


@pytest.fixture
def second():
    with second_device() as device:
        yield device


def with_dropout() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Dropout(0.5), nn.Linear(8, 10))


def race(device) -> float:
    def network() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).to(device)

    def sgd(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.1)

    return next(losses_of(load("digits").to(device), network, sgd, seed=0, batch_size=512))


def gap(device) -> float:
    batch = torch.randn(6, 64).to(device), torch.arange(6).to(device)
    return window_gap(with_dropout().to(device), nn.CrossEntropyLoss(), [batch], [1.0])


def combinations(device):
    return four_combinations(with_dropout(), torch.randn(4, 64), torch.arange(4))


def exhibit(device) -> None:
    with seeded():
        torch.randn(2, device=device)


def settings_of_a_claim(device) -> None:
    with registry_of_claims._quiet_and_seeded(0):
        torch.randn(2, device=device)


WORK = {
    "a claim": settings_of_a_claim,
    "an exhibit of the museum": exhibit,
    "four combinations": combinations,
    "gradients of a window": gap,
    "race": race,
    "study": lambda device: study.train(load("digits"), 0, dropout=0.5, epochs=1),
    "one batch": lambda device: one_batch_losses(steps=2),
    "a run with bugs": lambda device: logged_run({"leak"}, epochs=1),
    "widget of modes": lambda device: modes._network.__wrapped__(0.5, True),
    "widget of modules": lambda device: registry.frame(registry.Settings()),
}


@pytest.mark.parametrize("name", WORK)
def test_the_devices_generator_stays_where_it_was(name, second):
    registry._walk.cache_clear()
    torch.manual_seed(123)
    before = GENERATOR.get_state()
    WORK[name](second)
    assert torch.equal(GENERATOR.get_state(), before)


def test_both_ways_to_a_gradient_meet_the_same_dropout(second):
    assert gap(second) == 0.0
