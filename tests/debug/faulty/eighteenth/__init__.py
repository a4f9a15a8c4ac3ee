"""An eighteenth set: bugs of forty kinds, by someone who had not seen the doctor.

At first sight 35 were told apart; of 20 sound programs none was alarmed, and of the 40 twins one,
whose save() keeps the best weights alone, to be put back at the end.
"""

from tests.debug.faulty.eighteenth import (
    decisions,
    feeding,
    forecasts,
    generative,
    loops,
    pictures,
    structures,
    tokens,
)

PARTS = (tokens, forecasts, pictures, generative, decisions, structures, loops, feeding)

MISSED = {
    "rnn_detach_inside": "the last step depends on the early inputs; that their gradient is cut is "
    "not compared with that",
    "siamese_label_convention": "which label says that two rows belong together is not known",
    "simsiam_no_stopgrad": "a gradient on both sides may be meant, as where another term keeps the "
    "rows apart",
    "dqn_terminal": "a part of the batch that nobody reads may be an id",
    "best_weights_kept_by_reference": "told, but its twin is alarmed: weights for the end are "
    "taken for a checkpoint to resume from",
}
"""Programs that are not told apart, and why."""
