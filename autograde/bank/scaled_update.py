"""03d.scaled-update: an update of two micro-batches under FP16, clipped, in its order."""

from autograde.kinds import Order, Rule, Step

EXERCISE = Order(
    id="03d.scaled-update", title="a scaled, accumulated, clipped update",
    source='Annotated-loop essay, "Where the order really matters" and "Mixed precision"',
    ledger=("T15", "C08", "F39", "F116", "F27"), minutes=5, difficulty=2, worth=2,
    read=("F116", "F39", "course.engine.precision"),
    hints=(
        "For each line, ask: are the gradients true at this point, or still multiplied by the "
        "scale?",
        "Gradients must all be scaled alike until both micro-batches are in; a ceiling is meant "
        "for true gradients; and the scale may change only when the old one is no longer needed.",
        "Clear, both micro-batches, unscale_, clip, step, update; the schedule after the step.",
    ),
    question="This is one update under FP16 from two micro-batches of equal size. There are "
    "gradients left over from before, the norm has a ceiling, and the rate changes after every "
    "update. Put the lines "
    "in order; any order that works is accepted. `loss(batch)` runs the model under autocast.",
    steps=(
        Step("clear", "`optimizer.zero_grad()`"),
        Step("micro", "`for batch in window: scaler.scale(loss(batch) / 2).backward()`"),
        Step("unscale", "`scaler.unscale_(optimizer)`"),
        Step("clip", "`clip_grad_norm_(model.parameters(), 1.0)`"),
        Step("step", "`scaler.step(optimizer)`"),
        Step("update", "`scaler.update()`"),
        Step("schedule", "`scheduler.step()`"),
    ),
    rules=(
        Rule("clear", "micro", "backward() adds to what is left over from the last window, "
             "and a zero_grad() inside this one loses its own gradients: clear before the window."),
        Rule("micro", "unscale", "unscale_() divides what is in .grad once: a gradient that is "
             "added later is still multiplied by the scale."),
        Rule("unscale", "clip", "Clipped before unscale_(), gradients that are 65,536 times too "
             "long are cut to the ceiling and then divided: next to nothing is left."),
        Rule("clip", "step", "The step takes .grad as it finds it: clipping after it is too late."),
        Rule("step", "update", "update() sets the scale for the next window and forgets what "
             "unscale_() found: called before the step, it leaves the scaler nothing to decide "
             "by."),
        Rule("step", "schedule", "scheduler.step() sets the rate of the next update: before the "
             "step, the first rate is never used."),
    ),
)  # fmt: skip
