"""A seventeenth set: bugs of forty kinds, by someone who had not seen the doctor.

At first sight 30 were told apart; of 20 sound programs one was alarmed, scored by the mean of many
passes with dropout, and of the 40 twins one, whose frozen part serves the old task too.
"""

from tests.debug.faulty.seventeenth import (
    decisions,
    dense,
    generative,
    loops,
    runs,
    structures,
    tokens,
)

PARTS = (tokens, dense, generative, decisions, structures, loops, runs)

MISSED = {
    "encoder_not_batch_first": "rows are told apart in batches of inputs and targets only",
    "mlm_labels_masked_too": "a target that is the same wherever it is asked is not looked for",
    "box_loss_on_background": "which cells have an object is not seen to weigh another term",
    "returns_cross_episodes": "the step's own sums over time are not read",
    "dqn_target_is_alias": "a network under two names may be meant, as with tied weights",
    "negatives_from_user_range": "the range that a step draws from is not compared with a table's",
    "frozen_backbone_bn_moves": "told, but its twin is alarmed: its score of the old task is taken "
    "for one of the new",
    "accumulation_cleared_each_micro": "what is cleared unused is not seen between these parts",
    "bf16_counter_saturates": "in which precision a score is counted is not looked at",
    "mixup_labels_other_permutation": "the order that a step draws is not compared with the rows",
}
"""Programs that are not told apart, and why."""
