"""A tenth set: two dresses each of bugs that the doctor missed in a stranger's set."""

from tests.debug.faulty.tenth import data, losses, runs

PARTS = (data, losses, runs)
"""Faulty set-ups, each beside its repaired twin; `PAIRS` holds them all."""
