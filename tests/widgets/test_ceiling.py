"""The ceilings of the widget: against counting by hand, and against the lecture's rule."""

import numpy as np
import pytest

from course.analysis.ceiling import digits_pipeline, digits_stages
from course.widgets.ceiling.state import NUM_CODES, Settings, frame


def by_name(shown: dict) -> dict[str, dict]:
    return {stage["name"]: stage for stage in shown["stages"]}


def test_no_stage_replaced_is_the_pipeline_as_it_is_and_all_replaced_is_perfect():
    shown = frame(Settings())
    assert shown["chosen"] == shown["now"] == pytest.approx(digits_pipeline().baseline)
    assert frame(Settings(detector=True, classifier=True, corrector=True))["chosen"] == 100


@pytest.mark.parametrize("noise", [0.5, 4.0])
def test_a_perfect_detector_is_counted_code_by_code(noise):
    stages, examples, _ = digits_stages(num_codes=NUM_CODES, noise=noise)
    right = 0
    for strips, truth in examples:
        cut = [s[:, i : i + 8] for s, i in zip(strips, truth.offsets, strict=True)]
        digits = stages[2].run(stages[1].run(np.stack(cut)))
        right += digits == truth.digits
    shown = frame(Settings(noise=noise, detector=True))
    assert shown["chosen"] == pytest.approx(100 * right / NUM_CODES)
    assert by_name(shown)["detector"]["alone"] == pytest.approx(shown["gain"])


def test_gains_from_the_front_add_up_and_single_ones_do_not():
    shown = frame(Settings(detector=True, classifier=True, corrector=True))
    assert sum(s["on_top"] for s in shown["stages"]) == pytest.approx(shown["gain"])
    assert shown["beyond"] == pytest.approx(shown["gain"] - shown["singles"])
    assert abs(shown["beyond"]) > 10


def test_where_all_codes_exist_the_corrector_of_today_repairs_nothing():
    stages, examples, _ = digits_stages(num_known=1_000, num_codes=50)
    for strips, _ in examples:
        read = stages[1].run(stages[0].run(strips))
        assert stages[2].run(read) == read
    assert by_name(frame(Settings(num_known=1_000)))["corrector"]["alone"] > 0


def test_the_combination_that_is_set_is_marked_alone():
    shown = frame(Settings(classifier=True))
    marked = [row for row in shown["combinations"] if row["on"]]
    assert [row["replaced"] for row in marked] == [[False, True, False]]
    assert marked[0]["points"] == shown["chosen"]
