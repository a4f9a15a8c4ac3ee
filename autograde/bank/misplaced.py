"""01c.misplaced: what a line in the wrong place really does, and why a model moves first."""

from autograde.kinds import Choices, Option, Reason

EXERCISE = Choices(
    id="01c.misplaced", title="a line in the wrong place",
    source='Annotated-loop essay, "Where the order really matters"',
    ledger=("T15", "X57", "X32", "F16", "F17", "F27", "F28"),
    minutes=8, difficulty=2, worth=2, read=("F28", "F27", "F17"), hints=(
        "For each line, ask: what do .grad, the weights and the optimizer's own numbers hold "
        "there?",
        "Three of them change nothing, or not what is claimed. Try each with a model of one layer.",
        "step() reads .grad and the optimizer's own state, and double() keeps the Parameter "
        "objects."),
    question="A training loop runs clear, forward, loss, backward, step, with plain SGD unless "
             "another optimizer is named. Each option makes one change and leaves everything else "
             "as it is. Which options are true?",
    options=(
        Option("clear-late", "`zero_grad()` between `backward()` and `step()`: no weight moves.",
               "At step() each .grad is None, so its weight is skipped.", right=True),
        Option("clip-late", "`clip_grad_norm_()` right after `step()`: the weights end up where "
                            "they would without it.",
               "The step has already used the gradient, and then it is cleared.", right=True),
        Option("adam-double", "Adam has taken ten steps; then `model.double()`, and the batches, "
                              "too: the next `step()` raises.",
               "Adam's averages stay float32, but the new gradients are float64.", right=True),
        Option("clear-last", "`zero_grad()` after `step()`, not before forward: the weights end "
                             "up different.",
               "That place is just as good: by then the gradient has been used."),
        Option("sgd-double", "`model.double()`, and the batches, too, after SGD was built: SGD "
                             "continues with the old float32 weights, and the model's never move.",
               "double() keeps the Parameter objects: SGD still holds the model's weights."),
        Option("replaced", "No `zero_grad()`: each `backward()` replaces what .grad holds.",
               "backward() adds, so an update then uses all batches since the last clearing."),
    ),
    reason=Reason(
        points=1, ask="Moving a fresh model after its optimizer was built does no harm in torch "
                      "today. Name a case in which the order does matter, and its symptom: why "
                      "move first?",
        rubric=((0.5, "a case: dtype changed after Adam has taken a step; layer replaced, model "
                      "copied"),
                (0.5, "its symptom: step() raises, or the new weights silently never move")),
        solution="An optimizer holds Parameter objects and its own state. A layer that is "
                 "replaced after the optimizer was built is not among them, so it silently never "
                 "moves. If the model is complete first, on its device and in its dtype, that "
                 "cannot happen."),
)  # fmt: skip
