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
