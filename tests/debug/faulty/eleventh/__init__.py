"""An eleventh set: bugs of forty kinds, by an author who had not read the doctor.

At first sight 30 were told apart, all with the right class first; of 20 sound programs two were
alarmed: one that scores its teacher too, and one whose evaluate() was wrong indeed, since it gave a
short last batch the weight of a whole one, and is repaired here. Of the 40 twins two were: one that
names a token of its input on purpose, and one that scores by a loss that is drawn at random.
"""

from tests.debug.faulty.eleventh import data, losses, methods, runs, sequences, steps

PARTS = (sequences, data, losses, methods, steps, runs)
