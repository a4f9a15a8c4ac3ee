"""01c.what-changed: which operation was it? The six told by what is different after each."""

from autograde.kinds import Order, Rule, Step

EXERCISE = Order(
    id="01c.what-changed", title="the six operations by what they change",
    source='Chapter 3, "The six operations"', ledger=("X38", "T14", "F27", "F132"),
    minutes=5, difficulty=1, worth=2, read=("F27", "F132"),
    hints=(
        "First name the operation behind each observation: which of the six does exactly that?",
        "step() reads .grad, backward() reads the loss, the loss reads the outputs.",
        "Clear, forward, loss, backward, step, schedule. Clearing may also follow the forward pass "
        "or the loss.",
    ),
    question="After each line of a training loop, somebody compared everything with what it was "
             "one line earlier. The loop makes one update of a linear layer, whose .grad still "
             "holds numbers from an earlier update. Put the six observations in order. Every "
             "order that a correct loop can show is accepted.",
    steps=(
        Step("emptied", "Each `.grad` held numbers and is now None."),
        Step("outputs", "There is a new tensor [B, C] with a `grad_fn`."),
        Step("scalar", "There is a new tensor without dimensions, with a `grad_fn`."),
        Step("filled", "Each `.grad` was None and now holds numbers; the weights are the same."),
        Step("moved", "The weights are different; `.grad` is what it was."),
        Step("rate", "The optimizer's `lr` is different; weights and `.grad` are what they were."),
    ),
    rules=(
        Rule("outputs", "scalar", "The scalar is the loss, which is computed from the outputs."),
        Rule("scalar", "filled", "backward() fills .grad, and it starts from the loss."),
        Rule("emptied", "filled", "Old numbers were there at the beginning. They have to go "
                                  "before backward() adds to them. Just before step() is too late: "
                                  "the new gradient goes, too. So is after step(): it has used "
                                  "both."),
        Rule("filled", "moved", "The weights move in step(), which reads the .grad of backward()."),
        Rule("moved", "rate", "The schedule sets the rate of the next update, so it moves after "
                              "the weights have moved."),
    ),
)  # fmt: skip
