"""A tenth set: two dresses each of bugs that the doctor missed in a stranger's set."""

from tests.debug.faulty.tenth import data, losses, runs, zeros

PARTS = (data, losses, runs, zeros)
"""Faulty set-ups, each beside its repaired twin; `PAIRS` holds them all."""
