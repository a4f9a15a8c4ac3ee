"""03a.what-next: what to do first about a loss that stays flat."""

from autograde.kinds import Choice, Option, Reason

EXERCISE = Choice(
    id="03a.what-next", title="a loss that stays flat",
    source='Lecture 3, pop quiz', ledger=("X01", "T21", "T22"),
    minutes=4, difficulty=1, worth=1, read=("T21", "course.debug.climb"),
    hints=(
        "Which of the four tells you something, whatever its outcome?",
        "Three of them change the run and hope. One tests whether it can learn at all.",
        "A loop without a bug drives the loss of four examples to nearly 0. Does yours?",
    ),
    question="A new model on your own data: for 100 updates the loss has not moved from "
    "ln(classes). What do you do first?",
    options=(
        Option("overfit", "Train on four examples until their loss is nearly 0.", right=True),
        Option("lower-rate", "Divide the learning rate by ten and start the run again.",
               "A rate that is far too large makes the loss jump or turn nan. A flat loss can just "
               "as well mean a rate that is too small, or a bug that no rate can fix: look before "
               "you turn a knob."),
        Option("adamw", "Change the optimizer from SGD to AdamW.",
               "If no gradient reaches the weights, AdamW does not make them learn either. First "
               "find out whether the loop can learn at all."),
        Option("deeper", "Make the model deeper, by two hidden layers, say.",
               "A model that is too small still learns something: its loss falls, then stops. One "
               "that never leaves ln(classes) points to a bug, which more layers only hide."),
    ),
    reason=Reason(
        points=1, ask="What do you know if it works, and what if it does not? Two sentences.",
        rubric=(
            (0.5, "It works: loop, loss and gradient are wired correctly; look at data, rate, "
                  "size."),
            (0.5, "It does not: the loop has a bug, and no setting will help."),
        ),
        solution="If four examples are learned, model, loss, backward and step work together, and "
        "the fault lies in the data, the rate or the size. If not, the loop itself is broken, and "
        "no other setting can help.",
    ),
)  # fmt: skip
