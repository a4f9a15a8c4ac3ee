"""A thirteenth set: bugs of forty kinds, by an author who had not read the doctor.

At first sight 30 were told apart, 29 with the right class first; of 20 sound programs two were
alarmed, one whose sorted labels end in the last class and one whose schedule's step was taken as a
function, and of the 40 twins three: one that draws noise for each batch it is scored on, one whose
loss learns a factor, and one that unfreezes its body during the run.
"""

from tests.debug.faulty.thirteenth import generative, loops, rl_series, tokens, vision

PARTS = (tokens, generative, rl_series, vision, loops)

MISSED = {
    "reinforce_returns": "the step's own sums over time are not read",
}
"""Programs that are not told apart, and why."""
