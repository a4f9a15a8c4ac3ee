"""Shapes, counts and bytes against formulas and a real batch; what torch answers to each rank."""

import re
from math import prod

import pytest
import torch
from torch import nn

from course import worked
from course.widgets.shapes.ranks import RUNGS
from course.widgets.shapes.state import NAMES, Settings, frame, network

FLOAT, LONG = 4, 8  # bytes
BATCHES = Settings.controls()["batch_size"].values


@pytest.mark.parametrize("batch_size", [1, 256])
@pytest.mark.parametrize("width", [16, 128])
def test_a_real_batch_has_the_shapes_that_are_shown(batch_size, width):
    stations = frame(Settings(batch_size=batch_size, width=width))["stations"]
    values, found = torch.zeros(batch_size, 1, 28, 28), []
    for layer in network(width):
        values = layer(values)
        found.append(list(values.shape))
    loss = nn.functional.cross_entropy(values, torch.zeros(batch_size, dtype=torch.int64))
    shown = [one["shape"] for one in stations]
    assert shown == [[batch_size, 1, 28, 28], *found, list(loss.shape)] and len(shown) == len(NAMES)
    assert [one["bytes"] for one in stations] == [FLOAT * prod(shape) for shape in shown]
    assert all(len(one["names"]) == len(one["shape"]) for one in stations)


@pytest.mark.parametrize("width", Settings.controls()["width"].values)
def test_parameters_follow_the_formula_and_not_the_batch(width):
    for batch_size in (1, 1024):
        shown = frame(Settings(batch_size=batch_size, width=width))
        assert shown["parameters"] == 785 * width + (width + 1) * 10
        assert shown["parameter_bytes"] == FLOAT * shown["parameters"]


def test_the_lectures_width_has_the_lectures_count():
    counted = {step.what: step.computed for step in worked.compute("N43").steps}
    assert frame(Settings(width=128))["parameters"] == counted["784-128-10"] == 101_770


@pytest.mark.parametrize("batch_size", [16, 64])
def test_a_views_bytes_are_not_counted_twice(batch_size):
    shown = frame(Settings(batch_size=batch_size))
    assert [one["name"] for one in shown["stations"] if one["view"]] == ["flatten"]
    # images, three times the hidden units (linear, ReLU, dropout), logits, and the loss
    assert shown["tensor_bytes"] == FLOAT * (batch_size * (784 + 3 * 128 + 10) + 1)


@pytest.mark.parametrize("batch_size", BATCHES)
def test_rank_n_has_n_dimensions_and_their_product_of_numbers(batch_size):
    rungs = frame(Settings(batch_size=batch_size))["rungs"]
    assert [len(rung["shape"]) for rung in rungs] == [len(rung["names"]) for rung in rungs]
    assert [len(rung["shape"]) for rung in rungs] == list(range(6))
    assert [rung["shape"][0] for rung in rungs if rung["names"][:1] == ["B"]] == [batch_size] * 4
    for rank, rung in enumerate(rungs):
        assert rung["bytes"] == (LONG if rank == 1 else FLOAT) * prod(rung["shape"])


@pytest.mark.parametrize("batch_size", BATCHES)
@pytest.mark.parametrize("rank", range(6))
def test_the_right_line_runs_and_the_mistake_raises_but_for_a_loss_of_one_example(rank, batch_size):
    said = frame(Settings(rank=rank, batch_size=batch_size))["answers"]
    assert said["right"][1].startswith("runs")
    hidden = rank == 0 and batch_size == 1
    assert said["wrong"][1] == "runs" if hidden else said["wrong"][1].startswith("RuntimeError: ")


def test_the_right_lines_shapes_are_those_of_real_layers():
    said = [frame(Settings(rank=n, batch_size=16))["answers"]["right"][1] for n in range(6)]
    linear, conv = nn.Linear(784, 128), nn.Conv2d(1, 8, 3)
    images = torch.zeros(16, 1, 28, 28)
    made = [linear(images.flatten(1)), conv(images[0]), linear(images.flatten(1))]
    assert said[:2] == ["runs", "runs: []"]
    assert said[2:5] == [f"runs: {list(one.shape)}" for one in made]
    assert said[5] == "runs: [256, 8, 26, 26]"  # 16 videos of 16 frames, 3 × 3 without a border


def test_an_error_names_the_sizes_that_do_not_meet():
    said = frame(Settings(rank=2, batch_size=64))["answers"]["wrong"][1]
    assert re.search(r"784x64 and 784x128", said)
    said = frame(Settings(rank=5, batch_size=16))["answers"]["wrong"][1]
    assert str(list(RUNGS[5].shape(16))) in said


def test_no_random_number_is_drawn():
    before = torch.get_rng_state()
    frame(Settings(batch_size=16, width=512))
    assert torch.equal(torch.get_rng_state(), before)
