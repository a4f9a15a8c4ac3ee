"""A seventh set: bugs of forty kinds, by an author who had not read the doctor.

At first sight 23 were told apart, 22 with the right class first; of 20 sound programs none was
alarmed, and of the 40 twins one was, whose gradient is set by hand.
"""

from tests.debug.faulty.seventh import data, losses, models, runs, steps

PARTS = (data, losses, models, steps, runs)
