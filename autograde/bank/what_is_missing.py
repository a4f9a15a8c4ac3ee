"""03g.missing: what a file with the weights alone lacks."""

from autograde.kinds import Choices, Option, Reason

EXERCISE = Choices(
    id="03g.missing", title="what the weights do not say", minutes=5, difficulty=1, worth=2,
    source="Training-loop chapter, c7, component 1 and its quiz; engineering module, quiz 6",
    ledger=("X20", "X35", "T34", "B27", "F69"), read=("F108", "F69", "B27"), hints=(
        "Write down an update of Adam. Which numbers in it come from earlier updates?",
        "Is it made from scratch in the next update, or does it carry something from earlier ones?",
        "Averages, places, counters and generators carry something. Gradients, activations and "
        "what lies on the disk anyway do not."),
    question="A run under FP16 with Adam, dropout, a cosine schedule, a shuffled loader and early "
    'stopping is saved after epoch 7 as `{"model": model.state_dict(), "epoch": 7}`. What must be '
    "added, so that the resumed run can be the same one?",
    options=(
        Option("moments", "Adam's averages of the gradients and their squares, and its step count",
               "From zero they make another direction, and steps of another length.", right=True),
        Option("schedule", "how far the schedule has come",
               "Or the cosine begins again at the full rate.", right=True),
        Option("scale", "the gradient scaler's scale, and how long it has not overflowed",
               "It begins at 65,536 again: other updates may be skipped.", right=True),
        Option("generators", "the states of the random generators, the loader's own among them",
               "Dropout and the order of the batches are drawn from them.", right=True),
        Option("best", "the best validation loss, and how many epochs it has not been beaten",
               "Or a worse epoch becomes the best, and patience starts at 0.", right=True),
        Option("gradients", "the gradients of the last update",
               "The next update clears them before it makes its own."),
        Option("activations", "the activations that the last forward pass kept",
               "backward() has used them; the next forward pass makes new ones."),
        Option("images", "the training images", "They lie on the disk, and no update changes them. "
               "Their hash belongs into the record."),
    ),
    reason=Reason(points=1, ask="The resumed loss jumps up, then falls again within some tens of "
        "updates. Which of the missing things can do that, and why does it pass?",
        rubric=((0.5, "Adam's averages start from 0"), (0.5, "they fill up again with gradients")),
        solution="Adam's averages begin at 0, so its first steps are about lr long whatever the "
        "gradient. After some tens of gradients they are averages of the present again. A schedule "
        "that began again would not come back by itself."),
)  # fmt: skip
