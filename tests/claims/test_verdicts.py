"""Every claim of the ledger is tried, some on two seeds, and gets the verdict on record."""

from functools import cache

import pytest

from course.claims import catalogue, compute
from course.claims.trial import Trial
from course.ledger import rows
from tests.sampling import THOROUGH, sample

LEDGER_IDS = [id for id in rows() if id.startswith("F")]
SLOW = ("F32", "F33", "F69", "F73", "F76", "F78", "F81", "F91", "F146", "F153")
"""These train for 2 to 7 s: `make thorough` tries them."""
TRIED = [
    (id, seed)
    for seed, ids in enumerate((LEDGER_IDS, sample(LEDGER_IDS, 16)))
    for id in ids
    if THOROUGH or id not in SLOW
]
"""Each in its settings on one seed, and every sixteenth on another."""

# Judged from the sources' sentences, apart from the experiments' code.
HOLDS = "01 03 04 05 06 11 20 24 25 26 27 29 34 36 37 38 39 50 51 57 60 62 63 64 66 68 70 77 78 79 "
HOLDS += "83 84 86 89 90 91 96 98 99 101 102 105 108 111 114 116 133 134 136 137 139 142 143 144 "
HOLDS += "145 147 148 149 150 154 157 158"
DOES_NOT = "08 16 18 22 23 28 30 33 42 46 61 67 72 73 75 92 94 100 109 110 112 113 115 121 "
DOES_NOT += "126 130 131"
NEEDS_GPU = "104 118 119 120 122 123 138"
NOT_DECIDABLE = "129"


def ledger_verdict(id: str) -> str:
    number = id[1:]
    for verdict, numbers in (
        ("holds", HOLDS),
        ("does not hold", DOES_NOT),
        ("needs GPU", NEEDS_GPU),
        ("not decidable", NOT_DECIDABLE),
    ):
        if number in numbers.split():
            return verdict
    return "holds if"


@cache
def tried(id: str, seed: int) -> Trial:
    return compute(id, seed=seed)


def test_the_ledger_and_the_registry_name_the_same_claims():
    assert list(catalogue()) == LEDGER_IDS


@pytest.mark.parametrize("id", LEDGER_IDS)
def test_the_verdict_on_record_is_the_ledgers(id):
    assert catalogue()[id].load().expected == ledger_verdict(id)


@pytest.mark.parametrize(("id", "seed"), TRIED)
def test_the_measured_verdict_is_the_one_on_record(id, seed):
    trial = tried(id, seed)
    assert trial.as_expected, str(trial)


@pytest.mark.parametrize("id", [id for id, seed in TRIED if not seed])
def test_every_trial_says_what_decides_and_where_it_ran(id):
    trial = tried(id, 0)
    assert trial.measured.deciding in trial.measured.evidence
    assert isinstance(trial.measured.number, (int, float))
    assert trial.seed == 0 and trial.device in {"cpu", "cuda"}
    assert set(trial.versions) >= {"torch", "numpy", "python"}
    assert trial.says.endswith(".") and trial.entry.title and trial.entry.source
    assert bool(trial.condition) == (trial.expected == "holds if")


@pytest.mark.gpu
@pytest.mark.parametrize("id", [id for id in LEDGER_IDS if catalogue()[id].load().gpu])
def test_claims_that_need_a_gpu_are_decided_on_one(id, device):
    if device.type != "cuda":
        pytest.skip("this test is for the GPU")
    trial = compute(id, device=device)
    assert trial.verdict != "needs GPU" and trial.device.startswith("cuda")
    assert trial.as_expected, str(trial)
