"""03a.legal: what may stand between backward() and step()."""

from autograde.kinds import Choices, Option

EXERCISE = Choices(
    id="03a.legal", title="between backward() and step()",
    source='Chapter 3, "The six operations of a step"', ledger=("T14", "T15", "F27"),
    minutes=4, difficulty=2, worth=2, read=("F27", "F28"),
    hints=(
        "step() reads two things: .grad and the learning rate. Which lines touch them, and how?",
        "A line is fine if step() still moves the weights along this batch's gradient.",
        "Reading a number, one factor for all gradients, an average over micro-batches: all fine.",
    ),
    question="Which of these lines can you put between `loss.backward()` and `optimizer.step()` in "
    "every update, so that the run still trains as it should?",
    options=(
        Option("log", "`losses.append(loss.item())`",
               "item() only reads the loss: neither gradient nor weights change.", right=True),
        Option("clip", "`clip_grad_norm_(model.parameters(), 1.0)`",
               "Clipping belongs exactly here: the gradient has been computed, but not used yet.",
               right=True),
        Option("average", "`for p in model.parameters(): p.grad /= K`, where every update "
               "is made of K equal micro-batches",
               "The K gradients were added up; dividing the sum by K makes it their mean.",
               right=True),
        Option("clear", "`optimizer.zero_grad(set_to_none=True)`",
               "That throws away the gradient just computed: step() then has nothing to use."),
        Option("schedule", "`scheduler.step()`, of a schedule that counts updates",
               "That changes the rate before the update it was meant for: the schedule's first "
               "rate is never used. It comes after optimizer.step()."),
        Option("again", "`loss.backward()`, a second time for the same loss",
               "The first call frees the graph, so the second one raises; with retain_graph=True "
               "it would double the gradient."),
    ),
)  # fmt: skip
