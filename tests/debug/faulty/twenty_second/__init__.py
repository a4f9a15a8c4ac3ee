"""A twenty-second set: bugs of forty kinds, by someone who had not seen the doctor.

At first sight 32 were told apart; of the 40 twins one was alarmed, which scores the last place of
a prefix, and of 20 sound programs two: one whose batch is a list of micro-batches, and one whose
batches are sorted by class.
"""

from tests.debug.faulty.twenty_second import (
    embeddings,
    generative,
    loops,
    losses,
    pictures,
    sequences,
    tables,
)

PARTS = (sequences, generative, embeddings, loops, losses, pictures, tables)
