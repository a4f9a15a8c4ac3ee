"""A twelfth set: bugs of forty kinds, by an author who had not read the doctor.

At first sight 26 were told apart, all with the right class first, and 11 were missed; of 20 sound
programs none was alarmed. Of the 40 twins four were: one that keeps the average of its weights
inside the model, and three, whose faults were named first, too, with an evaluate() that was wrong
indeed, since it gave a short last batch the weight of a whole one, and is repaired here.
"""

from tests.debug.faulty.twelfth import embeddings, games, outputs, runs, steps, tokens

PARTS = (tokens, outputs, embeddings, games, steps, runs)
