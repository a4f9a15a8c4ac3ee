"""The contradictions between the sources: complete, and decided by things that exist."""

import json

import pytest

from course.catalogue import UnknownIdError
from course.claims import catalogue
from course.claims.contradictions import contradictions, find_contradiction

LEDGER_NUMERICS = {f"N{number:02d}" for number in range(1, 63)}
CHOICES = {"K31"}  # nothing that runs can decide it


def test_the_ledger_and_the_table_name_the_same_contradictions():
    assert list(contradictions()) == [f"K{number:02d}" for number in range(1, 40)]


@pytest.mark.parametrize("row", contradictions().values(), ids=lambda row: row.id)
def test_everything_that_decides_exists(row):
    assert set(row.decided_by) <= set(catalogue()) | LEDGER_NUMERICS
    assert bool(row.decided_by) != (row.id in CHOICES)
    assert row.topic and row.positions and row.uses.endswith(".")
    assert json.loads(json.dumps(row.to_json()))["positions"] == list(row.positions)


@pytest.mark.parametrize("typed", ["K05", "k5", "K-05"])
def test_a_contradiction_may_be_typed_loosely(typed):
    assert find_contradiction(typed).id == "K05"


@pytest.mark.parametrize("typed", ["K99", "Kx", "K0"])
def test_an_unknown_contradiction_says_which_exist(typed):
    with pytest.raises(UnknownIdError, match="K01 to K39"):
        find_contradiction(typed)
