"""A twenty-first set: bugs of forty kinds, by someone who had not seen the doctor.

At first sight 36 were told apart; of the 40 twins none was alarmed, and of 20 sound programs one,
whose dropout stays on in evaluation and draws from a generator of its own.
"""

from tests.debug.faulty.twenty_first import (
    data,
    generative,
    loops,
    losses,
    pictures,
    sequences,
    tables,
)

PARTS = (sequences, tables, pictures, generative, losses, loops, data)

MISSED = {
    "tags_of_padding_counted": "label 0 at the padding is a tag that words have as well",
    "bpr_subtracts_the_wrong_way": "which item of two should score higher is not seen in numbers",
    "boxes_of_empty_slots": "which slots hold a box is not seen to weigh the term of the loss",
    "triplets_of_any_class": "the labels beside the triplets are not held against their roles",
}
"""Programs that are not told apart, and why."""
