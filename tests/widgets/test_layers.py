"""Two runs and their bits: against struct, NumPy, a walk through the batches, and torch's RNG."""

import struct

import numpy as np
import pytest
import torch
from torch import nn

from course.widgets.layers.state import (
    BATCH_SIZE,
    CORRECTED,
    HIDDEN,
    LAYERS,
    LINES,
    UPDATES,
    Settings,
    _digits,
    bits,
    bits_apart,
    frame,
    says,
    train,
)  # fmt: skip

ALL = dict.fromkeys(LAYERS, True)


def without(*names: str, **more) -> dict:
    return frame(Settings(**(ALL | dict.fromkeys(names, False)), **more))


def update_of(image: int, seed: int) -> int:
    """The update whose batch holds an image, by drawing what the run draws."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        nn.Linear(64, HIDDEN), nn.Linear(HIDDEN, 10)
        order = torch.randperm(len(_digits(True)[1])).tolist()
    return order.index(image) // BATCH_SIZE + 1


def test_a_run_trained_again_has_the_same_bits_and_moves_no_generator():
    before = torch.random.get_rng_state()
    held = (True,) * len(LAYERS)
    first, second = train(held, 0), train.__wrapped__(held, 0)
    assert torch.equal(first.losses, second.losses) and torch.equal(first.weights, second.weights)
    assert torch.equal(before, torch.random.get_rng_state())
    shown = without()
    assert shown["parts_at"] is None and shown["weights_apart"] == 0
    assert shown["runs"][0]["id"] == shown["runs"][1]["id"]


@pytest.mark.parametrize("seed", [0, 1, 4])
def test_a_corrected_label_shows_when_its_image_is_drawn_and_a_decay_one_update_late(seed):
    shown = without("data", first_seed=seed)
    assert shown["parts_at"] == shown["weights_part_after"] == update_of(CORRECTED, seed)
    assert without("seed", first_seed=seed)["parts_at"] == 1
    decayed = without("config", first_seed=seed)
    assert (decayed["weights_part_after"], decayed["parts_at"]) == (1, 2)


@pytest.mark.parametrize("layer", ["environment", "code"])
def test_another_kernel_or_a_tidied_line_moves_last_bits_only(layer):
    for seed in range(5):
        shown = without(layer, first_seed=seed)
        assert 0 < shown["apart"].max() < 1_000
        first, second = shown["runs"]
        np.testing.assert_allclose(first["losses"], second["losses"], rtol=1e-4)


def test_the_lines_shown_are_those_that_run_and_equal_on_paper():
    logits, targets = torch.randn(5, 10, dtype=torch.float64), torch.arange(5)
    words = {"F": nn.functional, "rows": torch.arange(5), "logits": logits, "targets": targets}
    values = []
    for line in LINES.values():
        exec(line, words)
        values.append(words["loss"].item())
    assert values[0] == pytest.approx(values[1], rel=1e-12)


def test_bits_and_distances_are_those_of_struct_and_numpy():
    near = np.float32(0.3)
    after = np.nextafter(np.nextafter(near, np.float32(1)), np.float32(1))
    two = torch.tensor([near, 1.0]), torch.tensor([after, 1.0])
    assert bits_apart(*two).tolist() == [2, 0]
    shown = without("data", at=UPDATES)
    for run in shown["runs"]:
        value = float.fromhex(run["hex"])
        assert run["bits"] == f"{struct.unpack('>I', struct.pack('>f', value))[0]:032b}"
        assert np.float32(run["loss"]) == np.float32(value)
    assert bits(torch.tensor(-1.0))[0] == "1"


def test_each_lost_layer_and_no_other_differs_in_the_record():
    shown = without("seed", "code")
    changed = [one["name"] for one in shown["layers"] if one["first"] != one["second"]]
    assert changed == ["seed", "code"]
    settings = Settings(**ALL | {"seed": False})
    assert says(settings, frame(settings)).startswith("Seed not recorded: the losses differ from")
    with pytest.raises(ValueError, match="at = 99: expected 60 values from 1 to 60"):
        Settings(at=99)
