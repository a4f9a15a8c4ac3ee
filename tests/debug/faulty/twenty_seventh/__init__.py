"""A twenty-seventh set: bugs of forty kinds, written by someone who had not seen the doctor.

At first sight 37 were told apart, one of them behind what follows from its fault; another was told
by a class that the author had not named and that is true as well. Of the 40 twins one was alarmed,
whose held part does lack a class, which it now says it knows; of the 20 sound programs none.
"""

from tests.debug.faulty.twenty_seventh import data, generative, loops, policies, sequences

PARTS = (loops, policies, generative, sequences, data)

MISSED = {
    "average_that_has_hardly_left": "how long the run is going to be is not seen",
}
"""Programs that are not told apart, and why."""
