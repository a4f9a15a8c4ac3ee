"""`course claims --device` on a device that is not the CPU: the same verdicts."""

import inspect

import pytest

from course.claims import catalogue, compute, seeding
from tests.sampling import THOROUGH
from tests.second_device import second_device

TIMES = {
    "F52": "its operators go through Python, which takes longer than what inference_mode saves",
}
"""Claims of a time: they run there, and only a GPU gives their verdict."""
TAKES_ONE = [
    id
    for id, entry in catalogue().items()
    if "device" in inspect.signature(entry.load().__wrapped__).parameters
]
OTHERWISE = {"F17": "holds"}
"""Moving a model makes new Parameter objects there, as on XLA: an older optimizer has lost them."""
IDS = TAKES_ONE if THOROUGH else ["F17", "F49", "F112", "F139"]


@pytest.mark.parametrize("id", IDS)
def test_a_claim_has_the_cpus_verdict(id):
    with second_device() as second:
        trial = compute(id, device=second)
    assert trial.device == str(second)
    if id in TIMES:
        settings = trial.measured.evidence["quartiles"]
        assert all(0 < low <= median <= high for low, median, high in settings.values())
        return
    assert trial.verdict == OTHERWISE.get(id, compute(id, device="cpu").verdict)
    if id in OTHERWISE:
        assert not trial.as_expected


@pytest.mark.skipif(not THOROUGH, reason="five seconds of processor time: make thorough")
def test_the_flags_cost_is_measured_where_a_device_has_them(monkeypatch):
    """F104's other half runs on CUDA alone; here on a device that only seems to have cuDNN."""
    monkeypatch.setattr(seeding, "_has_flags", lambda device: device.type != "cpu")
    with second_device() as second:
        measured = compute("F104", device=second).measured
    times = measured.evidence["time, flags set / benchmark mode: quartiles and median"]
    assert times.keys() == seeding._CUDNN_NETS.keys()
    assert all(0 < low <= median <= high for low, median, high in times.values())
    assert measured.evidence["weights of two runs differ by"] == 0.0
