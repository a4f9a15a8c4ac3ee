"""Student processes in tests are locked away; without the means, CI fails and laptops trust."""

import os

import pytest

from autograde.sandbox import protections
from autograde.sandbox.isolation import Isolation


@pytest.fixture(scope="session")
def isolation() -> Isolation:
    """Full isolation; without it the tests' own code is trusted, but never in CI."""
    return Isolation(trusted=bool(protections.missing()) and not os.environ.get("CI"))
