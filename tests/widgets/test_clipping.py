"""The plane against torch's own clipping, and the window against one big batch."""

import math

import pytest
import torch

from course.widgets.clipping.state import Settings, frame


@pytest.mark.parametrize("way", ["norm", "value"])
@pytest.mark.parametrize(("first", "second"), [(3.0, 4.0), (-0.5, 0.5), (-6.0, 0.0)])
def test_clipping_is_torchs(first, second, way):
    parameters = [torch.zeros(1, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    for parameter, number in zip(parameters, (first, second), strict=True):
        parameter.grad = torch.tensor([number], dtype=torch.float64)
    if way == "norm":
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    else:
        torch.nn.utils.clip_grad_value_(parameters, 1.0)
    shown = frame(Settings(first=first, second=second, way=way))
    assert shown["after"] == pytest.approx([p.grad.item() for p in parameters], abs=1e-12)
    assert shown["norm_before"] == pytest.approx(math.hypot(first, second))


def test_the_lectures_numbers():
    joint, value = (frame(Settings(way=way)) for way in ("norm", "value"))
    assert joint["after"] == pytest.approx([0.6, 0.8], abs=1e-6)
    assert joint["cosine"] == pytest.approx(1.0)
    assert value["cosine"] == pytest.approx(0.98995, abs=1e-5)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_only_shares_of_examples_land_on_the_big_batch(k):
    assert frame(Settings(accum_steps=k))["error"] == pytest.approx(0.0, abs=1e-12)
    if k > 1:
        assert frame(Settings(accum_steps=k, weighed="equal"))["error"] > 0.05
        assert frame(Settings(accum_steps=k, weighed="sum"))["error"] > 1.0


def test_clipping_each_micro_batch_is_another_update_than_clipping_the_window():
    window, micro = (frame(Settings(accum_steps=4, when=when)) for when in ("window", "micro"))
    assert math.dist(window["after"], micro["after"]) > 0.01 and micro["error"] is None


def test_a_gradient_without_direction_is_refused():
    with pytest.raises(ValueError, match="no direction"):
        Settings(first=0.0, second=0.0)
