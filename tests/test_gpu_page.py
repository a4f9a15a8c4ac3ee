"""`make gpu`, as far as a machine without a GPU can carry it."""

import pytest
import torch

from tests.bench import gpu


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU: make gpu runs everything")
def test_without_a_gpu_nothing_is_run_and_one_line_says_so(capsys):
    assert gpu.main() == 2
    said = capsys.readouterr()
    assert not said.out and len(said.err.splitlines()) == 1 and "no CUDA device" in said.err


def test_the_trainer_and_the_loop_end_with_the_same_loss(device):
    found = gpu.engine(device, rounds=2, epochs=1)
    assert found["losses"]["trainer"] == pytest.approx(found["losses"]["loop"], rel=1e-6)
    assert found["ratio"] > 0


def test_the_page_says_what_failed_and_whether_points_differ():
    graded = {"cpu": {"seconds": 3.1}, "cuda": {"seconds": 9.0}, "same": False}
    page = gpu.page(
        {
            "device": "a GPU", "torch": "2", "python": "3", "engine": {"ratio": 1.02},
            "tests": {"passed": 9, "failed": 1, "skipped": 0}, "claims": {"F104": "holds"},
            "grading": graded,
        }
    )  # fmt: skip
    assert "9 passed, 1 failed" in page and "F104 holds" in page and "NOT the same" in page
