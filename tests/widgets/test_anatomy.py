"""The six operations show the chapter's worked step (N09), and what each one changes."""

import pytest
import torch

from course.widgets.anatomy.state import ORDERS, Settings, frame


def tensors(**settings) -> dict:
    return {one["name"]: one for one in frame(Settings(**settings))["tensors"]}


def test_after_six_operations_the_numbers_are_the_chapters():
    shown = tensors(done=5)
    assert shown["outputs"]["values"] == pytest.approx([-0.1, 1.8])
    assert shown["loss"]["values"] == pytest.approx(2.225)
    expected = {
        "weight.grad": [[-1.1, -2.2], [1.8, 3.6]],
        "weight": [[0.511, -0.278], [0.182, 0.764]],
        "bias": [0.011, -0.018],
    }
    for name, values in expected.items():
        torch.testing.assert_close(torch.tensor(shown[name]["values"]), torch.tensor(values))
    assert frame(Settings(done=5))["losses"][1] == pytest.approx(1.96601, abs=1e-5)


def test_each_operation_changes_what_it_says_and_weights_change_at_one_only():
    changed = []
    for done in range(1, 7):
        shown = tensors(done=done)
        changed.append({n for n, one in shown.items() if one["state"] in ("new", "changed")})
    assert changed == [
        set(), {"outputs"}, {"loss"}, {"weight.grad", "bias.grad"}, {"weight", "bias"}, {"lr"},
    ]  # fmt: skip
    assert tensors(done=0)["weight.grad"]["state"] == "none"
    assert tensors(done=7)["weight.grad"]["state"] == "none"  # zero_grad sets it to None


def test_without_zero_grad_the_second_gradient_is_the_sum_of_both():
    last = len(ORDERS["never"]) + ORDERS["never"].index("backward") + 1
    piled = torch.tensor(tensors(done=last, order="never", gamma=1.0)["weight.grad"]["values"])
    first = torch.tensor(tensors(done=4)["weight.grad"]["values"])
    second = torch.tensor(tensors(done=10, gamma=1.0)["weight.grad"]["values"])
    torch.testing.assert_close(piled, first + second)


def test_cleared_after_backward_no_weight_ever_moves():
    shown = frame(Settings(done=12, order="late"))
    assert len(set(shown["losses"])) == 1 and len(shown["losses"]) == 3
