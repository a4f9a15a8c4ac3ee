"""03h.six-logs: what six logs say about six runs, before any code is read."""

from autograde.kinds import Choices, Option

EXERCISE = Choices(
    id="03h.six-logs", title="six logs, read before the code",
    source='Training-loop chapter, c5; Lecture 3, "Debug checklist"', ledger=("X45", "T19", "S06"),
    minutes=8, difficulty=2, worth=2, read=("course.debug.signatures.SIGNATURES", "B17", "B22"),
    hints=(
        "First cross out what is the healthy run's to the last digit: there the bug cannot be.",
        "`still` counts tensors that never move, `again` asks the same weights a second time.",
        "Four of the eight are true: one about each of the runs A, B, C and F.",
    ),
    question="Which of these statements about the six logs above are true? The bugs are among "
    "those of the table; 15 % of the labels are wrong in training and in validation.",
    options=(
        Option("too-good", "Run A: validation is told what training is, or nearly: an honest "
               "model cannot predict wrong labels.",
               "The accuracy of A passes 85 %, the share of labels that are right.", right=True),
        Option("not-in-optimizer", "Run B: the optimizer does not hold two of the tensors.",
               "Two tensors of B are the same to the last bit after every epoch.", right=True),
        Option("piles-up", "Run C: each update uses gradients of the updates before it, too.",
               "Norm and loss of C leave the healthy ones at once, and no tensor is still.",
               right=True),
        Option("kept", "Run F trains as the healthy run does; what it keeps will end it some day.",
               "Losses and norms of F are the healthy ones, its memory grows evenly.", right=True),
        Option("same-bug", "Run B has the bug of run C, only weaker: both norms grow.",
               "B trains well, and C does not. Of B two tensors never move: their gradient alone "
               "is never cleared, and nobody uses it."),
        Option("learned-more", "Run A has learned more than the healthy run.",
               "Training loss and gradient norm of A are the healthy run's, to the last digit: it "
               "has learned the same. What it is measured with differs."),
        Option("trains-worse", "Run D needs more epochs or a smaller rate: it validates worse.",
               "Asked twice, the same weights of D give two losses. Look at how it is measured "
               "before you change how it trains."),
        Option("no-bug", "Run E has no bug: its curves are the healthy ones.",
               "E has no curve at all: its first step raised, and only the healthy run is drawn."),
    ),
)  # fmt: skip
