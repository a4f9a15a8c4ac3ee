"""Doctor and ladder where model and data lie on another device: the same words as on the CPU."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from course.debug import climb, diagnose
from tests.sampling import THOROUGH
from tests.second_device import second_device

TOP = 7 if THOROUGH else 4
"""Rungs: the third and the fourth failed where the batches lie on the device."""


@pytest.fixture
def second():
    with second_device() as device:
        yield device


def setup(device, *, resident: bool = True, clears: bool = True) -> dict:
    """A sound set-up of three classes; without `clears`, gradients pile up.

    Args:
        resident: The batches lie on the device, and the step moves nothing; else they lie on the
            CPU, and the step moves each.
    """
    torch.manual_seed(0)
    inputs = torch.randn(192, 6)
    targets = inputs[:, :3].argmax(dim=1)
    there = device if resident else "cpu"
    rows = TensorDataset(inputs.to(there), targets.to(there))
    train, val = torch.utils.data.random_split(rows, [128, 64])
    model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 3)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.03, fused=True)
    loss_fn = nn.CrossEntropyLoss()

    def train_step(batch) -> float:
        model.train()
        if clears:
            optimizer.zero_grad()
        inputs, targets = batch if resident else (part.to(device) for part in batch)
        loss = loss_fn(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss.item()

    return {
        "model": model,
        "loss_fn": loss_fn,
        "optimizer": optimizer,
        "train_loader": DataLoader(train, 32, shuffle=True),
        "val_loader": DataLoader(val, 64),
        "train_step": train_step,
        "num_classes": 3,
    }


@pytest.mark.parametrize("resident", [True, False] if THOROUGH else [True])
def test_the_ladder_is_climbed_as_on_the_cpu(resident, second):
    there = climb(setup(second, resident=resident), epochs=3, top=TOP)
    here = climb(setup("cpu"), epochs=3, top=TOP)
    assert str(there) == str(here) and all(rung.passed for rung in there.rungs)


@pytest.mark.parametrize("clears", [False, True] if THOROUGH else [False])
def test_the_doctor_says_what_it_says_on_the_cpu(clears, second):
    there, here = (diagnose(setup(device, clears=clears)) for device in (second, "cpu"))
    assert str(there) == str(here) and there.ok == clears
