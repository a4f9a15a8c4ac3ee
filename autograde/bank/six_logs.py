"""03h.six-logs: what six logs say about six runs, before any code is read."""

from autograde.kinds import Choices, Option

EXERCISE = Choices(
    id="03h.six-logs", title="six logs, read before the code",
    source='Training-loop chapter, c5; Lecture 3, "Debug checklist"', ledger=("X45", "T19", "S06"),
    minutes=8, difficulty=2, worth=2, read=("course.debug.signatures.SIGNATURES", "B17", "B22"),
    hints=(
        "First cross out everything that matches the healthy run to the last digit: the bug cannot "
        "be there.",
        "`still` counts tensors that never change; `again` validates the same weights a second "
        "time.",
        "Four of the eight are true, one about each of the runs A, B, C and F.",
    ),
    question="Which of these statements about the six logs above are true? All the bugs are in the "
    "table; 15 % of the labels are wrong, in training and in validation.",
    options=(
        Option("too-good", "Run A: validation examples, or nearly the same ones, are in training "
               "too: an honest model cannot predict wrong labels.",
               "The validation accuracy of A exceeds 85 %, the share of labels that are "
               "right.", right=True),
        Option("not-in-optimizer", "Run B: the optimizer does not hold two of the tensors.",
               "In B, two tensors are the same to the last bit after every epoch.", right=True),
        Option("piles-up", "Run C: each update also uses the gradients of earlier updates.",
               "The norm and the loss of C differ from the healthy run at once, and every tensor "
               "changes.",
               right=True),
        Option("kept", "Run F trains like the healthy run, but what it keeps in memory will end it "
                       "some day.",
               "The losses and norms of F match the healthy run, but its memory grows "
               "steadily.", right=True),
        Option("same-bug", "Run B has the bug of run C, only weaker: both norms grow.",
               "B trains well, but C does not. In B two tensors never change: only their gradients "
               "are never cleared, and nothing uses them."),
        Option("learned-more", "Run A has learned more than the healthy run.",
               "The training loss and gradient norm of A match the healthy run to the last digit, "
               "so it has learned the same. Only the data it is measured on differ."),
        Option("trains-worse", "Run D needs more epochs or a smaller learning rate: its validation "
                               "is worse.",
               "The same weights of D, validated twice, give two different losses. Look at how it "
               "is measured before you change how it trains."),
        Option("no-bug", "Run E has no bug: its curves are the healthy ones.",
               "E has no curve at all: its first step raised an error, and only the healthy run is "
               "drawn."),
    ),
)  # fmt: skip
