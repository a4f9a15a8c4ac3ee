"""03a.order: the operations of one update in their order."""

from autograde.kinds import Order, Rule, Step

EXERCISE = Order(
    id="03a.order", title="the operations of one update",
    source='Chapter 3, "The six operations of a step"', ledger=("T14", "F27", "F28", "F132"),
    minutes=4, difficulty=1, worth=2, read=("F27", "F28"),
    hints=(
        "Follow one number: where is it computed, and which line needs it?",
        "backward() needs a loss, clipping needs gradients, step() needs them clipped.",
        "Forward, loss, backward, clip, step, schedule; clearing comes anywhere before backward.",
    ),
    question="One update with clipping, a learning rate that changes after every update, and "
    "gradients left over from before. Put the lines in order; any order that works is accepted.",
    steps=(
        Step("clear", "`optimizer.zero_grad()`"),
        Step("forward", "`logits = model(inputs)`"),
        Step("loss", "`loss = criterion(logits, targets)`"),
        Step("backward", "`loss.backward()`"),
        Step("clip", "`clip_grad_norm_(model.parameters(), 1.0)`"),
        Step("step", "`optimizer.step()`"),
        Step("schedule", "`scheduler.step()`"),
    ),
    rules=(
        Rule("forward", "loss", "The loss is computed from the logits: forward comes first."),
        Rule("loss", "backward", "backward() starts from the loss: the loss comes first."),
        Rule("clear", "backward", "backward() adds to what is left over: zero_grad() comes before "
             "it. Between backward() and step() it would throw away the new gradient, too."),
        Rule("backward", "clip", "Before backward() this update has no gradient yet. Clip what "
             "backward() has just computed."),
        Rule("clip", "step", "step() takes .grad as it finds it: clipping after it is too late."),
        Rule("step", "schedule", "scheduler.step() sets the rate of the next update: before "
             "optimizer.step() it skips the first rate."),
    ),
)  # fmt: skip
