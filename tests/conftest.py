"""Fixtures shared by all tests: the device, and a fixed seed before every test."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # of child processes too: small tensors everywhere

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> torch.device:
    """CPU always; CUDA where there is one."""
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU here")
    return torch.device(request.param)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
