"""A sixteenth set: bugs of forty kinds, by someone who had not seen the doctor.

At first sight 31 were told apart, 30 with the right class first and one, a teacher in train mode,
by a score that differs between two calls; of 20 sound programs one was alarmed, a stream whose
examples get harder, and of the 40 twins one, whose graph is in both loaders and whose masks tell
the sides apart.
"""

from tests.debug.faulty.sixteenth import (
    decisions,
    generative,
    loops,
    measures,
    nearness,
    runs,
    tokens,
    vision,
)

PARTS = (tokens, vision, generative, nearness, decisions, measures, loops, runs)

MISSED = {
    "padding_idx_is_real_item": "a padded row may be a real item only where nothing is padded",
    "reinforce_returns_forward": "the step's own sums over time are not read",
}
"""Programs that are not told apart, and why."""
