"""A twentieth set: bugs of forty kinds, by someone who had not seen the doctor.

At first sight 30 were told apart; of the 40 twins two were alarmed, one that has a few of its held
rows among those to train on, and one whose recall rises when the loss does; of 20 sound programs
none was.
"""

from tests.debug.faulty.twentieth import (
    decisions,
    embeddings,
    generative,
    loops,
    pictures,
    tables,
    tokens,
)

PARTS = (tokens, pictures, generative, embeddings, decisions, tables, loops)
