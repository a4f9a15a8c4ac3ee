"""03e.final-score: the steps from raw rows to one honest number, in their order."""

from autograde.kinds import Order, Rule, Step

EXERCISE = Order(
    id="03e.final-score", title="the road to one honest number",
    source='Engineering module, §4; Lecture 3, "The recipe · one function"',
    ledger=("B41", "K38", "T24"),
    minutes=5, difficulty=2, worth=2, read=("B41", "course.analysis.choosing"),
    hints=("What data has each step seen once it is done? Order the steps by that.",
           "Copies go before anything is fitted, and statistics are computed after the split. "
           "Nothing may be chosen after the test part has been read.",
           "Copies, split, statistics, candidates, choose, threshold, test."),
    question="You start from a table of raw rows, with several rows per patient, and end with one "
    "number for the report. Put the steps in order; every order without a leak is accepted.",
    steps=(
        Step("copies", "Remove copies of rows from the table."),
        Step("split", "Split into three parts, keeping each patient in one part."),
        Step("statistics", "Compute the mean and standard deviation of the training part."),
        Step("candidates", "Train every candidate on the normalised training part."),
        Step("choose", "Choose a candidate and its epoch by validation loss."),
        Step("threshold", "Choose the threshold of the chosen candidate on validation."),
        Step("test", "Score that model at that threshold on the test part, for the report."),
    ),
    rules=(
        Rule("copies", "statistics", "A copy left in the training part counts twice in everything "
             "fitted there, and a copy left in another part is trained on."),
        Rule("split", "statistics", "Before the split there is no training part, and a mean over "
             "all rows has seen validation and test."),
        Rule("statistics", "candidates", "The candidates are trained on normalised rows, so the "
             "statistics come first."),
        Rule("candidates", "choose", "There is nothing to choose from until the candidates are "
             "trained."),
        Rule("choose", "threshold", "A threshold belongs to one model's scores: choose the model "
                                    "first."),
        Rule("threshold", "test", "A choice made after the test part was read may be influenced by "
             "it: test last, after every choice."),
    ),
)  # fmt: skip
