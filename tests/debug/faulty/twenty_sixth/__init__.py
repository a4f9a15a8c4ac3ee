"""A twenty-sixth set: bugs of forty kinds, written by someone who had not seen the doctor.

At first sight 35 were told apart, each by a class that the author had named; of the 40 twins none
was alarmed, of the 20 sound programs one.
"""

from tests.debug.faulty.twenty_sixth import data, generative, loops, sequences

PARTS = (loops, generative, sequences, data)
