"""Fixtures shared by all tests: the device, and a fixed seed before every test."""

import os
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # of child processes too: small tensors everywhere

import pytest
import torch

from course.view import student_view
from tests.sampling import heap
from tests.second_device import register, second_device

torch.set_num_threads(1)
register()


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Under pytest-xdist one process runs a file, for its fixtures, or a heap of its tests."""
    for item in items:
        of = getattr(item, "callspec", None)
        about = str(of.params.get("id", of.id)) if of else ""
        item.add_marker(pytest.mark.xdist_group(heap(item.path, about)))


@pytest.fixture(params=["cpu", "second", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Iterator[torch.device]:
    """CPU always, a second device that is computed on it, and CUDA where there is one."""
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU here")
    if request.param != "second":
        yield torch.device(request.param)
        return
    with second_device() as device:
        yield device


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _readers_view() -> None:
    """Worked tables as a reader sees them, whatever notebook ran in this process before."""
    student_view(None)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all processes of a run: pytest-xdist gives each of them a base of its own."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared"
    folder.mkdir(exist_ok=True)
    return folder
