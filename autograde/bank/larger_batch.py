"""04a.larger-batch: what eight times the batch does at the same learning rate."""

from autograde.kinds import Choice, Option, Reason

EXERCISE = Choice(
    id="04a.larger-batch", title="from a batch of 32 to 256",
    source='Lecture 3, "Practice problems", P1', ledger=("X03", "N50", "F33", "F146"),
    minutes=6, difficulty=2, worth=1, read=("F33", "F146", "N50"),
    hints=(
        "What does a mean over 256 examples have in common with a mean over 32?",
        "The gradient of a mean has the same size, with less noise. How many steps does an epoch "
        "have?",
        "Same rate, same size of gradient, an eighth of the updates: how far does an epoch get?",
    ),
    question="Plain SGD, a criterion that averages over the batch, a rate at which batches of 32 "
             "train well. You change to batches of 256 and leave the rate and the number of "
             "epochs as they are. What do you expect of the training loss?",
    options=(
        Option("slower", "After the same number of epochs it is higher: training is "
                         "slower.", right=True),
        Option("diverges", "It diverges: the gradient is eight times as long.",
               "That is true for a criterion that sums. A mean over 256 examples is no larger "
               "than one over 32, only less noisy."),
        Option("same", "It is the same: the same number of epochs shows the same number of "
                       "examples.",
               "It is the same number of examples, but an eighth of the updates, each about as "
               "long as before."),
        Option("faster", "It is lower: the gradient is more exact.",
               "Less noise does not make up for an eighth of the updates at a rate that was chosen "
               "for noisy ones."),
    ),
    reason=Reason(
        points=2, ask="Give the new rate's factor by the linear and by the root rule. Say why the "
                      "linear rule multiplies by that factor, and when it fails.",
        rubric=(
            (0.5, "Linear rule, times 8; square-root rule, times 2.83."),
            (1, "An eighth of the updates, so each has to go eight times as far per epoch."),
            (0.5, "It fails where eight times the rate is no longer stable; warm-up helps."),
        ),
        solution="Linear rule: 8 times the rate; root rule: √8 = 2.83 times. An epoch has an "
        "eighth of the updates, and each follows a mean of the same size, so it must go eight "
        "times as far to get as far per epoch. It fails where that rate is unstable.",
    ),
)  # fmt: skip
