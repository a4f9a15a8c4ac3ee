"""01a.backward-leaves: what backward() fills, and what it leaves as it was."""

from autograde.kinds import Choices, Option, Reason

EXERCISE = Choices(
    id="01a.backward-leaves", title="what backward() changes",
    source='Engineering module, "Think about it"', ledger=("X60", "X58", "F26", "F35"),
    minutes=5, difficulty=2, worth=2, read=("F26", "F35", "N17"),
    hints=(
        "Two options are about the graph and its numbers, four about .grad and the weights. Try "
        "each.",
        "backward() reads the graph and writes into .grad of leaves. What moves the weights?",
        "A tensor that requires no gradient, or is not a leaf, has .grad = None, which is not "
        "zeros.",
    ),
    question="A model has two linear layers. The first is frozen by requires_grad_(False); the "
             "second still holds the .grad of an earlier step. `loss.backward()` runs once. What "
             "is true right after it?",
    options=(
        Option("adds", "The second layer's .grad is the old gradient plus the new one.",
               "backward() adds to .grad; clearing it takes a separate line.", right=True),
        Option("freed", "A second `loss.backward()` raises: the graph's saved tensors are freed.",
               "The saved tensors are freed at once, unless you ask for retain_graph=True.",
               right=True),
        Option("same-loss", "`loss.item()` is the same number as before.",
               "backward() computes slopes, not a new loss.", right=True),
        Option("weights", "The second layer's weights have moved against the gradient.",
               "backward() moves no weight: optimizer.step() does, by reading .grad."),
        Option("frozen-zeros", "The first layer's .grad is a tensor of zeros.",
               "A frozen parameter takes no part: its .grad stays None."),
        Option("hidden", "`logits.grad` holds the gradient of the second layer's output.",
               "Only leaves keep .grad; for a value in between, call retain_grad() first."),
    ),
    reason=Reason(
        points=1,
        ask="Why does backward() add to .grad instead of replacing it? Name a case that needs "
            "this, and the price.",
        rubric=(
            (0.5, "A case: micro-batches of one update, several losses, a weight used twice."),
            (0.5, "The price: .grad must be cleared before each update."),
        ),
        solution="The gradients of several micro-batches add up to that of their sum without "
                 "extra code. The price: each update has to begin with zero_grad(), or old "
                 "gradients stay in.",
    ),
)  # fmt: skip
