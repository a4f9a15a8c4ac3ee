"""Each exhibit shows its symptom with the bug and not without, and diagnose names it."""

import pytest

from course.debug import museum


@pytest.mark.parametrize("id", museum.ids())
def test_the_symptom_is_there_with_the_bug_and_gone_without(id):
    exhibit = museum.exhibit(id)
    with_bug, without = exhibit.both()
    assert exhibit.shows(with_bug), with_bug
    assert not exhibit.shows(without), without


@pytest.mark.parametrize("id", museum.ids())
def test_diagnose_names_the_bug_first_and_leaves_the_healthy_run_alone(id):
    exhibit = museum.exhibit(id)
    found = [finding.id for finding in exhibit.diagnosis(True)]
    assert found and found[0] in exhibit.names, found
    assert exhibit.diagnosis(False) == []


def test_an_exhibit_prints_symptom_evidence_and_fix(tmp_path):
    text = museum.exhibit("B08").show()
    assert "double-softmax" in text and "fix" in text and "with the bug" in text


def test_the_curves_are_drawn(tmp_path):
    museum.exhibit("B01").plot().savefig(tmp_path / "b01.png")
    assert (tmp_path / "b01.png").stat().st_size > 1000


def test_an_unknown_bug_is_refused_with_the_list():
    with pytest.raises(ValueError, match="B01"):
        museum.exhibit("B99")
