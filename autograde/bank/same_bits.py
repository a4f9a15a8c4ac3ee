"""03g.equal: which resumed runs end with the bits of the uninterrupted one."""

from autograde.kinds import Choices, Option

EXERCISE = Choices(
    id="03g.equal", title="the same to the bit, or not",
    source="Training-loop chapter, c7, component 1",
    ledger=("X20", "T34", "F108", "F110", "C12"),
    minutes=6, difficulty=2, worth=3, read=("F108", "F110", "course.analysis.distances_without"),
    hints=(
        "For each run: what does its next update read that an earlier one has written?",
        "Restoring too early is as bad as not restoring: what draws numbers between that moment "
        "and the first update?",
        "Plain SGD on all examples at once reads weights and a constant rate, nothing else."),
    question="Each run is cut at the end of an epoch, and a new process, with another seed, "
    "continues from a file. Unless a line says otherwise, the run has Adam, dropout, a cosine "
    "schedule and a shuffled loader, and everything is restored just before the first update. On "
    "the same machine, which of the runs end with the same bits as the uninterrupted run?",
    options=(
        Option("plain", "Plain SGD at a constant rate, every update on all examples in a fixed "
               "order, no dropout; only the weights are restored.",
               "Its next update reads nothing but the weights.", right=True),
        Option("still", "No dropout, a loader that does not shuffle; everything but the generators "
               "is restored.", "Nothing is drawn, so no generator matters.", right=True),
        Option("gradients", "Everything is restored; .grad is None in the new process.",
               "The next update clears .grad before it computes its own gradients.", right=True),
        Option("rate", "Weights, generators and schedule are restored, and the learning rate is "
               "set to the saved one; Adam is new.",
               "Adam's averages and its step count are missing: its first step has a length of "
               "about lr for each weight."),
        Option("early", "The generators are restored first; then the model is built, and "
               "everything else is loaded.",
               "Building the model draws its weights from the generator that was just restored, so "
               "dropout then draws different numbers."),
        Option("again", "The file says `epoch` 3, the last finished epoch; the loop continues with "
               "epoch 3.", "Epoch 3 is trained twice: one epoch too many, or a last one missing."),
        Option("look", "After everything is restored, one batch of the shuffled loader is drawn "
               "and plotted.",
               "Asking the loader for a batch draws an order from its generator, so the first real "
               "epoch gets the next order."),
    ),
)  # fmt: skip
