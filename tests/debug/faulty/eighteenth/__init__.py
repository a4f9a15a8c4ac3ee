"""An eighteenth set: bugs of forty kinds, by someone who had not seen the doctor.

At first sight 35 were told apart; of 20 sound programs none was alarmed, and of the 40 twins one,
whose save() keeps the best weights alone, to be put back at the end.
"""

from tests.debug.faulty.eighteenth import (
    decisions,
    feeding,
    forecasts,
    generative,
    loops,
    pictures,
    structures,
    tokens,
)

PARTS = (tokens, forecasts, pictures, generative, decisions, structures, loops, feeding)
