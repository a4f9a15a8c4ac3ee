"""A fourth set: bugs of thirty kinds, by another author who had read neither the doctor nor the
other sets. How the first look went, bench/diagnose says."""

from tests.debug.faulty.fourth import data, loops, losses, models, runs

PARTS = (data, models, losses, loops, runs)
MISSED = {
    "mixup_swapped": "a mixture has two labels; which of them gets lam, the author knows",
    "padding_mask_inverted": "a batch whose padding is changed makes the step raise",
    "poisson_exp_twice": "the loss of an output is no distance that is 0 at its target",
    "ordinal_off_by_one": "the targets of single thresholds are made inside the loss",
    "cox_unsorted": "a loss may depend on the order of its rows, as one of neighbors in time does",
    "focal_of_mean": "a loss may weigh a batch as a whole",
    "ctc_raw_scores": "of torch's losses that take log-probabilities, ctc_loss is not watched",
    "labels_shifted_twice": "a forecast of two tokens ahead is a task too",
    "advantage_broadcast": "the values broadcast inside a loss written by hand",
    "clip_list_spent": "the first clip gets the parameters, and the others cut nothing",
    "gan_not_detached": "which part of a loss may move which network, the author knows",
    "plateau_wrong_way": "too few epochs are watched for the rate to be cut",
    "ema_left_in": "before the first step the average is the model itself",
    "perplexity_counts_padding": "the metric of sequences is not computed again",
}
"""Pairs that are not told apart, and why."""
