"""03e.final-score: the steps from raw rows to one honest number, in their order."""

from autograde.kinds import Order, Rule, Step

EXERCISE = Order(
    id="03e.final-score", title="the road to one honest number",
    source='Engineering module, §4; Lecture 3, "The recipe · one function"',
    ledger=("B41", "K38", "T24"),
    minutes=5, difficulty=2, worth=2, read=("B41", "course.analysis.choosing"),
    hints=("What has a step seen once it is done? Order them by that.",
           "Copies go before anything is fitted, statistics after the split; nothing chooses after "
           "the test part was read.",
           "Copies, split, statistics, candidates, choose, threshold, test."),
    question="From a table of raw rows, with several rows per patient, to the one number of the "
    "report. Put the steps in order; every order that lets nothing leak is accepted.",
    steps=(
        Step("copies", "Remove copies of rows."),
        Step("split", "Split into three parts, whole patients to each."),
        Step("statistics", "Compute mean and deviation of the training part."),
        Step("candidates", "Train every candidate on the normalised training part."),
        Step("choose", "Choose a candidate and its epoch by validation loss."),
        Step("threshold", "Choose the threshold of the chosen candidate on validation."),
        Step("test", "Score that model at that threshold on the test part, for the report."),
    ),
    rules=(
        Rule("copies", "statistics", "A copy that is left counts twice in whatever is fitted, and "
             "one that is left in another part has been trained on."),
        Rule("split", "statistics", "Before the split there is no training part, and a mean over "
             "all rows has seen validation and test."),
        Rule("statistics", "candidates", "The candidates are trained on normalised rows, which "
             "needs the statistics."),
        Rule("candidates", "choose", "There is nothing to choose from until candidates are "
             "trained."),
        Rule("choose", "threshold", "A threshold belongs to one model's scores: choose it first."),
        Rule("threshold", "test", "A choice made after the test part was read may be steered by "
             "it: test after every choice."),
    ),
)  # fmt: skip
