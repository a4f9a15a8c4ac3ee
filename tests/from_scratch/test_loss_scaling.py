"""The scaler written out does what torch.amp.GradScaler does, update by update."""

import math

import pytest
import torch
from torch import nn

from course.from_scratch.loss_scaling import LossScaler

OPTIONS = {"growth": 4.0, "backoff": 0.25, "interval": 2}


def trained(kind: str, spoiled: dict[int, float], updates: int = 9, clip: bool = False):
    """Scales and weights after each update; a spoiled one has this in its first gradient."""
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    groups = [{"params": [model.weight]}, {"params": [model.bias], "lr": 0.3}]
    optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9)
    if kind == "torch":
        scaler = torch.amp.GradScaler(
            "cpu", init_scale=1024.0, growth_factor=4.0, backoff_factor=0.25, growth_interval=2
        )
        scaled, unscale, scale = scaler.scale, scaler.unscale_, scaler.get_scale
    else:
        scaler = LossScaler(1024.0, **OPTIONS)
        scaled, unscale, scale = scaler.scaled, scaler.unscale, lambda: scaler.scale
    seen = []
    for update in range(updates):
        optimizer.zero_grad()
        scaled(model(torch.randn(4, 3)).square().mean()).backward()
        if update in spoiled:
            model.weight.grad[0, 0] = spoiled[update]
        if clip:
            unscale(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        seen.append((scale(), model.weight.detach().clone(), model.bias.detach().clone()))
    return seen


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize(
    "spoiled", [{}, {0: math.inf}, {3: -math.inf, 4: math.nan}, {1: math.nan, 8: math.inf}]
)
def test_scales_and_weights_are_those_of_torchs_scaler(spoiled, clip):
    for mine, torchs in zip(
        trained("mine", spoiled, clip=clip), trained("torch", spoiled, clip=clip), strict=True
    ):
        assert mine[0] == torchs[0]
        torch.testing.assert_close(mine[1:], torchs[1:])


def test_a_loss_in_sixteen_bits_is_scaled_in_float32():
    loss = torch.tensor(8.0, dtype=torch.float16)
    assert LossScaler(2.0**14).scaled(loss).item() == 2.0**17  # float16 ends at 65,504


def test_step_says_whether_it_stepped_and_a_second_unscale_raises():
    weight = nn.Parameter(torch.ones(1))
    optimizer, scaler = torch.optim.SGD([weight], lr=0.1), LossScaler(8.0)
    weight.grad = torch.tensor([math.inf])
    scaler.unscale(optimizer)
    with pytest.raises(RuntimeError, match="twice"):
        scaler.unscale(optimizer)
    assert scaler.step(optimizer) is False and weight.item() == 1.0
    scaler.update()
    weight.grad = torch.tensor([4.0])  # the scale is 4 by now
    assert scaler.step(optimizer) is True and weight.item() == pytest.approx(0.9)
