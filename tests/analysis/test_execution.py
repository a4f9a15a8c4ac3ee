"""The chain of questions, each asked only where those before it are answered."""

import pytest

from course.analysis.execution import LAUNCH_BOUND_MS, PATHS, WAITING, Situation, advise
from course.analysis.overlap import seconds_per_batch, speedup
from course.data import throughput

READY = {"right_on_one": True, "step_ms": 40.0, "has_gpu": True}


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"right_on_one": False, "waiting": 0.9, "fits": False}, "correctness"),
        ({"waiting": 0.6, "fits": False}, "loader"),
        ({"fits": False, "fits_at_one": False}, "recompute"),
        ({"fits": False}, "accumulate"),
        ({"has_gpu": False}, "cpu"),
        ({"step_ms": 0.5 * LAUNCH_BOUND_MS}, "cpu"),
        ({}, "gpu"),
        ({"on_gpu": True}, "amp"),
        ({"on_gpu": True, "half_precision": True}, "compile"),
        ({"on_gpu": True, "half_precision": True, "compiled": True, "num_devices": 4},
         "distributed"),
        ({"on_gpu": True, "half_precision": True, "compiled": True}, "gpu"),
    ],
)  # fmt: skip
def test_the_first_question_that_fails_decides(change, path):
    advice = advise(Situation(**READY | change))
    assert advice.path == path and str(advice).startswith(f"{path}: ")


def test_every_path_is_advised_somewhere():
    situations = [
        Situation(**READY | {"has_gpu": gpu, "fits": fits, "fits_at_one": one, "on_gpu": on,
                             "half_precision": half, "compiled": compiled, "num_devices": n})
        for gpu in (0, 1) for fits in (0, 1) for one in (0, 1) for on in (0, 1)
        for half in (0, 1) for compiled in (0, 1) for n in (1, 2)
    ]  # fmt: skip
    assert {advise(at).path for at in situations} == set(PATHS)


def test_waiting_means_what_the_loaders_measurement_means():
    assert WAITING == throughput.WAITING


def test_the_slower_side_sets_the_pace():
    assert seconds_per_batch(0.03, 0.02, 0) == pytest.approx(0.05)
    assert [seconds_per_batch(0.03, 0.02, n) for n in (1, 2, 9)] == [0.03, 0.02, 0.02]


def test_amdahl_has_a_ceiling():
    assert speedup(0.4, 1e12) == pytest.approx(1 / 0.6) and speedup(0.0, 9) == 1
    assert speedup(1.0, 3.0) == pytest.approx(3)
