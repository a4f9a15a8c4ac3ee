"""Ledger values that the lecture does not print, so that no `printed` holds us to them."""

import pytest

from course.worked import compute
from course.worked.registry import close

LEDGER = {
    "N09": {
        "torch, float32: y": [-0.10000002384185791, 1.8000000715255737],
        "torch, float32: loss": 2.2250001430511475,
    },
    "N10": {
        "loss after one step": 1.96601,
        "torch, float32: loss": 1.9660100936889648,
        "the loss is multiplied by": 0.8836,
        "loss after 2 steps": 1.737166436,
        "loss after 10 steps": 0.6454863865175019,
        "loss after 100 steps": 9.395085467638962e-06,
        "stable for lr below": 1 / 3,
    },
    "N19": {
        "each loss / K": [0.5, 2.0],
        "big batch: loss": 2.5,
        "mean loss after the step": 0.26,
        "without / K: gradient": -16.0,
        "without / K: w": 1.6,
        "without / K: mean loss": 6.34,
        "stepping after each micro-batch: w": 0.88,
        "w that minimises the loss": 8 / 13,
        "smallest mean loss": 0.038461538461538464,
    },
    "N20": {
        "torch, float64": [0.599999880000024, 0.799999840000032],
        "torch, float64: norm": 0.99999980000004,
        "torch, float32": [0.5999999046325684, 0.7999998331069946],
        "torch: a norm at the ceiling becomes": 0.999999000001,
        "clip by value": [1.0, 1.0],
        "clip by value: cosine to g": 0.9899494936611665,
    },
}


@pytest.mark.parametrize("id", LEDGER)
def test_computed_values_are_the_ledgers(id):
    steps = {step.what: step.computed for step in compute(id).steps}
    wrong = {
        what: (steps.get(what), value)
        for what, value in LEDGER[id].items()
        if what not in steps or not close(value, steps[what], 1e-9)
    }
    assert not wrong
