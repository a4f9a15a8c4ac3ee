"""A nineteenth set: bugs of forty kinds, by someone who had not seen the doctor.

At first sight 35 were told apart; of the 40 twins none was alarmed, and of 20 sound programs two:
one block that is applied three times, and labels of which most are left out.
"""

from tests.debug.faulty.nineteenth import (
    decisions,
    feeding,
    generative,
    loops,
    structures,
    tokens,
)

PARTS = (tokens, generative, decisions, structures, loops, feeding)

MISSED = {
    "gru_reads_padded_end": "zeros behind rows of numbers are not seen to be padding",
    "two_tower_temperature": "what scores can reach is judged for a single cross-entropy only",
    "recall_with_self": "a recall that evaluate() takes from a table of its own is not recomputed",
    "replay_stores_references": "that a state should differ from the one that follows is not known",
    "warmup_integer_division": "a schedule may begin low, and what it divides is not read",
}
"""Programs that are not told apart, and why."""
