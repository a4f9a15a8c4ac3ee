"""An answer on which the grader itself fails costs that exercise, never the notebook."""

import pytest

from autograde.classroom import marking, page
from autograde.classroom.report import Row
from autograde.classroom.verdicts import NOT_JUDGED
from autograde.referee import RefereeFault
from autograde.sandbox.reaching import FRAMES, WORDS
from tests.attacks.submissions import HONEST
from tests.autograde.test_not_run import CHECK, cell, graded, notebook

ORDER = cell('check("03a.order", order)', **{**CHECK, "grade_id": "order-check", "points": 2})
STEPS = "order = ['forward', 'loss', 'clear', 'backward', 'clip', 'step', 'schedule']"


def two_checks(answer=HONEST):
    one = notebook(answer)
    one.cells += [cell(STEPS, grade_id="order", grade=False, solution=True, locked=False), ORDER]
    return one


def judge_by(fault):
    def judge(*args, **kwargs):
        raise fault

    return judge


def test_the_other_exercises_keep_their_points_and_a_person_is_asked(
    tmp_path, isolation, monkeypatch
):
    monkeypatch.setattr(marking, "judge", judge_by(TypeError("unhashable \x1b[2J" + "x" * 999)))
    result = graded(tmp_path, isolation, two_checks(), given=two_checks("pass"))
    failed, order = result["checks"]
    assert (failed["points"], failed["max_points"], failed["status"]) == (0, 3, "not judged")
    assert (order["points"], order["status"]) == (2, "right")
    (note,) = result["notes"]
    assert NOT_JUDGED in note and "'clip-check' (TypeError: “unhashable ?[2J" in note
    assert len(note) < 500 and note.isprintable()
    assert "says nothing about the answer" in " ".join(failed["message"].split())
    row = Row(student="ada", scores={}, max_scores={}, seen={}, to_grade_by_hand=[], not_graded="")
    (concern,) = page.concerns([row], {"ada": result}, [], {}, tmp_path)
    assert concern.kind == "to read" and concern.words.startswith(NOT_JUDGED)


def test_what_the_code_reached_for_is_named_for_a_person(tmp_path):
    row = Row(student="ada", scores={}, max_scores={}, seen={}, to_grade_by_hand=[], not_graded="")
    verdict = {"notes": [], "noted": [WORDS[FRAMES]]}
    (concern,) = page.concerns([row], {"ada": verdict}, [], {}, tmp_path)
    assert (concern.kind, concern.words) == ("to read", WORDS[FRAMES])


@pytest.mark.parametrize(
    "fault", [RefereeFault("x"), OSError("x"), MemoryError(), RuntimeError("CUDA error: x")]
)
def test_what_is_not_of_the_answer_gives_no_grade_at_all(fault, tmp_path, isolation, monkeypatch):
    monkeypatch.setattr(marking, "judge", judge_by(fault))
    with pytest.raises(AssertionError, match="error in the grader itself"):
        graded(tmp_path, isolation, two_checks(), given=two_checks("pass"))
