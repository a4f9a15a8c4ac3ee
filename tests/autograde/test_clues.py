"""What is said of all numbers of a wrong answer is so, and nothing is said where nothing holds."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from autograde import check
from autograde.clues import clue

RIGHT = torch.tensor([[0.5, -1.25, 3.0], [2.0, 0.1, -0.7]])


@pytest.mark.parametrize(
    "yours,said",
    [
        (-RIGHT, "Every number there has the opposite sign."),
        (RIGHT / 4, "Every number there is 0.25 times the right one."),
        (RIGHT - 2, "Every number there is 2 too small."),
        (RIGHT + 0.5, "Every number there is 0.5 too large."),
        (RIGHT.square(), "Every number there is the square of the right one."),
        (RIGHT.flatten().flip(0), "These are the right numbers, but in reverse order."),
        (RIGHT.flip(0), "These are the right numbers, but in a different order."),
        (torch.full((2, 3), 7.0), "All your numbers there are equal."),
        (RIGHT.T, "These are the right numbers, but in a different order."),
        (RIGHT.reshape(6), "The numbers themselves are right."),
        (RIGHT.double(), "The numbers themselves are right."),
        (RIGHT + torch.eye(2, 3)[[0, 0]] * torch.tensor([[1.0], [0.0]]),
         "Only that one of 6 numbers, the first, is wrong."),
        (torch.tensor([[0.5, 4.0, 3.0], [2.0, 8.0, -0.7]]), ""),
        (RIGHT * float("nan"), ""),
        (RIGHT[:1], ""),
        ("text", ""),
        (None, ""),
    ],
)  # fmt: skip
def test_a_relation_of_all_numbers_is_said(yours, said):
    assert clue(RIGHT, yours) == said


def test_names_that_are_right_are_told_from_those_that_are_not():
    right = {"theta": RIGHT, "m": RIGHT, "v": RIGHT}
    assert clue(right, right | {"v": 2 * RIGHT}) == "All but v is right."
    assert clue(right, right | {"v": -RIGHT, "m": -RIGHT}) == "Right: theta. Wrong: m, v."
    assert clue(right, {name: -value for name, value in right.items()}).endswith("the other sign.")
    assert clue(right, {"theta": RIGHT}) == ""


@pytest.mark.parametrize(
    "right,yours", [(0.5, 1.0), ([1.0, 1, 1], [2.0, 2, 2]), ([1, 0], [0, 1]), ([True] * 3, [1] * 3)]
)
def test_few_numbers_equal_ones_and_flags_say_nothing(right, yours):
    assert clue(right, yours) == ""


NUMBERS = st.lists(st.floats(-100, 100, width=32), min_size=3, max_size=8)


@given(NUMBERS, NUMBERS)
def test_what_is_said_of_any_numbers_holds_for_each(right, yours):
    said = clue(right, yours)
    if "times" in said or "sign" in said:
        factor = float(said.split()[4]) if "times" in said else -1.0
        assert torch.allclose(
            torch.tensor(yours), factor * torch.tensor(right), rtol=2e-3, atol=1e-4
        )
    if "Only" in said:
        assert sum(abs(a - b) > 1e-4 * abs(a) for a, b in zip(right, yours, strict=True)) >= 1


def test_the_message_gives_the_clue_where_no_misconception_is_named():
    def clip_by_global_norm(parameters, max_norm):
        parameters = [parameter for parameter in parameters if parameter.grad is not None]
        norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in parameters])
        for parameter in parameters:
            parameter.grad.mul_(0.7 * min(1.0, max_norm / norm.item()))
        return norm

    result = check("03a.clip", clip_by_global_norm, seed=1)
    message = " ".join(result.message.split())
    assert not result.verdict.misconceptions
    assert "Every number there is 0.7 times the right one." in message
    assert 'hint("03a.clip") helps, too' in message


def test_only_what_an_exercise_cannot_have_allowed_is_called_wrong():
    right = {"theta": RIGHT, "m": RIGHT, "v": RIGHT}
    assert clue(right, right | {"m": RIGHT * 1.00001, "v": -RIGHT}) == ""  # m may be close enough
    assert clue(right, right | {"m": RIGHT.double(), "v": RIGHT * 1.0001}) == ""


def test_a_nan_that_is_right_is_no_reason_to_fail():
    right = RIGHT.clone()
    right[0, 0] = float("nan")
    assert clue(right, 2 * right) == clue([right], [right + float("inf")]) == ""


def test_names_in_another_order_stand_beside_their_own():
    right = {"m": RIGHT, "v": RIGHT.square()}
    assert clue([right], [{"v": -RIGHT.square(), "m": -RIGHT}]).endswith("the other sign.")
    assert clue([right], [{"v": RIGHT.square(), "m": RIGHT}]) == ""


def test_tiny_numbers_are_no_multiples_of_each_other():
    assert clue(RIGHT * 1e-9, RIGHT.flip(1).abs() * 1e-9) == ""
