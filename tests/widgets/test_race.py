"""The race against optimizers written out, and what the page says about valleys and factors."""

import math

import numpy as np
import pytest
import torch

from course.widgets.race.state import OPTIMIZERS, RATES, UPDATES, Settings, frame, run
from course.widgets.race.surfaces import SURFACES


def by_hand(name: str, lr: float, updates: int, times: float) -> list[list[float]]:
    """The path down the valley with its gradient (x, 25 y), in plain Python."""
    w, v, s, path = np.array([-4.0, 1.2]), np.zeros(2), np.zeros(2), []
    for t in range(1, updates + 1):
        g = times * w * [1.0, 25.0]
        if name == "SGD":
            w = w - lr * g
        elif name in ("momentum", "Nesterov"):
            v = 0.9 * v + g
            w = w - lr * (g + 0.9 * v if name == "Nesterov" else v)
        elif name == "RMSprop":
            s = 0.99 * s + 0.01 * g**2
            w = w - lr * g / (np.sqrt(s) + 1e-8)
        else:
            v, s = 0.9 * v + 0.1 * g, 0.999 * s + 0.001 * g**2
            w = w - lr * (v / (1 - 0.9**t)) / (np.sqrt(s / (1 - 0.999**t)) + 1e-8)
        path.append(w.tolist())
    return path


@pytest.mark.parametrize("times", [0.01, 1.0])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_path_is_the_optimizer_written_out(name, times):
    path = run(name, 0.03, "valley", times)
    assert len(path["x"]) == UPDATES + 1
    shown = np.array([path["x"][1:], path["y"][1:]]).T
    np.testing.assert_allclose(shown, by_hand(name, 0.03, UPDATES, times), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", SURFACES)
def test_the_minima_are_minima_and_the_start_is_in_the_picture(name):
    surface = SURFACES[name]
    for minimum in surface.minima:
        at = torch.tensor(minimum, dtype=torch.float64, requires_grad=True)
        loss = surface.loss(*at)
        assert loss.item() == 0
        assert torch.autograd.grad(loss, at)[0].abs().max() < 1e-12
        curved = torch.autograd.functional.hessian(lambda w, s=surface: s.loss(*w), at.detach())
        assert (torch.linalg.eigvalsh(curved) > 0).all()
    left, right, bottom, top = surface.box
    assert left < surface.start[0] < right and bottom < surface.start[1] < top


def there(name: str, lr: float, surface: str = "valley", times: float = 1.0) -> float:
    found = run(name, lr, surface, times)["there"]
    return math.inf if found is None else found


def test_scaling_each_weight_helps_less_in_a_turned_valley_and_no_factor_matters_to_it():
    for name in ("RMSprop", "Adam"):
        assert there(name, 0.1, "turned valley") > 2 * there(name, 0.1)
        assert there(name, 0.1) == there(name, 0.1, times=100.0) == there(name, 0.1, times=0.01)
    for name in ("SGD", "momentum"):
        assert there(name, 0.01, "turned valley") == pytest.approx(there(name, 0.01), abs=2)
        assert there(name, 0.01, times=100.0) == math.inf


def test_momentum_arrives_where_plain_sgd_creeps_and_overshoots_where_it_is_fast():
    assert there("momentum", 0.01) < UPDATES / 2 and there("SGD", 0.01) == math.inf
    assert there("SGD", 0.07) < 0.6 * there("momentum", 0.07) < math.inf
    crossings = np.sign(run("momentum", 0.07)["x"])
    assert (crossings[1:] != crossings[:-1]).any()  # past the floor, which plain SGD never leaves
    assert max(run("SGD", 0.07)["x"]) < 0


def test_sgd_diverges_beyond_two_over_the_steepest_curvature():
    for lr in RATES:
        lost = len(run("SGD", lr)["x"]) <= UPDATES
        assert lost == (lr > 2 / 25)


def test_what_has_diverged_stands_still_and_is_said():
    made = frame(Settings(first="SGD", first_lr=0.3, update=UPDATES))
    assert made["at"][0]["lost"] and not made["at"][1]["lost"]
    assert len(made["first"]["x"]) == made["at"][0]["updates"] + 1
    assert made["first"]["there"] is None


def test_noise_is_the_same_for_both_and_keeps_the_loss_up():
    made = frame(Settings(first="SGD", second="SGD", noise=3.0))
    assert made["first"] == made["second"]
    quiet, noisy = run("SGD", 0.07)["losses"], run("SGD", 0.07, noise=3.0)["losses"]
    assert np.mean(noisy[-30:]) > 100 * np.mean(quiet[-30:])
