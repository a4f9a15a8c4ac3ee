"""Clipping against torch's own, bit for bit where that is promised."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.optim import SGD

from course.engine import (
    clip_by_global_norm,
    clip_by_value,
    clip_per_layer,
    grad_norm,
    train_step,
)


def parameters(*grads, device="cpu") -> list[nn.Parameter]:
    found = []
    for grad in grads:
        grad = torch.as_tensor(grad, dtype=torch.float64, device=device)
        parameter = nn.Parameter(torch.zeros_like(grad))
        parameter.grad = grad.clone()
        found.append(parameter)
    return found


numbers = st.floats(-1e3, 1e3, allow_nan=False, width=32)
tensors = st.lists(st.lists(numbers, min_size=1, max_size=4), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(grads=tensors, max_norm=st.floats(1e-3, 1e3))
def test_global_norm_is_torchs(grads, max_norm):
    ours, theirs = parameters(*grads), parameters(*grads)
    norm = clip_by_global_norm(ours, max_norm)
    torch.testing.assert_close(norm, nn.utils.clip_grad_norm_(theirs, max_norm), rtol=0, atol=0)
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(a.grad, b.grad)


@settings(max_examples=30, deadline=None)
@given(grads=tensors, max_value=st.floats(1e-3, 1e3))
def test_clipping_by_value_is_torchs(grads, max_value):
    ours, theirs = parameters(*grads), parameters(*grads)
    clip_by_value(ours, max_value)
    nn.utils.clip_grad_value_(theirs, max_value)
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(a.grad, b.grad)


def test_the_lectures_numbers(device):
    """N20: [3, 4] at 1 becomes [0.6, 0.8], but for the 1e-6 in the denominator."""
    found = parameters([3.0, 4.0], device=device)
    assert clip_by_global_norm(found, 1.0).item() == 5.0
    assert found[0].grad.tolist() == pytest.approx(
        [0.599999880000024, 0.799999840000032], abs=1e-15
    )
    found = parameters([3.0, 4.0], device=device)
    assert clip_by_global_norm(found, 1.0, eps=0.0).item() == 5.0
    assert found[0].grad.tolist() == pytest.approx([0.6, 0.8], abs=1e-15)


def test_per_layer_limits_each_tensor_by_itself():
    """N51: [300, 400] is clipped, [.3, .4] is not; the joint norm is above the limit."""
    found = parameters([300.0, 400.0], [0.3, 0.4])
    assert clip_per_layer(found, 1.0).item() == pytest.approx(math.hypot(500, 0.5))
    assert found[0].grad.tolist() == pytest.approx([0.6, 0.8], rel=1e-6)
    assert found[1].grad.tolist() == [0.3, 0.4]
    assert grad_norm(found).item() == pytest.approx(1.1180, abs=1e-4)


def test_by_value_turns_the_gradient():
    found = parameters([3.0, 4.0])
    assert clip_by_value(found, 1.0).item() == 5.0
    cosine = nn.functional.cosine_similarity(
        found[0].grad, torch.tensor([3.0, 4.0]).double(), dim=0
    )
    assert cosine.item() == pytest.approx(0.98995, abs=1e-5)


@pytest.mark.parametrize("clip", [clip_by_global_norm, clip_by_value, clip_per_layer])
def test_generators_tensors_and_parameters_without_grad(clip):
    found = parameters([3.0, 4.0])
    assert clip((p for p in found), 1.0).item() == 5.0
    assert clip(found[0], 1.0).item() <= math.sqrt(2)
    assert clip([nn.Parameter(torch.zeros(2))], 1.0).item() == 0.0
    assert clip([], 1.0).item() == 0.0


@pytest.mark.parametrize("clip", [clip_by_global_norm, clip_by_value, clip_per_layer])
@pytest.mark.parametrize("ceiling", [0, -1.0, math.nan])
def test_a_ceiling_must_be_above_zero(clip, ceiling):
    with pytest.raises(ValueError, match="must be above 0"):
        clip(parameters([1.0]), ceiling)


def test_infinity_only_measures():
    found = parameters([3.0, 4.0])
    assert clip_by_global_norm(found, math.inf).item() == 5.0
    assert found[0].grad.tolist() == [3.0, 4.0]


@pytest.mark.parametrize(
    ("max_norm", "theirs"),
    [
        (0.1, partial(nn.utils.clip_grad_norm_, max_norm=0.1)),
        (
            partial(clip_by_value, max_value=0.01),
            partial(nn.utils.clip_grad_value_, clip_value=0.01),
        ),
    ],
)
def test_a_step_clips_once_on_the_whole_windows_gradient(max_norm, theirs):
    torch.manual_seed(0)
    inputs, targets = torch.randn(8, 3).double(), torch.randint(0, 2, (8,))
    model = nn.Linear(3, 2).double()
    plain = nn.Linear(3, 2).double()
    plain.load_state_dict(model.state_dict())
    nn.functional.cross_entropy(plain(inputs), targets).backward()
    unclipped = grad_norm(plain.parameters())
    theirs(list(plain.parameters()))
    SGD(plain.parameters(), lr=1.0).step()
    pairs = list(zip(inputs.split([5, 3]), targets.split([5, 3]), strict=True))
    optimizer = SGD(model.parameters(), lr=1.0)
    report = train_step(model, pairs, nn.CrossEntropyLoss(), optimizer, max_norm=max_norm)
    torch.testing.assert_close(model.state_dict(), plain.state_dict(), rtol=1e-12, atol=1e-12)
    assert report.grad_norm == pytest.approx(unclipped.item(), rel=1e-12)
