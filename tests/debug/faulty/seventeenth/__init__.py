"""A seventeenth set: bugs of forty kinds, by someone who had not seen the doctor.

At first sight 30 were told apart; of 20 sound programs one was alarmed, scored by the mean of many
passes with dropout, and of the 40 twins one, whose frozen part serves the old task too.
"""

from tests.debug.faulty.seventeenth import (
    decisions,
    dense,
    generative,
    loops,
    runs,
    structures,
    tokens,
)

PARTS = (tokens, dense, generative, decisions, structures, loops, runs)

MISSED = {"returns_cross_episodes": "the step's own sums over time are not read"}
"""Programs that are not told apart, and why."""
