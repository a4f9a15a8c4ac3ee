"""03h.which-first: the order in which to look when one batch is not memorised."""

from autograde.kinds import Order, Rule, Step

EXERCISE = Order(
    id="03h.which-first", title="one batch is not memorised",
    source='Engineering module, quiz 8; Lecture 3, "Rung 3 · overfit one batch"',
    ledger=("X22", "S17", "T20"),
    minutes=4, difficulty=2, worth=2, read=("course.debug.one_batch.one_batch_losses", "N62"),
    hints=(
        "What does a check rest on? A check whose ground is not sure yet comes later.",
        "Is it one batch; does anything move; where does it stop; then the loss; then the knobs.",
        "A knob comes after every look: the rate first, a larger model last.",
    ),
    question="The loss of one batch of twelve stays near ln(classes) for 200 updates. Put the "
    "checks in the order in which each can trust those before it.",
    steps=(
        Step("same", "Print a sum of inputs and of targets in each step: is it one batch?"),
        Step("moves", "Compare all weights before and after one step: does any move?"),
        Step("where", "Of those that do not move: is .grad None, 0, or not in the optimizer?"),
        Step("level", "Weights move, but the loss stays: what does the criterion take, and get?"),
        Step("rate", "Try the rate ten times larger and ten times smaller."),
        Step("wider", "Make the model wider."),
    ),
    rules=(
        Rule("same", "moves", "If inputs or labels change from step to step, weights move and "
             "nothing is memorised: first be sure that it is one batch."),
        Rule("moves", "where", "Which gradient is missing is worth asking once a weight is known "
             "to stand still: one comparison shows it for all of them."),
        Rule("where", "level", "While weights stand still the criterion is not the suspect yet: "
             "nothing can be learned with any."),
        Rule("level", "rate", "No rate helps a loss that gets something it does not take; look "
             "before you turn a knob."),
        Rule("rate", "wider", "A dozen examples fit into a small network. The rate is a more "
             "likely cause, and two runs try it."),
    ),
)  # fmt: skip
