"""03f.curves: what six recorded runs say, and what follows from each."""

from autograde.kinds import Choices, Option, Reason

EXERCISE = Choices(
    id="03f.curves", title="what the curves say",
    source='Lecture 3, "Training curves" and "Practice problems", P4', ledger=("S15", "X06"),
    minutes=10, difficulty=2, worth=2, read=("course.analysis.read_curves",),
    hints=("For each run: has training levelled off, at which loss, and how far away is "
           "validation?",
           "A jump has one of two causes: the data trained on, or the data measured on.",
           "Four of the seven are true, one about each of the runs 1, 3, 4 and 5."),
    question="Which of these statements about the six recorded runs above are true?",
    options=(
        Option("longer", "Run 1: the cheapest thing to try is more epochs with the same settings.",
               "Both losses of run 1 are still falling together, epoch by epoch.", right=True),
        Option("early", "Run 3: keeping the weights of its best validation epoch costs no extra "
                        "run.",
               "The validation loss of run 3 was lowest long before the end; stopping there is "
               "free.", right=True),
        Option("few", "Run 4: with more validation images, its validation curve would jump less.",
               "Training falls smoothly but validation jumps: 16 images are too few.", right=True),
        Option("batch", "Run 5: the batches of epoch 18 are worth a look.",
               "One epoch is bad and the next ones are fine again: what was that epoch "
               "fed?", right=True),
        Option("wait", "Run 3: more epochs with the same settings will bring its validation loss "
                       "down.",
               "The validation loss of run 3 has been rising for many epochs while training keeps "
               "falling."),
        Option("diverged", "Run 5 has diverged and needs a smaller learning rate.",
               "A few epochs later run 5 is back where it was; a run that diverges does not come "
               "back."),
        Option("larger", "Run 6 underfits: a larger model is the first thing to try.",
               "The loss of run 6 stays above ln 10 = 2.30, the loss of guessing. It learns "
               "nothing, and a larger model does not fix that."),
    ),
    reason=Reason(
        points=3, ask="Another run ends at a training loss of 0.02 and a validation loss of 0.6. "
        "Name its state and three remedies, ordered by cost, each with its cost.",
        rubric=(
            (1, "Overfitting: what was learned does not carry over to validation."),
            (1, "Three remedies that act on it: best epoch, decay, dropout, augmentation, data."),
            (1, "In order of cost, with the costs named: no run, a run, code, weeks."),
        ),
        solution="It overfits. Keep the weights of the best validation epoch: free, if they were "
        "saved. Then weight decay or dropout, a run each; then augmentation, which takes some "
        "code; new labels cost weeks.",
    ),
)  # fmt: skip
