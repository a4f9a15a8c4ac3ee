"""05.one-thing: which comparisons change one thing, so that a difference belongs to it."""

from autograde.kinds import Choices, Option

EXERCISE = Choices(
    id="05.one-thing", title="which ablation changes one thing",
    source='Lecture 3, "Ablation discipline"', ledger=("X09", "T27", "N23"),
    minutes=4, difficulty=2, worth=2, read=("T27", "course.analysis.ablate"),
    hints=(
        "Write both runs as a row each: data, split, settings, seeds, epochs, which epoch counts.",
        "What follows from the setting by itself, such as more parameters, is part of it.",
        "Three of the six rows differ in one column. The others moved the ruler as well.",
    ),
    question="Each is to show what one change of the project brings. Which of them change one "
    "thing, so that a difference belongs to it?",
    options=(
        Option("rate", "Learning rate 0.003 instead of 0.01. Same split, same six seeds, ten "
               "epochs each, the last one counts.",
               "One column differs: the rate.", right=True),
        Option("wider", "128 hidden units instead of 64, all else the same. It has twice the "
               "weights and takes longer per epoch.",
               "Weights and time follow from the width. One setting was changed.", right=True),
        Option("normalise", "Inputs left at 0 to 1 instead of centred, on the same split; every "
               "setting and seed as before.",
               "The images on both sides are the same ones: one step of the preparation differs.",
               right=True),
        Option("longer", "Shifted training images, and 20 epochs instead of 10, since there is "
               "more to learn from now.",
               "Two things: the shifts and the epochs. What do 20 epochs bring without shifts? "
               "That run is missing."),
        Option("split", "Dropout of 0.3. The loader was rewritten for it, so the split was drawn "
               "again with another seed.",
               "Another split is another ruler. Both runs are to be validated on the same images."),
        Option("best", "Weight decay of 0.1. The baseline counts at its last epoch, the variant at "
               "its best one, as it starts to overfit later.",
               "The best of ten epochs is higher than the last by luck alone. One rule for both, "
               "chosen before."),
    ),
)  # fmt: skip
