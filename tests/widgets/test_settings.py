"""Settings hold only what their controls can show."""

import math
from dataclasses import FrozenInstanceError

import pytest

from course.widgets.base.frames import as_frame, thinned
from course.widgets.base.settings import decades, steps
from tests.widgets.toy import Settings


def test_defaults_are_those_of_the_controls_and_cannot_be_changed_in_place():
    settings = Settings()
    assert settings.to_json() == {"start": 8, "by": 2.0, "both": False}
    with pytest.raises(FrozenInstanceError):
        settings.start = 4


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"start": 9}, "4 values from 2 to 16; the nearest is 8"),
        ({"start": math.nan}, "one of 2, 4, 8, 16"),
        ({"start": "8"}, "one of 2, 4, 8, 16"),
        ({"start": True}, "one of 2, 4, 8, 16"),
        ({"start": None}, "one of"),
        ({"both": 1}, "one of False, True"),
        ({"other": 1}, "the settings are start, by, both"),
        ({"start": 2, "both": True}, "Take 4"),
    ],
)
def test_a_value_out_of_range_is_refused_with_what_was_expected(changes, said):
    with pytest.raises(ValueError, match=said):
        Settings().changed(**changes)


def test_a_number_that_json_made_another_type_is_the_controls_own():
    settings = Settings().changed(start=4.0, by=4)
    assert (settings.start, type(settings.start)) == (4, int)
    assert (settings.by, type(settings.by)) == (4.0, float)


def test_every_combination_leaves_out_those_that_do_not_fit():
    all_of_them = list(Settings().every(["start", "both"]))
    assert len(all_of_them) == 4 * 2 - 1


def test_steps_and_decades_have_no_rounding_noise():
    assert steps(0.1, 0.5, 0.1) == (0.1, 0.2, 0.3, 0.4, 0.5)
    assert all(isinstance(value, int) for value in steps(1, 10, 1))
    assert decades(1e-3, 1e-1) == (0.001, 0.003, 0.01, 0.03, 0.1)


def test_a_frame_is_json_also_with_nan_and_tensors():
    import torch

    assert as_frame({"a": torch.tensor([1.0, math.nan]), "b": (math.inf, -math.inf, True)}) == {
        "a": [1.0, "NaN"],
        "b": ["Infinity", "-Infinity", True],
    }
    with pytest.raises(TypeError, match="not set"):
        as_frame({"a": {1}})


def test_a_thinned_curve_keeps_its_spikes_and_its_end():
    values = [0.0] * 1000
    values[377], values[700], values[999] = 9.0, -9.0, math.nan
    indices, kept = thinned(values, 101)
    assert len(kept) <= 101 and {377, 700, 999} <= set(indices)
    assert kept[indices.index(377)] == 9.0 and kept[indices.index(700)] == -9.0
    assert thinned([1.0, 2.0], 10) == ([0, 1], [1.0, 2.0])
