"""03g.layers: what a record with commit, settings and seed cannot tell."""

from autograde.kinds import Choices, Option, Reason

EXERCISE = Choices(
    id="03g.layers", title="half a year later", minutes=6, difficulty=2, worth=2,
    source='Lecture 3, "Five layers of reproducibility" and "Minimal experiment record"',
    ledger=("T25", "T26", "C37", "F102", "F104"), read=("T26", "T25", "course.engine.compare"),
    hints=(
        "Name the layer of each: environment, seed, data, configuration, code.",
        "A cause can hide if the record has no field for its layer, or a field that says too "
        "little.",
        "There is no field for data, split, versions and hardware, and a commit does not say "
        "whether anything differed from it."),
    question="A run's record holds the commit, every setting, the seed that is set at the start, "
    "and the metrics. Half a year later you check out that commit, take the settings and the seed "
    "from the record, and the run ends 1.4 points lower. Which of these can be the cause?",
    options=(
        Option("data", "The folder with the images has been cleaned up since then.",
               "A hash of every example would have shown it.", right=True),
        Option("dirty", "When the first run was made, a line had been changed but not committed.",
               "A commit does not show what was not committed: the record needs a flag.",
               right=True),
        Option("versions", "A different version of torch is installed.",
               "It may sum, or draw random numbers, in a different order.", right=True),
        Option("hardware", "The first run was made on a different GPU.",
               "Different kernels sum in a different order.", right=True),
        Option("generator", "Augmentation draws from `numpy.random.default_rng()`, without a seed.",
               "Each start draws a fresh seed that no global seed controls.", right=True),
        Option("rate", "The first run had a different learning rate.",
               "That is a setting: the record has it, and you took it from there."),
        Option("later", "A bug has been introduced into the training loop since that commit.",
               "You checked out the old commit, so that line is not there."),
        Option("start", "On the same machine with the same torch, the same seed draws different "
               "initial weights.", "It draws the same weights if it is set before the model is "
                                   "built."),
    ),
    reason=Reason(points=2, ask="Which four fields would you add to the record, and what would "
        "each have shown? (A generator without a seed needs a seed, not a field.)",
        rubric=((1, "data and split by a hash; versions; hardware, precision; clean tree or not"),
                (1, "what a difference in each of them rules in or out")),
        solution="A hash of all examples shows whether data or split changed. Versions and "
        "hardware show whether bits can repeat at all. A clean-tree flag shows whether the commit "
        "is the code that ran."),
)  # fmt: skip
