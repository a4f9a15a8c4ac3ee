"""A fourth set: bugs of thirty kinds, by another author who had read neither the doctor nor the
other sets. How the first look went, bench/diagnose says."""

from tests.debug.faulty.fourth import data, loops, losses, models, runs

PARTS = (data, models, losses, loops, runs)
MISSED = {"focal_of_mean": "a loss may weigh a batch as a whole"}
"""Pairs that are not told apart, and why."""
