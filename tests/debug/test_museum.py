"""Each exhibit shows its symptom with the bug and not without, and diagnose names it if it can."""

import base64
import math
import re
from dataclasses import replace
from functools import partial
from itertools import islice

import pytest
import torch
from typer.testing import CliRunner

from course import cli
from course.debug import museum
from course.debug.museum.exhibit import epochs
from course.debug.museum.show import sparkline
from tests.sampling import sample

pytestmark = pytest.mark.filterwarnings("ignore:Using a target size")  # B10 is about it

NAMED = [id for id in museum.ids() if museum.exhibit(id).names]
NOT_NAMED = [id for id in museum.ids() if not museum.exhibit(id).names]


@pytest.mark.parametrize("id", sample(museum.ids(), 6))
def test_the_symptom_is_there_with_the_bug_and_gone_without(id):
    exhibit = museum.exhibit(id)
    with_bug, without = exhibit.both
    assert exhibit.shows(with_bug), with_bug
    assert not exhibit.shows(without), without


@pytest.mark.parametrize("id", sample(museum.ids(), 6))
def test_a_bug_that_is_not_silent_stops_the_run_and_only_with_the_bug(id):
    exhibit = museum.exhibit(id)
    error = exhibit.runs[0].error
    assert error is None if exhibit.raises is None else isinstance(error, exhibit.raises)
    assert exhibit.runs[1].error is None


@pytest.mark.parametrize("id", sample(NAMED, 8))
def test_diagnose_names_the_bug_first_and_leaves_the_healthy_run_alone(id):
    exhibit = museum.exhibit(id)
    found = [finding.id for finding in exhibit.diagnosis(True)]
    assert found and found[0] in exhibit.names, found
    assert exhibit.diagnosis(False) == []


@pytest.mark.parametrize("id", NOT_NAMED)
def test_a_bug_that_diagnose_does_not_name_says_so_with_reason_and_fix(id):
    text = museum.exhibit(id).show()
    assert "not by diagnose: " in text and "\n  fix      " in text and "found" not in text


def test_every_bug_of_the_ledger_has_an_exhibit():
    assert museum.ids() == [f"B{number:02}" for number in range(1, 42)]
    assert [museum.exhibit(id).id for id in museum.ids()] == museum.ids()


def test_a_run_over_several_epochs_reads_the_loader_again():
    assert list(islice(epochs([1, 2]), 5)) == [1, 2, 1, 2, 1]
    assert list(epochs(iter([1, 2]))) == [1, 2]  # a second epoch has none: no endless loop


def test_an_exhibit_has_names_or_a_reason_for_none():
    with pytest.raises(ValueError, match=r"B08 .* say in why_not what catches it"):
        replace(museum.exhibit("B08"), names=())


def test_an_exhibit_prints_symptom_evidence_and_fix():
    text = museum.exhibit("B08").show()
    assert all(f"\n  {part} " in text for part in ("symptom", "found", "seen", "fix", "curve"))
    assert "double-softmax" in text and "with the bug" in text


def test_a_bug_that_raises_prints_the_message():
    text = museum.exhibit("B09").show()
    assert "raises   RuntimeError: 0D or 1D target tensor expected" in text


def test_a_trace_is_drawn_beside_the_loss():
    loss, rate = museum.exhibit("B24").plot().axes
    with_bug = rate.lines[1].get_ydata()
    assert rate.get_title(loc="left") == "learning rate"
    assert with_bug[0] == 0.1 and with_bug[-1] < 1e-6
    assert len(loss.lines) == len(rate.lines) == 2


@pytest.mark.parametrize("id", sample(museum.ids(), 6))
def test_the_figure_holds_the_losses_of_both_runs(id):
    exhibit = museum.exhibit(id)
    left, right = exhibit.plot().axes
    drawn = [list(line.get_ydata()) for line in left.lines[:2]]
    assert drawn == [exhibit.runs[1].losses, exhibit.runs[0].losses]
    if exhibit.trace is None:
        with_bug, healthy = exhibit.both
        assert [bar.get_height() for bar in right.patches] == pytest.approx([healthy, with_bug])


def test_looking_at_an_exhibit_leaves_the_random_numbers_alone():
    before = torch.get_rng_state()
    replace(museum.exhibit("B04")).show()
    assert torch.equal(torch.get_rng_state(), before)


def test_a_notebook_shows_text_and_figure_and_loads_nothing():
    html = museum.exhibit("B01")._repr_html_()
    assert "missing-zero-grad" in html and "optimizer.zero_grad()" in html and "http" not in html
    picture = base64.b64decode(re.search(r"data:image/png;base64,([^\"]+)", html)[1])
    assert picture.startswith(b"\x89PNG")


def test_a_curve_in_letters_rises_with_its_values():
    assert sparkline([0.0, 1.0, 2.0, 7.0], scale=[0.0, 7.0]) == "▁▂▃█"
    assert sparkline([1.0, math.nan, math.inf], scale=[1.0]) == "▁!!"
    assert sparkline([], scale=[]) == ""


def test_curves_in_letters_stand_below_each_other_step_by_step():
    lines = museum.exhibit("B30").show().splitlines()
    healthy, bug = (line[11:] for line in lines[-2:])
    assert len(healthy) == 50 and len(bug) == math.ceil(10 / 3)  # 150 and 10 steps, one of three
    assert museum.exhibit("B36").show().endswith("\n  bug      no step made")


def test_the_command_lists_shows_and_draws(tmp_path):
    course = partial(CliRunner().invoke, cli.app)
    listed = course(["museum"]).output.splitlines()
    assert len(listed) == 41 and listed[2] == "B03  step() before backward()"

    shown = course(["museum", "B03", "--plot", str(tmp_path / "b03.png")])
    assert shown.exit_code == 0 and "step-before-backward" in shown.output
    assert (tmp_path / "b03.png").read_bytes().startswith(b"\x89PNG")

    refused = course(["museum", "B36", "--plot", str(tmp_path / "b36.doc")])
    assert refused.exit_code == 2 and "Try a name such as B36.png." in refused.output

    unknown = course(["museum", "B99"])
    assert unknown.exit_code == 2 and "'B99' is not an exhibit. Choose from B01," in unknown.output


def test_an_unknown_bug_is_refused_with_the_list():
    with pytest.raises(ValueError, match="B01"):
        museum.exhibit("B99")
