"""03g.missing: what a file with the weights alone lacks."""

from autograde.kinds import Choices, Option, Reason

EXERCISE = Choices(
    id="03g.missing", title="what the weights do not tell you", minutes=5, difficulty=1, worth=2,
    source="Training-loop chapter, c7, component 1 and its quiz; engineering module, quiz 6",
    ledger=("X20", "X35", "T34", "B27", "F69"), read=("F108", "F69", "B27"), hints=(
        "Write down an update of Adam. Which numbers in it come from earlier updates?",
        "Is each thing computed from scratch in the next update, or does it carry something from "
        "earlier ones?",
        "Averages, positions, counters and generators carry something. Gradients, activations and "
        "whatever is on the disk anyway do not."),
    question="A run under FP16 with Adam, dropout, a cosine schedule, a shuffled loader and early "
    'stopping is saved after epoch 7 as `{"model": model.state_dict(), "epoch": 7}`. What must be '
    "added so that the resumed run can be the same run?",
    options=(
        Option("moments", "Adam's averages of the gradients and their squares, and its step count",
               "Starting from zero, they give steps of a different direction and "
               "length.", right=True),
        Option("schedule", "the position in the schedule",
               "Otherwise the cosine starts again at the full rate.", right=True),
        Option("scale", "the gradient scaler's scale, and the number of steps since the last "
                        "overflow",
               "Otherwise the loss scale starts at 65,536 again, and different updates may "
               "be skipped.", right=True),
        Option("generators", "the states of the random generators, including the loader's own",
               "Dropout and the order of the batches are drawn from them.", right=True),
        Option("best", "the best validation loss, and the number of epochs since it was reached",
               "Otherwise a worse epoch becomes the best, and patience starts at 0.", right=True),
        Option("gradients", "the gradients of the last update, of every parameter",
               "The next update clears them before it computes its own."),
        Option("activations", "the activations that the last forward pass kept",
               "backward() has already used them; the next forward pass makes new ones."),
        Option("images", "the training images and all of their labels",
               "They are on the disk, and no update changes them. Their hash belongs in the "
               "record."),
    ),
    reason=Reason(points=1, ask="The resumed loss is higher for a few dozen updates, then as "
        "low as before. Which of the missing things can cause this, and why does the effect fade?",
        rubric=((0.5, "Adam's averages start from 0"), (0.5, "they fill up again with gradients")),
        solution="Adam's averages start from 0, so its first steps are about lr long whatever the "
        "gradient. After a few dozen gradients they are averages of recent gradients again. A "
        "schedule that had started again would not recover by itself."),
)  # fmt: skip
