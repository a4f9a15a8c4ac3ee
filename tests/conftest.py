"""Fixtures shared by all tests: the device, and a fixed seed before every test."""

import pytest
import torch


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> torch.device:
    """CPU always; CUDA where there is one."""
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU here")
    return torch.device(request.param)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
