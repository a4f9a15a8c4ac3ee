"""03h.unseen: which bugs the one-batch probe lets pass."""

from autograde.kinds import Choices, Option

EXERCISE = Choices(
    id="03h.unseen", title="what one batch cannot see",
    source='Engineering module, §5 and quiz 8; Lecture 3, "Rung 3 · overfit one batch"',
    ledger=("X22", "S17", "N62"),
    minutes=5, difficulty=2, worth=2, read=("N62", "F78", "B21", "B39"),
    hints=(
        "The probe trains on one batch and looks at its training loss. What does it never touch?",
        "Validation, saving, and the order of the batches are not part of it.",
        "Four pass it. Three of them are never run, and one is in a curve above.",
    ),
    question="A loop has one of these bugs, all else is healthy. With which of them does the "
    "training loss of one batch still come down to nearly 0 in 200 updates, as in the cells above?",
    options=(
        Option("leak", "Training images stand in validation, too.",
               "Validation is not looked at by this probe.", right=True),
        Option("train-mode", "Validation runs in train mode.",
               "No validation is run while one batch is memorised.", right=True),
        Option("raw", "Inputs are 255 times too large.",
               "In the curves above raw inputs jump for some updates, then reach 0.", right=True),
        Option("alias", "The best weights are kept by `best = model.state_dict()`.",
               "What is kept has no influence on the training loss.", right=True),
        Option("twice", "A softmax stands before the cross-entropy.",
               "The second softmax bounds the loss from below: above it levels off at 0.55."),
        Option("labels", "Labels are drawn in another order for every step.",
               "There is nothing left to memorise: above the loss stays at ln 3, with noise."),
        Option("dead", "A bias of -100 stands below each ReLU.",
               "No unit opens, so the outputs do not depend on the inputs: the loss stays at "
               "ln 3."),
        Option("tiny", "The rate is 1e-5 instead of 0.05.",
               "200 updates at that rate hardly move a weight: above the loss falls by 0.01."),
    ),
)  # fmt: skip
