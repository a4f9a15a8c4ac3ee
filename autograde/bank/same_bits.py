"""03g.equal: which resumed runs end with the bits of the uninterrupted one."""

from autograde.kinds import Choices, Option

EXERCISE = Choices(
    id="03g.equal", title="the same to the bit, or not",
    source="Training-loop chapter, c7, component 1",
    ledger=("X20", "T34", "F108", "F110", "C12"),
    minutes=6, difficulty=2, worth=3, read=("F108", "F110", "course.analysis.distances_without"),
    hints=(
        "Of each run: what does its next update read that an earlier one has written?",
        "Restored too early is as bad as not restored: what draws between the two moments?",
        "Plain SGD on all examples at once reads weights and a constant rate, nothing else."),
    question="Each run is cut at the end of an epoch, and a new process, with another seed, goes "
    "on from a file. Unless a line says otherwise the run has Adam, dropout, a cosine and a "
    "shuffled loader, and everything is restored just before the first update. Which of them end "
    "in the same bits as the uninterrupted run, on the same machine?",
    options=(
        Option("plain", "Plain SGD at a constant rate, every update on all examples in a fixed "
               "order, no dropout; only the weights are restored.",
               "Its next update reads nothing but the weights.", right=True),
        Option("still", "No dropout, a loader that does not shuffle; all but the generators is "
               "restored.", "Nothing is drawn, so no generator matters.", right=True),
        Option("gradients", "Everything is restored; .grad is None in the new process.",
               "The next update clears .grad before it makes its own.", right=True),
        Option("rate", "Weights, generators and schedule are restored, and the rate is set to the "
               "saved one; Adam is new.",
               "Adam's averages and its step count are missing: its first step is about lr long."),
        Option("early", "The generators are restored first; then the model is built, and all the "
               "rest is loaded into it.",
               "Building the model draws its weights from the generator just restored: dropout "
               "then draws other numbers."),
        Option("again", "The file says `epoch` 3, the last that was finished; the loop goes on at "
               "epoch 3.", "Epoch 3 is trained twice: one epoch too many, or a last one missing."),
        Option("look", "After everything is restored, one batch of the shuffled loader is drawn "
               "and plotted.",
               "Asking the loader for a batch draws an order from its generator: the first real "
               "epoch gets the next one."),
    ),
)  # fmt: skip
