"""A twenty-fifth set: bugs of forty kinds, written by someone who had not seen the doctor.

At first sight 32 were told apart, each by a class that the author had named, and two more by
another that is true as well; of the 40 twins one was alarmed, of the 20 sound programs one.
"""

from tests.debug.faulty.twenty_fifth import data, generative, loops, sequences

PARTS = (loops, generative, sequences, data)

MISSED = {
    "point_told_in_place_of_the_noise": "only what evaluate() does with the outputs tells what "
    "they should be",
}
"""Programs that are not told apart, and why."""
