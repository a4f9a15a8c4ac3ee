"""The climbs and curves of the widget: repeated, and against what the museum says of each bug."""

import pytest

from course.debug import museum
from course.widgets.ladder.climbs import CASES, SEEDS, STEPS, key, record, recorded
from course.widgets.ladder.state import Settings, frame, says, shape

RUNG = {"B22": 1, "B23": 1, "B30": 5, "B34": 4, "B16": None}
"""Where the broken climbs stop that do not stop at rung 3."""


def both(**settings) -> tuple[dict, dict]:
    return frame(Settings(**settings)), frame(Settings(fixed=True, **settings))


SLOW = [
    pytest.param(id, bug, marks=pytest.mark.slow) for id, bug in (("B08", True), ("B23", False))
]


@pytest.mark.parametrize(("id", "bug"), [("B02", True), *SLOW])
def test_a_climb_comes_out_again_as_it_was_recorded(id, bug):
    again, kept = record(id, bug, 0), recorded()[key(id, bug, 0)]
    assert (again["failed"], again["cause"]) == (kept["failed"], kept["cause"])
    assert [one["passed"] for one in again["rungs"]] == [one["passed"] for one in kept["rungs"]]
    assert again["batch"]["last"] == pytest.approx(kept["batch"]["last"], rel=0.05)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("id", CASES)
def test_a_broken_set_up_stops_and_the_class_named_is_the_museums(id, seed):
    broken, fixed = both(bug=id, seed=seed)
    assert broken["stopped"] == RUNG.get(id, 3)
    assert broken["cause"] in (*museum.exhibit(id).names, "") and (broken["cause"] or id == "B16")
    assert broken["code"] and fixed["batches"] == broken["batches"]
    if id != "B22":  # without its leak it knows nobody new
        assert fixed["stopped"] is None and fixed["climbed"] == 7
    assert broken["batches"]["fixed"]["shape"] == "learned"


def test_each_shape_is_that_of_a_curve_computed_by_hand():
    one = {"start": 2.0, "lowest": 2.0, "last": 2.0, "right": 0.1, "moved": 0.0, "classes": 10}
    curve = {"losses": [2.0] * 10}
    assert shape(one | curve) == "no change"
    assert shape(one | curve | {"moved": 0.1}) == "no decrease"
    assert shape(one | curve | {"last": 5.0, "moved": 9.0}) == "blows up"
    fallen = one | {"lowest": 1.0, "last": 1.0, "moved": 0.2}
    assert shape(fallen | {"losses": [2.0, 1.2, 1.0, 1.0, 1.0]}) == "plateau"
    assert shape(fallen | {"losses": [2.0, 1.8, 1.6, 1.4, 1.3, 1.2, 1.1, 1.05, 1.1, 1.0]}) == (
        "still falling"
    )
    assert shape(fallen | {"last": 0.05, "lowest": 0.05, "right": 1.0} | curve) == "learned"
    assert shape(fallen | {"classes": 1} | curve).startswith("proves nothing")


def test_a_climb_shows_no_more_than_it_has_reached_and_hides_the_name():
    lowest = Settings(rung=1)
    assert "Case 1: 1 rung passed" in says(lowest, frame(lowest))
    low = frame(Settings(bug="B08", rung=2))
    assert low["stopped"] is None and low["cause"] == "" and low["climbed"] == 2
    assert [one["state"] for one in low["rungs"]] == ["passed"] * 2 + ["not climbed"] * 5
    settings = Settings(bug="B08", named=False)
    hidden = frame(settings)
    assert "softmax" not in f"{hidden}{says(settings, hidden)}" and hidden["stopped"] == 3


def test_what_the_page_says_of_the_cases():
    shapes = {id: frame(Settings(bug=id))["batches"]["broken"]["shape"] for id in CASES}
    assert shapes["B02"] == "no change" and shapes["B08"] == "plateau"
    assert shapes["B11"] == "still falling" and shapes["B23"].startswith("proves nothing")
    assert [CASES.index(id) + 1 for id in ("B23", "B16")] == [2, 12]
    late = recorded()[key("B16", True, 0)]["batch"]
    assert late["steps"][-1] == STEPS and late["last"] > 10 * 0.02
    assert sum(RUNG.get(id, 3) == 3 for id in CASES) > len(CASES) / 2
