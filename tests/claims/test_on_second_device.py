"""`course claims --device` on a device that is not the CPU: the same verdicts."""

import inspect

import pytest

from course.claims import catalogue, compute
from tests.sampling import THOROUGH
from tests.second_device import second_device

CANNOT = {
    "F52": "a view made under inference_mode",
}
"""What the second device cannot show; these wait for a GPU."""
TAKES_ONE = [
    id
    for id, entry in catalogue().items()
    if "device" in inspect.signature(entry.load().__wrapped__).parameters and id not in CANNOT
]
OTHERWISE = {"F17": "holds"}
"""Moving a model makes new Parameter objects there, as on XLA: an older optimizer has lost them."""
IDS = TAKES_ONE if THOROUGH else ["F17", "F49", "F112", "F139"]


@pytest.mark.parametrize("id", IDS)
def test_a_claim_has_the_cpus_verdict(id):
    with second_device() as second:
        trial = compute(id, device=second)
    assert trial.device == str(second)
    assert trial.verdict == OTHERWISE.get(id, compute(id, device="cpu").verdict)
    if id in OTHERWISE:
        assert not trial.as_expected
