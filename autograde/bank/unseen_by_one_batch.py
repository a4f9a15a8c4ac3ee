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
        "Four of the bugs pass the probe. Three of them are in code that it never runs, and one "
        "has a curve above.",
    ),
    question="A loop has one of these bugs and is healthy otherwise. With which bugs does the "
    "training loss of one batch still fall to nearly 0 in 200 updates, as in the cells above?",
    options=(
        Option("leak", "Training images are in validation too.",
               "This probe does not look at validation.", right=True),
        Option("train-mode", "Validation runs in train mode.",
               "Validation does not run while one batch is memorised.", right=True),
        Option("raw", "Inputs are 255 times too large.",
               "In the curves above, the loss with raw inputs jumps for some updates, then reaches "
               "0.", right=True),
        Option("alias", "The best weights are kept with `best = model.state_dict()`.",
               "What is kept does not affect the training loss.", right=True),
        Option("twice", "There is a softmax before the cross-entropy.",
               "The second softmax bounds the loss from below: in the curves above it is still at "
               "0.63 after 200 updates, and it can never fall below 0.55."),
        Option("labels", "The labels are shuffled again for every step.",
               "There is nothing left to memorise: in the curves above the loss stays at ln 3, "
               "with noise."),
        Option("dead", "There is a bias of -100 before each ReLU.",
               "No unit is ever active, so the outputs do not depend on the inputs: the loss stays "
               "at ln 3."),
        Option("tiny", "The learning rate is 1e-5 instead of 0.05.",
               "200 updates at that rate hardly move a weight: in the curves above the loss falls "
               "by less than 0.01."),
    ),
)  # fmt: skip
