"""A ninth set: bugs of forty kinds, by an author who had not read the doctor.

At first sight 32 were told apart, 29 with the right class first; of 20 sound programs none was
alarmed, and of the 40 twins one was, whose spectra go through one array that is filled again.
"""

from tests.debug.faulty.ninth import data, losses, models, runs, steps

PARTS = (data, losses, models, steps, runs)
