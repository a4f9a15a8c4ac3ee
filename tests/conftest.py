"""Fixtures shared by all tests: the device, and a fixed seed before every test."""

import os
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # of child processes too: small tensors everywhere

import pytest
import torch

from course.startup import put_off_addresses
from course.view import student_view
from tests.heaps import Heaps, place
from tests.second_device import THERE_IS_A_GPU, register, second_device

torch.set_num_threads(1)
put_off_addresses()  # before anything of nbgrader's
if not THERE_IS_A_GPU:
    register()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Under pytest-xdist one process runs a file, for its fixtures, or a heap of its tests."""
    return Heaps(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first."""
    items.sort(key=lambda item: place(item.nodeid))


@pytest.fixture(params=["cpu", "second", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Iterator[torch.device]:
    """CPU always, and CUDA where there is one, else a second device that is computed on the CPU."""
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
