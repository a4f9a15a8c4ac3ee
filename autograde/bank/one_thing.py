"""05.one-thing: which comparisons change one thing, so that a difference belongs to it."""

from autograde.kinds import Choices, Option

EXERCISE = Choices(
    id="05.one-thing", title="which ablations change one thing",
    source='Lecture 3, "Ablation discipline"', ledger=("X09", "T27", "N23"),
    minutes=4, difficulty=2, worth=2, read=("T27", "course.analysis.ablate"),
    hints=(
        "Write each run as a row: data, split, settings, seeds, epochs, which epoch counts.",
        "Whatever follows from the setting by itself, such as more parameters, is part of it.",
        "Three of the six plans differ in one column. The others also change how the result is "
        "measured.",
    ),
    question="Each plan should show the effect of one change to the project. Which of them change "
    "only one thing, so that a difference is due to it?",
    options=(
        Option("rate", "Learning rate 0.003 instead of 0.01. Same split, same six seeds, ten "
               "epochs each; the last epoch counts.",
               "One column differs: the rate.", right=True),
        Option("wider", "128 hidden units instead of 64, everything else the same. The model has "
               "twice the weights and takes longer per epoch.",
               "The weights and the time follow from the width. Only one setting was "
               "changed.", right=True),
        Option("normalise", "Inputs left at 0 to 1 instead of centred, on the same split; every "
               "setting and seed as before.",
               "Both sides have the same images as before: only one preprocessing step differs.",
               right=True),
        Option("longer", "Shifted training images, and 20 epochs instead of 10, because there is "
               "now more to learn from.",
               "Two things: the shifts and the epochs. What do 20 epochs gain without shifts? That "
               "run is missing."),
        Option("split", "Dropout of 0.3. The loader was rewritten for it, so the split was drawn "
               "again with another seed.",
               "A different split measures differently. Both runs must be validated on the same "
               "images."),
        Option("best", "Weight decay of 0.1. The baseline is scored at its last epoch, the variant "
               "at its best one, because it starts to overfit later.",
               "The best of ten epochs is higher than the last by luck alone. Use one rule for "
               "both, chosen beforehand."),
    ),
)  # fmt: skip
