"""A submission graded without cells that no exercise needs, beside the same one run in whole."""

import json

import nbformat
import pytest

from autograde import bank
from autograde.classroom import marking, page
from autograde.classroom.assignment import read_assignment
from autograde.classroom.gradebook import FillIn
from autograde.classroom.grading import isolation_for, job_for, ran_out_of_time
from autograde.classroom.marking import mark
from autograde.classroom.not_run import MAX_OUTPUTS, SAYS, handed_in
from autograde.classroom.submissions import find_submissions
from autograde.referee import judge
from autograde.sandbox.limits import Limits
from autograde.seeds import another_seed
from tests.attacks.submissions import HONEST
from tests.short_class import hand_in

CLIP_EXERCISE = bank.load("03a.clip")
NAME = "98-small"
LIMITS = Limits(cell_s=10.0, answer_s=5.0)
USED = "import torch"
SLOW = "import time\nslept = [time.sleep(0.01) for _ in range(3)]\nprint('ran')"
SCALE = "scale = 2.0"
WRONG = HONEST.replace("return norm", "return norm * 2")
CLIP = {"grade_id": "clip", "grade": False, "solution": True, "locked": False}
CHECK = {"grade_id": "clip-check", "grade": True, "solution": False, "locked": True, "points": 3}


def cell(source, **marks):
    metadata = {"nbgrader": {"schema_version": 3, "task": False, **marks}} if marks else {}
    return nbformat.v4.new_code_cell(source, metadata=metadata)


def notebook(answer, *before):
    checks = [cell(answer, **CLIP), cell('check("03a.clip", clip_by_global_norm)', **CHECK)]
    return nbformat.v4.new_notebook(cells=[*map(cell, (USED, *before, SLOW, SCALE)), *checks])


def graded(folder, isolation, handed_in, *before, given=None, run_all=False):
    """What a grader makes of a notebook, in a class whose source and release are written here."""
    given = given or notebook("raise NotImplementedError()", *before)
    for where in ("source", "release"):
        path = folder / where / NAME / f"{NAME}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(given, path)
    hand_in(folder, "ada", NAME, handed_in)
    (submitted,) = find_submissions(folder, NAME, None)
    about, locked = read_assignment(folder, NAME), isolation_for(folder, trusted=isolation.trusted)
    job = job_for(submitted, about.to_json(), LIMITS, locked, 7, run_all=run_all)
    result = mark({**job, "text": submitted.path.read_text("utf-8")})
    assert result["graded"], result
    return result


def printed(result, source):
    (found,) = [one for one in result["cells"] if one["source"] == source]
    return "".join(output.get("text", "") for output in found["outputs"])


def test_points_and_reasons_are_those_of_a_whole_run(tmp_path, isolation):
    for answer, points in ((HONEST, 3), (WRONG, 2)):
        results = [
            graded(tmp_path, isolation, notebook(answer), run_all=all) for all in (False, True)
        ]
        assert [result["not_run"] for result in results] == [2, 0]
        assert results[0]["checks"] == results[1]["checks"]
        assert results[0]["checks"][0]["points"] == points
        assert SAYS in printed(results[0], SLOW) and printed(results[1], SLOW) == "ran\n"
        assert graded(tmp_path, isolation, notebook(answer))["cells"] == results[0]["cells"]


def test_forged_outputs_are_shown_as_handed_in_and_earn_nothing(tmp_path, isolation):
    forged = notebook(WRONG)
    data = {"text/plain": "100", "text/html": "<script>alert(1)</script><b>100 points</b>"}
    forged.cells[1].outputs = [
        nbformat.v4.new_output("execute_result", data=data),
        nbformat.v4.new_output("error", ename="Timeout", evalue="no answer within 9 s"),
    ]
    result = graded(tmp_path, isolation, forged)
    assert result["checks"][0]["points"] == 2
    assert printed(result, SLOW) == f"{SAYS} As handed in:\n"
    _, value, error = next(c["outputs"] for c in result["cells"] if c["source"] == SLOW)
    assert value["output_type"] == "display_data" and "script" not in value["data"]["text/html"]
    assert error["ename"] == "OwnTimeout" and not ran_out_of_time(result)
    assert any("HTML" in what for what in result["cleaned"])


def test_a_name_that_is_found_without_being_named_is_there(tmp_path, isolation):
    around = HONEST.replace("return norm", "return norm * globals()['scale'] / scale_of")
    result = graded(tmp_path, isolation, notebook(f"scale_of = 2.0\n{around}"))
    assert result["not_run"] == 0 and result["checks"][0]["points"] == 3


MINIDOM = "from xml.dom.minidom import parseString"
BY_MODULE = HONEST.replace("return norm", "xml.dom.minidom\n    return norm")
BROKEN = HONEST + "\nscale_of = nothing\n"


@pytest.mark.parametrize("answer", [f"import xml\n{BY_MODULE}", BROKEN])
def test_a_run_that_misses_something_is_made_again_in_whole(answer, tmp_path, isolation):
    """What a module lacks because nobody imported it, and a cell that ends too early."""
    result = graded(tmp_path, isolation, notebook(answer, MINIDOM), MINIDOM)
    assert result["not_run"] == 0 and result["checks"][0]["points"] == 3


def test_a_changed_cell_runs_whatever_its_id_and_metadata_say(tmp_path, isolation):
    changed = notebook(HONEST)
    changed.cells[1].source = SLOW.replace("'ran'", "'changed'")
    changed.cells[1].metadata["autograde"] = {"not_run": True}
    changed.cells[3].id, changed.cells[1].id = changed.cells[1].id, "another"
    result = graded(tmp_path, isolation, changed)
    assert printed(result, changed.cells[1].source) == "changed\n" and result["not_run"] == 1


def test_outputs_as_handed_in_are_bounded():
    many = cell(SLOW)
    many.outputs = [nbformat.v4.new_output("stream", text="x" * 100_000)] * 2000
    said = []
    shown = handed_in(many, said.append)
    assert len(shown) <= MAX_OUTPUTS and len(json.dumps(shown)) < 2 * 2**20
    assert said == ["outputs as handed in that are too long"]


def test_the_graded_notebook_says_which_cells_were_not_run(monkeypatch):
    monkeypatch.setattr(
        FillIn,
        "known",
        [
            {"source": USED, "outputs": []},
            {"source": SLOW, "outputs": handed_in(cell(SLOW), print), "not_run": True},
        ],
    )
    made = nbformat.v4.new_notebook(cells=[cell(USED), cell(SLOW)])
    filled, _ = FillIn().preprocess(made, {})
    assert [one.execution_count for one in filled.cells] == [1, None]
    assert filled.cells[1].outputs[0].text == f"{SAYS}\n"


def test_the_class_page_says_how_many_cells_were_not_run():
    verdicts = {
        "ada": {"not_run": 33, "code_cells": 70},
        "ben": {"not_run": 30, "code_cells": 71},
        "cleo": {"not_run": 0, "code_cells": 70},
        "dan": {"not_graded": "no JSON"},
    }
    (words,) = page._not_run(verdicts)
    assert words.startswith("30 to 33 of 71 code cells were not run")
    assert words.endswith("Every cell was run for cleo.")
    assert list(page._not_run({"cleo": verdicts["cleo"]})) == []


def test_a_whole_run_asks_other_cases_than_the_one_that_missed_something(
    tmp_path, isolation, monkeypatch
):
    seeds = []

    def noting(exercise, ask, *, seed, **how):
        seeds.append(seed)
        return judge(exercise, ask, seed=seed, **how)

    monkeypatch.setattr(marking, "judge", noting)
    graded(tmp_path, isolation, notebook(BROKEN, MINIDOM), MINIDOM)
    assert seeds == [7, another_seed(7)]


HIDDEN = {**CHECK, "grade_id": "clip-hidden", "points": 1}
COUNTING = HONEST.replace("grads = ", "calls.append(1)\n    grads = ")
COUNTED = "print(len(calls))"


@pytest.mark.parametrize("between", ["", "pass"])
def test_a_hidden_check_asks_again_only_what_a_cell_may_have_changed(between, tmp_path, isolation):
    asks = 'check("03a.clip", clip_by_global_norm, parts="hidden")'
    handed_in = notebook(f"calls = []\n{COUNTING}")
    handed_in.cells += [cell(between)] if between else []
    handed_in.cells += [cell(asks, **HIDDEN), cell(COUNTED)]
    result = graded(tmp_path, isolation, handed_in, given=handed_in, run_all=True)
    assert [check["status"] for check in result["checks"]] == ["right", "right"]
    number = {False: 0, True: 0}
    for part in CLIP_EXERCISE.parts:
        number[part.hidden] += len(CLIP_EXERCISE.cases(part, 7))
    again = number[False] if between else 0
    assert int(printed(result, COUNTED)) == number[False] + number[True] + again


@pytest.mark.parametrize("order", [("hidden", "shown"), ("shown", "hidden")])
def test_a_case_is_not_asked_again_once_a_cell_could_have_worked_out_its_answer(
    order, tmp_path, isolation
):
    asks = 'check("03a.clip", clip_by_global_norm, parts="hidden")'
    shown = notebook("raise NotImplementedError()").cells[-1]
    hidden = cell(asks, **HIDDEN)
    noting = HONEST.replace("grads = ", "seen.append(max_norm)\n    grads = ")
    handed_in = notebook(f"seen = []\n{noting}")
    first, second = ({"shown": shown, "hidden": hidden}[one] for one in order)
    looks = "print(len(seen), len(set(seen)))"
    handed_in.cells[-1:] = [first, cell("table = list(seen)"), second, cell(looks)]
    result = graded(tmp_path, isolation, handed_in, given=handed_in, run_all=True)
    assert [check["status"] for check in result["checks"]] == ["right", "right"]
    asked, distinct = map(int, printed(result, looks).split())
    assert asked == distinct > len(CLIP_EXERCISE.parts)
