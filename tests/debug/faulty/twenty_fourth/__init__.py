"""A twenty-fourth set: bugs of forty kinds, written by someone who had not seen the doctor.

At first sight 39 were told apart, each by its class; of the 40 twins and 20 sound programs none was
alarmed.
"""

from tests.debug.faulty.twenty_fourth import data, generative, loops, sequences

PARTS = (sequences, generative, loops, data)

MISSED = {
    "simclr_views_interleaved": "which rows show one example is not seen once views are flattened",
}
"""Programs that are not told apart, and why."""
