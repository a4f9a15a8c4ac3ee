"""Ceilings of pipelines whose every failure is known, and of one on real digits."""

import csv
import io
import json
import math

import pytest

from course.analysis.ceiling import Stage, ceiling_analysis, digits_pipeline
from course.worked import compute


def failing(name, fails):
    """A stage that passes a running product on, and spoils it where the example says so."""
    return Stage(name, lambda v: (v[0], v[1] * (v[0] not in fails)), lambda v, _: v)


def right(value, _truth):
    return value[1]


def pipeline(*fails, num=100):
    stages = [failing(f"stage {i}", set(f)) for i, f in enumerate(fails)]
    return ceiling_analysis(stages, [((i, 1), None) for i in range(num)], right)


def test_the_lectures_pipeline_comes_out_of_failures_arranged_as_its_figure_says():
    # 18 of 100 wrong: 1 by the detector alone, 9 by the classifier, 1 by the corrector alone,
    # and 7 by classifier and detector together, so that single repairs do not win them.
    shared = range(11, 18)
    result = pipeline([0, *shared], [*range(1, 10), *shared], [10])
    lecture = {step.what: step.computed for step in compute("N25").steps}
    assert [round(row.gain.value, 9) for row in result.stages] == [
        lecture["detector perfect"],
        lecture["character classifier perfect"],
        lecture["spell-correct perfect"],
    ]
    assert result.baseline == 82 and result.all_perfect == 100
    assert result.interaction == pytest.approx(lecture["interaction"])
    assert result.best.name == "stage 1" and "work on stage 1" in result.advice


def test_steps_add_up_to_the_whole_and_single_gains_need_not():
    result = pipeline([1, 2, 3], [3, 4], [3, 5, 6])
    assert sum(row.step_gain for row in result.stages) == pytest.approx(
        result.all_perfect - result.baseline
    )
    assert [row.gain.value for row in result.stages] == pytest.approx([2, 1, 2])
    assert [row.step_gain for row in result.stages] == pytest.approx([2, 1, 3])
    assert result.interaction == pytest.approx(1)


def test_a_perfect_stage_wins_nothing_and_no_sure_gain_is_said_so():
    result = pipeline([], [7])
    assert result.stages[0].gain.value == result.stages[0].gain.high == 0
    assert "no stage gains anything for certain" in result.advice


def test_the_interval_of_a_gain_is_near_the_binomial_one():
    gain = pipeline(range(10), num=100).stages[0].gain
    half = 196 * math.sqrt(0.1 * 0.9 / 100)
    assert gain.low == pytest.approx(10 - half, abs=1.1)
    assert gain.high == pytest.approx(10 + half, abs=1.1)


def test_digits_are_read_better_by_each_perfect_stage():
    result = digits_pipeline()
    detector, classifier, corrector = result.stages
    assert result.all_perfect == 100 and 20 < result.baseline < 95
    assert detector.gain.low > 0 and classifier.gain.low > 0
    assert classifier.score == 100  # the truth passes a corrector that keeps known codes
    assert corrector.score < 100  # it sees digits only
    assert digits_pipeline(seed=1).baseline != result.baseline
    assert digits_pipeline(noise=4.0).baseline < result.baseline
    assert detector.step_gain > classifier.step_gain  # for its truth hides bad crops
    assert "most is lost in detector" in result.advice


def test_a_late_oracle_that_knows_the_answer_is_seen_through():
    """The last stage's truth repairs everything, though the first does all the damage."""
    breaks = Stage("first", lambda v: (v[0], v[0] % 2), lambda v, _: v)
    knows = Stage("last", lambda v: v if v[0] != 1 else (1, 0), lambda v, _: (v[0], 1))
    result = ceiling_analysis([breaks, knows], [((i, 1), None) for i in range(100)], right)
    assert [row.gain.value for row in result.stages] == [50, 51]
    assert [row.step_gain for row in result.stages] == [50, 1]
    assert result.best.name == "last"


@pytest.mark.parametrize(
    ("stages", "num", "score", "said"),
    [
        ([], 5, right, "at least one"),
        ([failing("a", []), failing("a", [])], 5, right, "each needs a different name"),
        ([failing("a", [])], 1, right, "1 examples"),
        ([failing("a", [])], 5, lambda *_: 2.0, "score gives 2"),
        ([failing("a", [])], 5, lambda *_: math.nan, "score gives nan"),
    ],
)
def test_what_cannot_be_measured_is_named(stages, num, score, said):
    with pytest.raises(ValueError, match=said):
        ceiling_analysis(stages, [((i, 1), None) for i in range(num)], score)


def test_it_prints_goes_to_json_csv_and_a_figure():
    result = pipeline([1, 2, 3], [3, 4])
    assert "interaction +1.0" in str(result) and "<table>" in result._repr_html_()
    assert json.loads(json.dumps(result.to_json()))["stages"][1]["gain"] == 1.0
    rows = list(csv.DictReader(io.StringIO(result.to_csv())))
    assert [float(row["step_gain"]) for row in rows] == pytest.approx([2, 2])
    bars = result.plot().axes[0].patches
    assert sorted(bar.get_width() for bar in bars) == pytest.approx([1, 2])
