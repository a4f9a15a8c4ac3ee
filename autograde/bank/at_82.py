"""03f.at-82: what to do next with a sound run at 82 % validation accuracy."""

from autograde.kinds import Choice, Option, Reason

EXERCISE = Choice(
    id="03f.at-82", title="82 %, and now?",
    source='Lecture 3, "After training — what next?"', ledger=("X02", "T28"),
    minutes=6, difficulty=1, worth=1, read=("N24", "course.analysis.errors"),
    hints=(
        "Which of the four takes an hour, and tells you whether one of the others can help?",
        "Three of them bet on a cause. What would tell you the cause?",
        "The 18 % are there to be looked at: what do a hundred of them have in common?",
    ),
    question="An image classifier has come through every rung of the debug ladder; its losses have "
    "come to rest, close together. Validation accuracy is 82 % and should be higher. What do you "
    "do first?",
    options=(
        Option("sort", "Look at 100 of its mistakes and sort them by cause.", right=True),
        Option("larger", "Train a model with four times as many parameters.",
               "That bets a long run on one cause, too small a model. If a third of the mistakes "
               "are wrong labels, no model wins them back: look first, it takes an hour."),
        Option("longer", "Train for three times as many epochs.",
               "The losses have come to rest, so more of the same moves them little. And it says "
               "nothing about which images are read wrongly."),
        Option("rate", "Search for a better learning rate.",
               "The ladder was climbed, a rate that trains was found there. A search may give a "
               "point; it does not say where the other 17 are."),
    ),
    reason=Reason(
        points=2, ask="Name two things that the mistakes may show and, for each, the action "
        "that it calls for and the most that it can bring. Three sentences.",
        rubric=(
            (0.5, "Two causes that can be seen in mistakes: blur, a rare class, wrong labels ..."),
            (0.5, "An action for each that acts on this cause and not on the others."),
            (1, "The ceiling: the bucket's share of the mistakes, times the 18 points."),
        ),
        solution="If 30 of 100 mistakes are blurred images, blurred copies in training bring at "
        "most 0.30 times 18, 5.4 points. If 25 carry a wrong label, clean the labels: at most 4.5.",
    ),
)  # fmt: skip
