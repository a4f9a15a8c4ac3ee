"""A third set: bugs as they are reported, in kinds of many sorts, by somebody who had not read
the doctor. How the first look went, bench/diagnose says."""

from tests.debug.faulty.unseen import pictures, sequences, tables

PARTS = (sequences, pictures, tables)
MISSED = {
    "views_of_different_pictures": "which pairs are meant is known to the author alone",
    "siamese_inverted": "the metric moves by no more than chance in as few steps",
    "targets_not_shuffled": "numbers without structure look like stand-in data",
    "schedule_per_batch": "a length of 40 may be told in batches",
}
"""Pairs that are not told apart, and why."""
