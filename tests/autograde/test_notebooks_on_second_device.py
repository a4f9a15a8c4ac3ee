"""The notebooks on a device that is not the CPU: each runs through, and earns its points."""

import subprocess
import sys

import pytest

from autograde.run_through import run_through
from autograde.sources import all_paths
from tests.sampling import THOROUGH
from tests.second_device import NAME

CHOICE = "from course.engine import choose_device; print(choose_device())"


@pytest.mark.slow
@pytest.mark.skipif(not THOROUGH, reason="half a minute to three each: make thorough")
@pytest.mark.parametrize("name", list(all_paths()))
def test_a_notebook_runs_through_on_another_device(name, with_second_device, monkeypatch):
    """Wherever it says choose_device(), it gets the second one."""
    monkeypatch.setenv("PYTHONPATH", with_second_device["PYTHONPATH"])
    chosen = subprocess.run([sys.executable, "-c", CHOICE], capture_output=True, text=True)
    assert chosen.stdout.strip() == NAME, chosen.stderr
    assert [fault for fault in run_through(name).faults if not _is_dynamos(fault)] == []


def _is_dynamos(fault: str) -> bool:
    """In 3i torch.compile warns that it does not see into a backend written in Python."""
    return "wrote to stderr" in fault and "_dynamo" in fault
