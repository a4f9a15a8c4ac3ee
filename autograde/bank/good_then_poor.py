"""03e.good-then-poor: 95 % on validation, 70 % in production, and what was measured since."""

from autograde.kinds import Choice, Option, Reason

EXERCISE = Choice(
    id="03e.good-then-poor", title="95 % on validation, 70 % in production",
    source="Training-loop chapter, c5, quiz", ledger=("X34", "T24", "F99"),
    minutes=6, difficulty=2, worth=1, read=("course.analysis.shift", "F99"),
    hints=("Each figure rules out one kind of shift. Which?",
           "Inputs alike, shares alike, labels mean the same: what is left?",
           "If nothing has changed since validation, the 95 % were never true."),
    question="A model is right on 95 % of validation and on 70 % of 2,000 labelled examples of "
    "production. A classifier that tries to tell the inputs of the two apart has an AUC of 0.50, "
    "within each class as well. The classes have the same shares. Annotators who see both mixed "
    "label them as they were labelled. What is the likeliest cause?",
    options=(
        Option("leakage", "Validation was not apart from training.", right=True),
        Option("covariate", "Covariate shift: production inputs look different.",
               "An AUC of 0.50: nobody can tell the inputs apart. Under a covariate shift the "
               "classifier would succeed."),
        Option("label-shift", "Label shift: some classes are more frequent in production.",
               "The classes have the same shares on both sides; a label shift changes these."),
        Option("concept", "Concept shift: a label has come to mean something else.",
               "Annotators who see both mixed agree with both sets of labels."),
        Option("chance", "Bad luck: 2,000 examples are a small sample.",
               "With 2,000 examples the 95 % interval reaches about 2 points to each side of "
               "70 %. Chance does not take 25."),
    ),
    reason=Reason(
        points=2, ask="Name two leaks that fit all the figures, and for each a check that would "
        "find it. Three or four sentences.",
        rubric=((1, "Two leaks that leave inputs and labels alike, e.g. one patient on both "
                 "sides, near copies, features chosen by all labels."),
                (1, "A check for each that would come out differently without the leak.")),
        solution="The same patients could be on both sides: count the patients that both hold, "
        "split by patient, score again. Features could have been chosen by all labels: choose "
        "them by the training part alone and score again. A leak shows in that validation falls.",
    ),
)  # fmt: skip
