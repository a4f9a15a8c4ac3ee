"""Slips in formulas: programs that run and learn, by another rule than the method's."""

from tests.debug.faulty.formulas import losses, methods, scores

PARTS = (losses, methods, scores)
MISSED = {
    "triplet_sides_exchanged": "which pair is meant to be near is known to the author alone",
    "risk_set_in_the_wrong_order": "a score may stand for a risk or for a time",
    "censored_taken_for_events": "a flag may stand for what happened, or for what did not",
    "returns_from_the_start": "the step's own sums over time are not read",
    "argmax_in_the_loss": "hard answers that are alike cost nothing to be seen",
    "penalised_twice": "two small penalties may be meant",
}
"""Programs that are not told apart, and why."""
