"""A twenty-third set: bugs of forty kinds, written by someone who had not seen the doctor.

At first sight 30 were told apart; of the 40 twins one was alarmed, whose state goes on from batch
to batch of a stream, and of 20 sound programs none.
"""

from tests.debug.faulty.twenty_third import data, generative, loops, sequences

PARTS = (sequences, generative, loops, data)

MISSED = {
    "padding_idx_on_real_item": "an id for `none`, which never learns, comes alone in its row, too",
}
"""Programs that are not told apart, and why."""
