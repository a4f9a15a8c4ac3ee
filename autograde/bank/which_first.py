"""03h.which-first: the order in which to look when one batch is not memorised."""

from autograde.kinds import Order, Rule, Step

EXERCISE = Order(
    id="03h.which-first", title="one batch is not memorised",
    source='Engineering module, quiz 8; Lecture 3, "Rung 3 · overfit one batch"',
    ledger=("X22", "S17", "T20"),
    minutes=4, difficulty=2, worth=2, read=("course.debug.one_batch.one_batch_losses", "N62"),
    hints=(
        "What does each check rely on? A check comes after everything it relies on.",
        "Is it one batch? Does anything move? Where does it stop? Then the loss, then the knobs.",
        "Turn knobs only after every inspection: the learning rate first, a larger model last.",
    ),
    question="The loss of one batch of twelve stays near ln(classes) for 200 updates. Put the "
    "checks in an order in which each one can rely on those before it. Look at everything that "
    "can be looked at before you turn a knob, and turn the likelier and cheaper knob first.",
    steps=(
        Step("same", "Print the sum of the inputs and of the targets in each step: is it always "
                     "the same batch?"),
        Step("moves", "Compare all weights before and after one step: do any of them move?"),
        Step("where", "Find out why a weight does not move: is its .grad None or 0, or is it not "
                      "in the optimizer?"),
        Step("level", "All weights move, but the loss stays: what does the criterion expect, and "
                      "what does it get?"),
        Step("rate", "Try a learning rate ten times larger and ten times smaller."),
        Step("wider", "Make the model wider."),
    ),
    rules=(
        Rule("same", "moves", "If inputs or labels change from step to step, weights move but "
             "nothing is memorised. First make sure that it is always the same batch."),
        Rule("moves", "where", "Ask which gradient is missing only when you know that a weight "
             "does not move; one comparison shows that for all weights."),
        Rule("where", "level", "While weights do not move, the criterion is not the suspect yet: "
             "without steps, nothing is learned with any criterion."),
        Rule("level", "rate", "No learning rate helps if the criterion gets something it does not "
             "expect. Look before you turn a knob."),
        Rule("rate", "wider", "Even a small network can fit a dozen examples. The learning rate is "
             "a more likely cause, and it takes only two runs to test."),
    ),
)  # fmt: skip
