"""Parameter groups: each trainable parameter once, with its own rate and decay."""

import pytest
import torch
from torch import nn

from course.engine.groups import parameter_groups


@pytest.fixture
def model():
    made = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 4), nn.Linear(4, 2))
    made[2].requires_grad_(False)
    return made


def given(groups):
    return {id(p): (g["lr"], g["weight_decay"]) for g in groups for p in g["params"]}


def test_rates_and_decay_are_those_of_each_parameter(model):
    found = given(parameter_groups(model, head=model[3], lr=0.1, head_lr=0.5, weight_decay=0.2))
    names = {name: found.get(id(p)) for name, p in model.named_parameters()}
    assert names == {
        "0.weight": (0.1, 0.2), "0.bias": (0.1, 0.0), "1.weight": (0.1, 0.0), "1.bias": (0.1, 0.0),
        "2.weight": None, "2.bias": None, "3.weight": (0.5, 0.2), "3.bias": (0.5, 0.0),
    }  # fmt: skip


def test_torch_takes_the_groups_and_only_decay_moves_weights_without_gradient(model):
    groups = parameter_groups(model, lr=0.1, weight_decay=0.5)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = torch.optim.AdamW(groups)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for name, p in model.named_parameters():
        shrunk = 0.95 if p.ndim == 2 and p.requires_grad else 1.0
        torch.testing.assert_close(p.detach(), before[name] * shrunk)


def test_a_shared_weight_is_in_one_group_and_the_heads_wins():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    groups = parameter_groups(model, head=model[1], lr=0.1, head_lr=0.5, weight_decay=0.0)
    assert sum(len(group["params"]) for group in groups) == 3
    assert given(groups)[id(model[0].weight)] == (0.5, 0.0)
