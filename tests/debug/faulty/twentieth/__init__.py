"""A twentieth set: bugs of forty kinds, by someone who had not seen the doctor.

At first sight 30 were told apart; of the 40 twins two were alarmed, one that has a few of its held
rows among those to train on, and one whose recall rises when the loss does; of 20 sound programs
none was.
"""

from tests.debug.faulty.twentieth import (
    decisions,
    embeddings,
    generative,
    loops,
    pictures,
    tables,
    tokens,
)

PARTS = (tokens, pictures, generative, embeddings, decisions, tables, loops)

MISSED = {
    "dice_softmax_over_batch": "a dice of the whole batch mixes its rows on purpose, too",
    "det_box_loss_on_background": "no box of an untrained detector overlaps, so no score moves",
    "det_iou_wrong_format": "only outputs that are one box for each row are scored anew",
    "denoiser_gives_back_noise": "only noise that is written into the batch is sought in targets",
    "gan_generator_detached": "the loss hardly moves with one weight of an untrained generator",
    "simclr_augments_once": "views that the step makes are not compared, only those of a batch",
    "reinforce_forward_returns": "what rewards credit is asked only where a batch holds actions",
    "eval_counts_in_bf16": "the hits of an untrained model are few, and so are those that are lost",
}
"""Programs that are not told apart, and why."""
