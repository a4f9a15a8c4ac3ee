"""The two copies against formulas: running averages, dropout's factor, bytes counted by hand."""

import statistics

import pytest
import torch

from course.widgets.modes.state import FEATURES, UNIT, UNITS, Settings, _network, batch, frame

FLOAT = 4  # bytes


@pytest.mark.parametrize("p", [0.0, 0.2, 0.8])
@pytest.mark.parametrize("no_grad", [False, True])
def test_eval_repeats_itself_and_train_does_not(p, no_grad):
    modes = frame(Settings(p=p, no_grad=no_grad, passes=12))["modes"]
    assert modes["eval"]["different"] == 1 and modes["eval"]["moved"] == 0
    assert modes["train"]["different"] > 6 and modes["train"]["moved"] > 0.1


def test_eval_mode_is_the_formula_with_the_running_statistics():
    model, shown = _network(0.5, True), frame(Settings(warm=True))["modes"]["eval"]
    x = batch(0, 8)[0].double()
    weight, bias = model.linear.weight.double(), model.linear.bias.double()
    mean, var = model.norm.running_mean.double(), model.norm.running_var.double()
    units = torch.tanh((weight @ x + bias - mean) / (var + 1e-5).sqrt())
    torch.testing.assert_close(
        torch.tensor(shown["units"][0]).double(), units, rtol=1e-4, atol=1e-5
    )
    output = (model.head.weight.double() @ units + model.head.bias.double()).item()
    assert shown["outputs"][0] == pytest.approx(output, abs=1e-5)


@pytest.mark.parametrize("batch_size", [2, 32])
def test_the_running_mean_moves_a_tenth_of_the_way_to_each_batchs_mean(batch_size):
    model = _network(0.5, False)
    expected = [0.0]
    for number in range(5):
        mean = model.linear(batch(number, batch_size))[:, UNIT].mean().item()
        expected.append(0.9 * expected[-1] + 0.1 * mean)
    shown = frame(Settings(passes=5, batch_size=batch_size, no_grad=True))["modes"]
    assert shown["train"]["means"] == pytest.approx(expected, abs=1e-5)
    assert shown["eval"]["means"] == [0.0] * 6


@pytest.mark.parametrize("p", [0.2, 0.5, 0.8])
def test_masks_drop_about_p_and_the_kept_are_scaled(p):
    about = {"batch_size": 128, "passes": 12}
    kept, whole = (frame(Settings(p=q, **about))["modes"]["train"] for q in (p, 0.0))
    share = statistics.mean(gone for row in kept["dropped"] for gone in row)
    assert share == pytest.approx(p, abs=4 * (p * (1 - p) / (12 * UNITS)) ** 0.5)
    assert not any(gone for row in whole["dropped"] for gone in row)
    for i, row in enumerate(kept["dropped"]):
        for k, gone in enumerate(row):
            scaled = 0.0 if gone else whole["units"][i][k] / (1 - p)
            assert kept["units"][i][k] == pytest.approx(scaled, abs=1e-5)


def test_without_dropout_the_neighbours_speak_and_fewer_of_them_louder():
    spread = [
        frame(Settings(p=0.0, batch_size=size, passes=12))["modes"]["train"]["spread"]
        for size in (2, 8, 32, 128)
    ]
    assert spread == sorted(spread, reverse=True) and spread[0] > 5 * spread[-1] > 0


@pytest.mark.parametrize("batch_size", [8, 128])
def test_memory_follows_no_grad_and_not_the_mode(batch_size):
    kept = frame(Settings(batch_size=batch_size))["kept"]
    # kept for eval's backward: the inputs of linear and norm, and tanh's result
    by_hand = FLOAT * batch_size * (FEATURES + UNITS + UNITS)
    assert kept["eval"]["grad"] == by_hand and kept["train"]["grad"] > by_hand
    assert kept["train"]["no_grad"] == kept["eval"]["no_grad"] == 0


def test_no_grad_changes_no_output_and_no_statistic():
    plain, guarded = (frame(Settings(no_grad=on))["modes"] for on in (False, True))
    assert plain == guarded


def test_settled_statistics_are_those_of_the_data_and_the_global_generator_is_left_alone():
    before = torch.get_rng_state()
    shown = frame(Settings(warm=True))
    assert torch.equal(torch.get_rng_state(), before)
    assert shown["modes"]["eval"]["means"][0] == pytest.approx(shown["centre"], abs=0.05)
