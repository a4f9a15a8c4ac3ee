"""A sixth set: bugs of forty kinds, by an author who had not read the doctor.

At first sight 25 were told apart, 23 by an alarm and two by a note, each with the right class
first; of 20 sound programs none was alarmed, and of the 40 twins four were, three of them because
evaluate() scored all examples in one call.
"""

from tests.debug.faulty.sixth import data, losses, models, runs, steps

PARTS = (data, models, losses, steps, runs)
