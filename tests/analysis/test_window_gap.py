"""The gap of a window: rounding where the shares are right, a mistake's size where they are not."""

import pytest
import torch
from torch import nn

from course.analysis.window_gap import window_gap


def window(*sizes: int):
    torch.manual_seed(0)
    return [
        (torch.randn(n, 4, dtype=torch.float64), torch.randint(1, 3, (n,))) for n in sizes
    ]  # class 0 is nobody's


def model(norm: bool = False) -> nn.Module:
    torch.manual_seed(1)
    layers = [nn.Linear(4, 5), nn.BatchNorm1d(5) if norm else nn.Tanh(), nn.Linear(5, 3)]
    return nn.Sequential(*layers).double()


@pytest.mark.parametrize("sizes", [(4, 4, 4), (4, 4, 1), (1, 7)])
def test_shares_of_the_examples_leave_rounding_alone(sizes):
    shares = [n / sum(sizes) for n in sizes]
    assert window_gap(model(), nn.CrossEntropyLoss(), window(*sizes), shares) < 1e-12


def test_it_is_as_far_as_the_mistake_moves_the_gradient():
    batches, criterion = window(4, 4), nn.CrossEntropyLoss()
    assert window_gap(model(), criterion, batches, [1.0, 1.0]) == pytest.approx(1.0)
    assert window_gap(model(), criterion, batches, [0.0, 0.0]) == pytest.approx(1.0)
    assert window_gap(model(), criterion, window(4, 1), [0.5, 0.5]) > 0.01


def test_a_batch_norm_sees_the_micro_batch_and_its_buffers_stay_as_they_are():
    tried = model(norm=True)
    before = {name: value.clone() for name, value in tried.state_dict().items()}
    assert window_gap(tried, nn.CrossEntropyLoss(), window(4, 4), [0.5, 0.5]) > 0.01
    torch.testing.assert_close(dict(tried.state_dict()), before)
    assert all(p.grad is None for p in tried.parameters())


def test_shares_must_be_as_many_as_micro_batches():
    with pytest.raises(ValueError, match="2 shares for 1 micro-batches"):
        window_gap(model(), nn.CrossEntropyLoss(), window(4), [0.5, 0.5])
