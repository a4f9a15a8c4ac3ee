"""A fourteenth set: bugs of forty kinds, by an author who had not seen the doctor.

At first sight 21 were told apart, all with the right class first; of 20 sound programs two were
alarmed, one that adapts a copy of its model to each task it is scored on and one that estimates
its gradients without a backward pass, and of the 40 twins one, whose decoder is given the targets
up to each place.
"""

from tests.debug.faulty.fourteenth import (
    embeddings,
    games,
    generative,
    loops,
    parts,
    tables,
    tokens,
    vision,
)

PARTS = (tokens, vision, generative, embeddings, games, tables, loops, parts)
