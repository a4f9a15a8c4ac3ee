"""Bytes of weights, gradients and state, against the numbers counted by hand."""

import pytest
import torch
from torch import nn

from course.analysis.footprint import footprint


@pytest.mark.parametrize(
    ("kind", "options", "state"),
    [("SGD", {}, 0), ("SGD", {"momentum": 0.9}, 4 * 33), ("AdamW", {}, 2 * 4 * 33 + 2 * 4)],
)
def test_a_step_leaves_the_state_that_the_optimizer_keeps(kind, options, state):
    model = nn.Linear(10, 3)
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.1, **options)
    assert footprint(model, optimizer) == {"weights": 132, "gradients": 0, "optimizer": 0}
    model(torch.ones(1, 10)).sum().backward()
    optimizer.step()
    assert footprint(model, optimizer) == {"weights": 132, "gradients": 132, "optimizer": state}


def test_a_shared_weight_counts_once_and_a_model_in_bf16_half():
    layer = nn.Linear(4, 4, bias=False).bfloat16()
    model = nn.Sequential(layer, layer)
    assert footprint(model, torch.optim.SGD(model.parameters()))["weights"] == 32
