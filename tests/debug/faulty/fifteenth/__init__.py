"""A fifteenth set: bugs of forty kinds, by an author who had not seen the doctor.

At first sight 30 were told apart, all with the right class first; of 20 sound programs two were
alarmed, one that follows an average of its own encoder and one whose two optimizers take turns, and
of the 40 twins two: one whose graph is scored on other nodes than it is trained on, and one whose
validation part really lacks a class.
"""

from tests.debug.faulty.fifteenth import (
    classes,
    generative,
    loops,
    sequences,
    tables,
    tokens,
    vision,
)

PARTS = (tokens, vision, generative, sequences, tables, loops, classes)

MISSED = {
    "pad_is_eos": "a token that is never a target may be meant, as a start sign is",
    "yolo_boxes": "four numbers of a box do not say whether they are corners or centre and size",
    "vae_collapse": "a weight of the divergence far above the reconstruction's may be meant",
    "pad_item": "the ids do not say whether 0 is padding or the first item",
    "tie_rank": "how a hit rate counts ties is not computed anew, and rounded scores may be meant",
    "triplet_args": "only the names of the batch's parts say which two rows are alike",
    "value_counts": "weights of classes may be meant to follow something else than their counts",
    "refit_labels": "told, but its twin's validation part lacks a class, which is told as well",
    "f1_batches": "an F1 averaged over batches is not told from another average of F1",
}
"""Programs that are not told apart, and why."""
