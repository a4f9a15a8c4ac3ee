"""A twenty-first set: bugs of forty kinds, by someone who had not seen the doctor.

At first sight 36 were told apart; of the 40 twins none was alarmed, and of 20 sound programs one,
whose dropout stays on in evaluation and draws from a generator of its own.
"""

from tests.debug.faulty.twenty_first import (
    data,
    generative,
    loops,
    losses,
    pictures,
    sequences,
    tables,
)

PARTS = (sequences, tables, pictures, generative, losses, loops, data)

MISSED = {
    "boxes_of_empty_slots": "zeros in a slot may be how a model says that there is no box",
}
"""Programs that are not told apart, and why."""
