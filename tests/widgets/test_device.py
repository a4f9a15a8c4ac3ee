"""What a step costs, against real torch steps and hand counts; and the three answers' edges."""

import pytest
import torch
from torch import nn

from course.claims.lab import saved_bytes
from course.widgets.device.cost import NETWORKS, Lm, cost, perceptron
from course.widgets.device.state import (
    BATCHES,
    DEVICES,
    GB,
    USABLE,
    Settings,
    answer,
    frame,
    largest_batch,
    need,
    step_seconds,
)

SMALL, LARGE = "perceptron, 8 × 8", "convolutions, 224 × 224"


def test_the_arithmetic_of_a_perceptron_is_counted_by_hand():
    one = cost(SMALL, False)
    assert one.parameters == 64 * 64 + 64 + 64 * 10 + 10
    forward, for_weights, for_inputs = 64 * 64 + 64 * 10, 64 * 64 + 64 * 10, 64 * 10
    assert one.flops == 2 * (forward + for_weights + for_inputs)


@pytest.mark.parametrize("bf16", [False, True])
def test_what_is_saved_is_what_autograd_saves_of_a_real_step(bf16):
    dtype = torch.bfloat16 if bf16 else torch.float32
    model = perceptron(64, 64, 10).to(dtype)
    inputs, targets = torch.rand(8, 1, 8, 8, dtype=dtype), torch.randint(10, (8,))
    saved = saved_bytes(
        lambda: nn.functional.cross_entropy(model(inputs), targets), without=model.parameters()
    )
    one = cost(SMALL, bf16)
    assert one.fixed_saved + 8 * one.saved == pytest.approx(saved, rel=0.02)


def test_many_equal_layers_cost_what_as_many_cost_that_are_built():
    with torch.device("meta"):
        whole = sum(p.numel() for p in Lm(12, 768).parameters())
    name = "transformer, 12 layers"
    assert NETWORKS[name].layers == 12 and cost(name, False).parameters == whole


def test_adam_needs_four_numbers_per_weight_and_sgd_two():
    one = cost(LARGE, False)
    for optimizer, numbers in (("SGD", 2), ("momentum", 3), ("Adam", 4)):
        held = need(Settings(network=LARGE, optimizer=optimizer), one, 0)
        assert sum(held.values()) - one.fixed_saved == numbers * 4 * one.parameters


@pytest.mark.parametrize("gpu", list(DEVICES)[1:])
def test_the_largest_batch_fits_and_one_more_example_does_not(gpu):
    settings, one = Settings(network=LARGE, gpu=gpu), cost(LARGE, False)
    there = DEVICES[gpu].memory
    most = largest_batch(settings, one, there)
    needed = [sum(need(settings, one, size).values()) for size in (most, most + 1)]
    assert needed[0] <= USABLE * there < needed[1]


def test_the_first_no_decides():
    def stops(*, batch_size=64, most=100, yes=(True, True, True), fits_cpu=True):
        asked = [{"yes": one} for one in yes]
        return answer(Settings(batch_size=batch_size), asked, most, fits_cpu)["stops"]

    assert stops() is None
    assert stops(yes=(False, False, False)) == 0
    assert stops(yes=(True, False, False), most=20) == stops(yes=(True, False, True), most=0) == 1
    assert stops(yes=(False, True, False), fits_cpu=False) == 2
    accumulated = answer(Settings(batch_size=64), [{"yes": one} for one in (1, 0, 1)], 20, True)
    assert "4 micro-batches of at most 20" in accumulated["says"]


def test_what_the_page_says_of_small_and_large_steps():
    small = frame(Settings(network=SMALL))
    assert small["answer"]["stops"] == 0 and small["gain"] < 1
    assert frame(Settings(network=LARGE, batch_size=64))["answer"]["stops"] is None
    assert frame(Settings(network=LARGE, batch_size=1024))["answer"]["stops"] == 1
    slow = frame(Settings(network=LARGE, load_ms=10.0, batch_size=64))
    assert slow["answer"]["stops"] is None
    assert frame(Settings(network=LARGE, load_ms=10.0, workers=1))["answer"]["stops"] == 2


def test_a_gpus_small_step_is_queueing_and_a_large_one_arithmetic():
    gpu, one = DEVICES["GPU of 24 GB"], cost(LARGE, False)
    small = cost(SMALL, False)
    copied = small.input_bytes * BATCHES[0] / (12 * GB)
    assert step_seconds(gpu, small, 1, False) == pytest.approx(small.operations * 8e-6 + copied)
    assert step_seconds(gpu, one, 64, True) < step_seconds(gpu, one, 64, False) / 3
