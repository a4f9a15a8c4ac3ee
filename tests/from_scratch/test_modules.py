"""Registered modules, two ways off the tape, a loss that branches: against torch."""

import copy

import pytest
import torch
from torch import nn

from course.from_scratch.branching import branching_loss
from course.from_scratch.off_the_tape import bootstrapped, follow, share_memory
from course.from_scratch.registered import Registered


def test_a_registered_model_is_the_same_as_a_sequential():
    model = Registered(12, (8, 5), 3)
    layers = model.layers
    same = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])
    images = torch.randn(4, 3, 2, 2)
    assert torch.equal(model(images), same(images.flatten(1)))


def test_everything_is_trained_moved_and_saved():
    model = Registered(4, (3,), 2, mean=0.5, std=2.0)
    model(torch.rand(2, 4)).square().sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    assert {t.dtype for t in model.double().state_dict().values()} == {torch.float64}
    assert set(model.state_dict()) == {
        "temperature", "mean", "std", "layers.0.weight", "layers.0.bias", "layers.1.weight",
        "layers.1.bias",
    }  # fmt: skip


def test_a_permuted_image_is_flattened_where_view_would_fail():
    images = torch.rand(2, 4, 4, 3).permute(0, 3, 1, 2)
    with pytest.raises(RuntimeError):
        images.view(2, -1)
    assert Registered(48, (), 10)(images).shape == (2, 10)


def test_widths_and_deviations_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="at least 1"):
        Registered(4, (0,), 2)
    with pytest.raises(ValueError, match="positive"):
        Registered(4, (), 2, std=0.0)


@pytest.mark.parametrize("rate", [0.0, 0.1, 1.0])
def test_a_target_follows_by_its_rate(rate):
    online = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    target = copy.deepcopy(online)
    before = [p.detach().clone() for p in target.parameters()]
    for p in online.parameters():
        p.data.add_(1.0)
    online(torch.randn(8, 3))  # its running statistics move
    follow(target, online, rate)
    for old, new, own in zip(before, online.parameters(), target.parameters(), strict=True):
        torch.testing.assert_close(own.detach(), (1 - rate) * old + rate * new.detach())
        assert own.requires_grad and own.grad_fn is None
    assert torch.equal(target[1].running_mean, online[1].running_mean)


def test_a_target_of_another_shape_is_refused():
    with pytest.raises(ValueError, match="weight"):
        follow(nn.Linear(2, 3), nn.Linear(2, 4), 0.5)
    with pytest.raises(ValueError, match=r"rate=1\.5"):
        follow(nn.Linear(2, 3), nn.Linear(2, 3), 1.5)


def test_a_bootstrapped_value_sends_its_gradient_nowhere():
    values = torch.tensor([1.0, 2.0], requires_grad=True)
    goal = bootstrapped(torch.tensor([0.5, 0.0]), values * 2, 0.9)
    assert goal.tolist() == pytest.approx([2.3, 3.6]) and not goal.requires_grad


def test_detach_shares_memory_and_clone_does_not():
    values = torch.zeros(3, requires_grad=True)
    cut = values.detach()
    assert share_memory(values, cut) and not share_memory(values, values.detach().clone())
    cut[0] = 7.0
    assert values[0].item() == 7.0


def test_the_graph_is_that_of_the_branch_that_ran():
    for at, gradient in (((1.0, 2.0), (1.0, 2.0)), ((-1.0, -2.0), (-0.5, -0.5))):
        inputs = torch.tensor(at, requires_grad=True)
        branching_loss(inputs).backward()
        assert tuple(inputs.grad.tolist()) == gradient
        assert torch.autograd.gradcheck(branching_loss, inputs.detach().double().requires_grad_())
