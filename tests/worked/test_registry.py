"""The worked numerics keep the contract of course/worked/registry.py, present and future ones."""

import json
import subprocess
import sys

import pytest

from course.catalogue import UnknownIdError
from course.worked import Step, catalogue, compute
from course.worked.registry import close

IDS = list(catalogue())


@pytest.mark.parametrize("id", IDS)
def test_every_numeric_agrees_or_explains_where_the_lecture_differs(id):
    numeric = compute(id)
    assert numeric.steps
    assert [step.what for step in numeric.steps if step.verdict == "differs"] == []


@pytest.mark.parametrize("id", IDS)
def test_no_numeric_prints_its_own_answer_back(id):
    """Other inputs, other results: at least one computed value must move."""
    numeric = catalogue()[id].load()
    moved = numeric(**numeric.perturb)
    before = {step.what: step.computed for step in numeric().steps}
    assert any(before.get(step.what) != step.computed for step in moved.steps)


@pytest.mark.parametrize("id", IDS)
def test_every_numeric_prints_renders_and_goes_to_json(id):
    numeric = compute(id)
    assert numeric.entry.title in str(numeric)
    assert "<table>" in numeric._repr_html_()
    document = json.loads(json.dumps(numeric.to_json(), allow_nan=False))
    assert document["id"] == id and len(document["steps"]) == len(numeric.steps)


def test_a_printed_value_that_we_do_not_reach_is_our_fault_unless_explained():
    assert Step("loss", 1.0, 2.0).verdict == "differs"
    assert Step("loss", 1.0, 2.0, correction="The slide adds twice.").verdict == "lecture differs"
    assert Step("loss", 1.0).verdict == "lecture silent"
    assert Step("loss", 1.004, 1.0, tolerance=0.005).verdict == "agrees"


def test_closeness_looks_into_lists_and_at_their_shape():
    assert close([[1.0, 2.0]], [[1.0, 2.0 + 1e-12]], 1e-9)
    assert not close([1.0], [1.0, 2.0], 1e-9)
    assert not close([1.0], 1.0, 1e-9)
    assert close(float("nan"), float("nan"), 0.0) and not close(float("inf"), 1.0, 1e9)


@pytest.mark.parametrize("typed", ["n20", "N-20", "N 20"])
def test_an_id_may_be_typed_loosely(typed):
    assert compute(typed).entry.id == "N20"


def test_an_unknown_id_suggests_the_nearest():
    with pytest.raises(UnknownIdError, match=r"'N119' is not the id .*nearest: N19"):
        compute("N119")


def run_course(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "course.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_the_command_prints_one_numeric_as_json():
    result = run_course("worked", "N10", "--json")
    assert result.returncode == 0, result.stderr
    steps = {step["what"]: step["computed"] for step in json.loads(result.stdout)["steps"]}
    assert steps["loss after one step"] == pytest.approx(1.96601, abs=5e-6)


def test_an_unknown_id_on_the_command_line_is_one_line_and_exit_2():
    result = run_course("worked", "N999")
    assert result.returncode == 2
    assert result.stderr.startswith("course: 'N999' is not the id of a worked numeric")
    assert result.stderr.count("\n") == 1


def test_listing_does_not_import_torch():
    code = (
        "import sys; from course.cli import app\n"
        "from typer.testing import CliRunner\n"
        "out = CliRunner().invoke(app, ['worked', '--list']).output\n"
        "assert 'N19' in out and 'torch' not in sys.modules, sorted(sys.modules)[:5]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
