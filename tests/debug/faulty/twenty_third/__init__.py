"""A twenty-third set: bugs of forty kinds, written by someone who had not seen the doctor.

At first sight 30 were told apart; of the 40 twins one was alarmed, whose state goes on from batch
to batch of a stream, and of 20 sound programs none.
"""

from tests.debug.faulty.twenty_third import data, generative, loops, sequences

PARTS = (sequences, generative, loops, data)

MISSED = {
    "eos_masked_with_pad": "a token that is never a target may be meant, as a start sign is",
    "carried_state_shuffled": "a state that goes on may be meant, as over windows of a stream",
    "gan_wrong_params": "parameters that no optimizer holds may be held back on purpose",
    "wgan_clip_noop": "clipped copies of weights may be meant, as where a model uses them",
    "replay_aliased_state": "a state and the next may be the same, as where an action does nothing",
    "simsiam_no_detach": "a loss may well reach both branches, as where views are contrasted",
    "normalize_dim0": "a loss over rows may well depend on the others of the batch",
    "accumulate_token_means": "micro-batches may be meant to count the same, whatever their size",
    "getitem_reseeds_torch": "that items set back the generator is not seen to reach the step",
    "padding_idx_on_real_item": "a row of an embedding that never learns may be for padding",
}
"""Programs that are not told apart, and why."""
