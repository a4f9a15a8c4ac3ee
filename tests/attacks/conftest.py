"""A class with something to steal, for a module's attacks."""

import os

import pytest

from tests.attacks.world import World, small_class


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    os.environ["AUTOGRADE_CANARY"] = "a secret"
    world = World(small_class(tmp_path_factory.mktemp("attacked") / "class"))
    yield world
    world.close()
    del os.environ["AUTOGRADE_CANARY"]
