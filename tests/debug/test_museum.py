"""Each exhibit shows its symptom with the bug and not without, and diagnose names it if it can."""

from dataclasses import replace
from functools import cache
from itertools import islice

import pytest

from course.debug import museum
from course.debug.museum.exhibit import epochs

pytestmark = pytest.mark.filterwarnings("ignore:Using a target size")  # B10 is about it

NAMED = [id for id in museum.ids() if museum.exhibit(id).names]
NOT_NAMED = [id for id in museum.ids() if not museum.exhibit(id).names]


@cache
def run(id, bug):
    return museum.exhibit(id).run(bug)


@pytest.mark.parametrize("id", museum.ids())
def test_the_symptom_is_there_with_the_bug_and_gone_without(id):
    exhibit = museum.exhibit(id)
    with_bug, without = (exhibit.measure(run(id, bug)) for bug in (True, False))
    assert exhibit.shows(with_bug), with_bug
    assert not exhibit.shows(without), without


@pytest.mark.parametrize("id", museum.ids())
def test_a_bug_that_is_not_silent_stops_the_run_and_only_with_the_bug(id):
    exhibit = museum.exhibit(id)
    error = run(id, True).error
    assert error is None if exhibit.raises is None else isinstance(error, exhibit.raises)
    assert run(id, False).error is None


@pytest.mark.parametrize("id", NAMED)
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


def test_an_exhibit_prints_symptom_evidence_and_fix(tmp_path):
    text = museum.exhibit("B08").show()
    assert "double-softmax" in text and "fix" in text and "with the bug" in text


def test_a_bug_that_raises_prints_the_message():
    text = museum.exhibit("B09").show()
    assert "raises   RuntimeError: 0D or 1D target tensor expected" in text


def test_a_trace_is_drawn_beside_the_loss():
    loss, rate = museum.exhibit("B24").plot().axes
    with_bug = rate.lines[1].get_ydata()
    assert rate.get_ylabel() == "learning rate" and with_bug[0] == 0.1 and with_bug[-1] < 1e-6
    assert len(loss.lines) == len(rate.lines) == 2


def test_the_curves_are_drawn(tmp_path):
    museum.exhibit("B01").plot().savefig(tmp_path / "b01.png")
    assert (tmp_path / "b01.png").stat().st_size > 1000


def test_an_unknown_bug_is_refused_with_the_list():
    with pytest.raises(ValueError, match="B01"):
        museum.exhibit("B99")
