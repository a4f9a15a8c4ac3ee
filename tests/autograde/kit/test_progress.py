"""progress() and scorecard(): counted from the record by hand, and robust to what is in it."""

import pytest

from autograde import bank, check, guess, hint, progress, reveal, scorecard
from autograde.kit import record
from autograde.kit.outline import outlines
from course.catalogue import UnknownIdError

EXERCISE = bank.load("03a.clip")
WRONG = {wrong.name: wrong.function for wrong in EXERCISE.wrong}


def row(progress_or_card, key: str) -> list[str]:
    (found,) = [row for row in progress_or_card.rows() if row[0] == key]
    return found


SHOWN = sum(not part.hidden for part in EXERCISE.parts)
POINTS = sum(part.points for part in EXERCISE.parts if not part.hidden)
ALL = f"{SHOWN} of {SHOWN}"


def test_a_fresh_student_has_passed_nothing_and_starts_at_the_beginning(kept):
    shown = progress()
    assert len(shown.rows()) == len(outlines()) and shown.plot() is None
    assert all(row[1].startswith("0 of ") and row[3:] == ["–"] * 3 for row in shown.rows())
    first = next(iter(outlines().values())).exercises[0]
    assert f"Next: {first}" in repr(shown)


def test_a_misconception_is_met_then_overcome_and_points_follow_the_last_check(kept):
    check("03a.clip", WRONG["by-value"])
    card = row(scorecard("03a-training-recipe"), "03a.clip")
    assert card[4] == "1 met, 0 overcome" and card[2] != ALL
    check("03a.clip", EXERCISE.right[0])
    check("03a.clip", lambda parameters, max_norm: _not_implemented())  # blank: no news
    card = row(scorecard("03a-training-recipe"), "03a.clip")
    points = f"{POINTS:g} of {POINTS:g}"
    assert card == ["03a.clip", EXERCISE.title, ALL, points, "1 met, 1 overcome", "–"]


def _not_implemented():
    raise NotImplementedError


def test_what_to_revisit_and_what_is_next(kept):
    for id in outlines()["03a-training-recipe"].exercises:
        if id != "03a.accumulate":
            exercise = bank.load(id)
            shown = {part.key: True for part in exercise.parts if not part.hidden}
            kept.add("check", id=id, parts=shown, shows=[], points=0)
    hint("03a.clip")
    hint("03a.clip")
    check("03a.accumulate", lambda *a: None)
    guess("03a.first-loss", 9)
    reveal("03a.first-loss", 2.3)
    text = repr(scorecard("03a-training-recipe"))
    assert "03a.clip: solved with 2 hints" in text
    to_go = sum(not part.hidden for part in bank.load("03a.accumulate").parts)
    assert f"03a.accumulate: {to_go} parts to go" in text
    assert "03a.first-loss: your guess was off" in text
    assert "Next: 03a.accumulate" in text


def test_guesses_are_counted_and_drawn(kept):
    guess("03a.first-loss", 2.3)
    reveal("03a.first-loss", 2.31)
    guess("03b.baseline", 0.5)
    reveal("03b.baseline", 0.1)
    guess("03a.batches", [23, 29])
    reveal("03a.batches", [23, 29])
    shown = progress()
    counted = dict(zip(outlines(), (row[4] for row in shown.rows()), strict=True))
    assert counted["03a-training-recipe"] == "2 of 2 close"
    assert counted["03b-debug-ladder"] == "0 of 1 close"
    (axes,) = shown.plot().axes
    (points,) = [line for line in axes.lines if line.get_linestyle() == "None"]
    assert points.get_xydata().tolist() == [[2.3, 2.31], [0.5, 0.1]]


def test_a_guess_after_the_answer_is_shown_and_not_counted(kept):
    reveal("03a.first-loss", 2.31)
    guess("03a.first-loss", 2.31)
    assert progress().rows()[0][4] == "–"
    cells = [cell for row in scorecard("03a-training-recipe").guesses() for cell in row]
    assert "2.31 nats (after the answer)" in cells


def test_pages_escape_what_a_file_says(kept):
    bold = "<b>bold</b>"
    kept.add("check", id="03a.clip", parts={bold: True, "above": bold}, shows=[bold, 3], points=1)
    kept.path.write_text(kept.path.read_text() + "broken <b>\n")
    for shown in (progress(), scorecard("03a-training-recipe")):
        assert "<b>" not in shown._repr_html_() and "entries of" in repr(shown)
        assert repr(shown).isprintable() or "\n" in repr(shown)


def test_an_unknown_notebook_names_the_nearest(kept):
    with pytest.raises(UnknownIdError, match="03a-training-recipe"):
        scorecard("03a-training")


def test_under_grading_the_scorecard_knows_nothing_and_raises_nothing(kept, monkeypatch):
    check("03a.clip", EXERCISE.right[0])
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    monkeypatch.setattr("course.released.FOLDERS", ())  # a sandbox has no notebooks
    for shown in (scorecard("03a-training-recipe"), progress()):
        assert "no grader reads them" in repr(shown)
    assert record.here().events() == []
