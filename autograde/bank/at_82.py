"""03f.at-82: what to do next with a sound run at 82 % validation accuracy."""

from autograde.kinds import Choice, Option, Reason

EXERCISE = Choice(
    id="03f.at-82", title="82 %: what now?",
    source='Lecture 3, "After training — what next?"', ledger=("X02", "T28"),
    minutes=6, difficulty=1, worth=1, read=("N24", "course.analysis.errors"),
    hints=(
        "Which of the four takes only an hour, and tells you whether one of the others can help?",
        "Three of them bet on a cause. What would tell you the cause?",
        "You can look at the 18 %: what do a hundred of them have in common?",
    ),
    question="An image classifier has passed every rung of the debug ladder, and its training and "
    "validation losses have levelled off close together. Validation accuracy is 82 % and should be "
    "higher. What do you do first?",
    options=(
        Option("sort", "Look at 100 of its mistakes and sort them by cause.", right=True),
        Option("larger", "Train a larger model, with four times as many parameters.",
               "That bets a long run on one cause: too small a model. If a third of the mistakes "
               "are wrong labels, no model can win those back. Look first; it takes an hour."),
        Option("longer", "Train the same model for three times as many epochs.",
               "The losses have levelled off, so more epochs will change them little. And they say "
               "nothing about which images are misread."),
        Option("rate", "Search for a better learning rate, by short runs.",
               "The model has climbed the ladder, so a rate that trains has been found. A search "
               "may gain a point, but it does not say where the other 17 points are."),
    ),
    reason=Reason(
        points=2, ask="Name two causes that the mistakes may reveal and, for each, the action that "
        "it calls for and the most that it can gain. Three sentences.",
        rubric=(
            (0.5, "Two causes that can be seen in mistakes: blur, a rare class, wrong labels ..."),
            (0.5, "For each, an action that works on this cause and not on the others."),
            (1, "The ceiling: the bucket's share of the mistakes, times the 18 points."),
        ),
        solution="If 30 of 100 mistakes are blurred images, blurred copies in training gain at "
        "most 0.30 times 18, that is, 5.4 points. If 25 carry a wrong label, clean the labels: at "
        "most 4.5.",
    ),
)  # fmt: skip
