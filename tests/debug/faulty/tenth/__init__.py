"""A tenth set: two dresses each of bugs that the doctor missed in a stranger's set."""

from tests.debug.faulty.tenth import data, losses, runs, zeros

PARTS = (data, losses, runs, zeros)
"""Faulty set-ups, each beside its repaired twin; `PAIRS` holds them all."""

MISSED = {
    "pieces_of_unlike_length_averaged": "a mean over recordings, one a batch, may be what is meant",
}
"""Programs that are not told apart, and why."""
