"""Student processes in tests are locked away; without the means, CI fails and laptops trust."""

import os
from pathlib import Path

import pytest

from autograde.sandbox import protections
from autograde.sandbox.isolation import Isolation
from tests import second_device as backend

ROOT = Path(__file__).resolve().parents[2]
STARTED = '''\
"""Has the second device there for good."""

from contextlib import ExitStack

STACK = ExitStack()


def start():
    import second_device_of_tests

    STACK.enter_context(second_device_of_tests.second_device())
'''


@pytest.fixture(scope="session")
def isolation() -> Isolation:
    """Full isolation; without it the tests' own code is trusted, but never in CI."""
    return Isolation(trusted=bool(protections.missing()) and not os.environ.get("CI"))


@pytest.fixture(scope="session")
def with_second_device(tmp_path_factory) -> dict[str, str]:
    """An environment in which every Python process has the second device from the start.

    torch loads a backend that an installed package names under the entry point `torch.backends`.
    """
    backend.skip_beside_a_gpu()
    place = tmp_path_factory.mktemp("backend")
    (place / "second_backend.py").write_text(STARTED, "utf-8")
    (place / "second_device_of_tests.py").write_bytes(Path(backend.__file__).read_bytes())
    about = place / "second_backend-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: second-backend\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[torch.backends]\nsecond = second_backend:start\n")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(place), str(ROOT)])}
