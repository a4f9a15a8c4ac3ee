"""03e.good-then-poor: 95 % on validation, 70 % in production, and what was measured since."""

from autograde.kinds import Choice, Option, Reason

EXERCISE = Choice(
    id="03e.good-then-poor", title="95 % on validation, 70 % in production",
    source="Training-loop chapter, c5, quiz", ledger=("X34", "T24", "F99"),
    minutes=6, difficulty=2, worth=1, read=("course.analysis.shift", "F99"),
    hints=("Each figure rules out one kind of shift. Which?",
           "If the inputs, the shares and the meaning of the labels are all unchanged, what is "
           "left?",
           "If nothing has changed since validation, the 95 % was never true."),
    question="A model is right on 95 % of validation but on only 70 % of 2,000 labelled production "
    "examples. A classifier trained to tell the two sets of inputs apart has an AUC of 0.50, and "
    "the same within each class. The classes have the same shares on both sides. Annotators who "
    "see both sets mixed agree with the existing labels. What is the most likely cause?",
    options=(
        Option("leakage", "Leakage: validation was not separate from training.", right=True),
        Option("covariate", "Covariate shift: production inputs look different.",
               "An AUC of 0.50 means that the inputs cannot be told apart. Under a covariate shift "
               "the classifier would succeed."),
        Option("label-shift", "Label shift: some classes are more common in production.",
               "The classes have the same shares on both sides; a label shift would change them."),
        Option("concept", "Concept shift: a label has come to mean something else.",
               "Annotators who see both mixed agree with both sets of labels."),
        Option("chance", "Bad luck: 2,000 examples are a small sample.",
               "With 2,000 examples the 95 % interval extends about 2 points to each side of 70 %. "
               "Chance does not explain 25 points."),
    ),
    reason=Reason(
        points=2, ask="Name two leaks that fit all the figures, and for each of them a check that "
        "would find it. Write three or four sentences.",
        rubric=((1, "Two leaks that leave the distributions of inputs and labels unchanged, e.g. "
                 "one patient on both sides, near copies, features chosen with all labels."),
                (1, "For each, a check that would come out differently without the leak.")),
        solution="The same patients could be on both sides: count the patients that occur in both, "
        "split by patient and score again. Features could have been chosen with all labels: choose "
        "them on the training part alone and score again. If the validation score falls, there was "
        "a leak.",
    ),
)  # fmt: skip
