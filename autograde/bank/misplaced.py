"""01c.misplaced: what a line in the wrong place really does, and why a model moves first."""

from autograde.kinds import Choices, Option, Reason

EXERCISE = Choices(
    id="01c.misplaced", title="a line in the wrong place",
    source='Annotated-loop essay, "Where the order really matters"',
    ledger=("T15", "X57", "X32", "F16", "F17", "F27", "F28"),
    minutes=8, difficulty=2, worth=2, read=("F28", "F27", "F17"), hints=(
        "For each: what do .grad, the weights and the optimizer's own numbers hold at that line?",
        "Three of them change nothing, or not what is said. Try each with a model of one layer.",
        "step() reads .grad and its own state, and double() keeps the Parameter objects."),
    question="A loop trains: clear, forward, loss, backward, step, with plain SGD if nothing else "
    "is said. Each line is about one change, all else left as it is. Which are true?",
    options=(
        Option("clear-late", "`zero_grad()` between `backward()` and `step()`: no weight moves.",
               "At step() each .grad is None, and its weight is passed over.", right=True),
        Option("clip-late", "`clip_grad_norm_()` right after `step()`: the weights go where they "
               "go without it.", "The step has used the gradient; then it is cleared.", right=True),
        Option("adam-double", "Adam has made ten steps; then `model.double()`, and the batches, "
               "too: the next `step()` raises.",
               "Adam's averages stay float32, the new gradients are float64.", right=True),
        Option("clear-last", "`zero_grad()` after `step()`, not before forward: the weights differ "
               "in the end.", "That is as legal a place: by then the gradient is used."),
        Option("sgd-double", "`model.double()`, and the batches, too, after SGD was built: SGD "
               "goes on with the old float32 weights, and the model's never move.",
               "double() keeps the Parameter objects: SGD still holds the model's weights."),
        Option("replaced", "No `zero_grad()`: each `backward()` replaces what .grad holds.",
               "backward() adds: an update is then made of all batches since the last clearing."),
    ),
    reason=Reason(
        points=1, ask="Moving a fresh model after its optimizer was built does no harm in torch "
        "today. Name a case in which the order does decide, and its symptom: why move first?",
        rubric=((0.5, "a case: dtype changed after Adam has stepped; layer replaced, model copied"),
                (0.5, "its symptom: step() raises, or the new weights silently never move")),
        solution="An optimizer holds Parameter objects and its own state. A layer replaced after "
        "it was built is not among them and never moves, without a word. If the model is whole "
        "first, on its device and in its dtype, that cannot happen."),
)  # fmt: skip
