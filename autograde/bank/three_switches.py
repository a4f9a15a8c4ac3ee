"""03e.three-switches: what eval(), no_grad() and a missing step() each change."""

from autograde.kinds import Choices, Option

EXERCISE = Choices(
    id="03e.three-switches", title="three switches, one at a time",
    source='Lecture 3, "Practice problems", P5; annotated-loop essay, "Validation"',
    ledger=("X07", "X33", "X63", "T06", "F23", "F24", "F25"),
    minutes=5, difficulty=2, worth=2, read=("course.analysis.switches", "F23", "F25"),
    hints=(
        "Which switch talks to layers, and which to autograd?",
        "Find the row of the table above that each sentence is about, and read across.",
        "eval() changes what some layers compute; no_grad() whether a graph is built; only step() "
        "moves parameters. BatchNorm's running mean is not a parameter.",
    ),
    question="A network with Linear, LayerNorm, BatchNorm and dropout layers is measured on "
    "validation data. Which of these sentences are true?",
    options=(
        Option("moves", "In train mode under `torch.no_grad()`, measuring changes what BatchNorm "
               "will do later.",
               "In train mode BatchNorm updates its running mean in each forward pass. This needs "
               "no gradient and no step, so no_grad() does not stop it.", right=True),
        Option("equal", "In eval mode the logits are the same with `torch.no_grad()` and without.",
               "no_grad() builds no graph; it does not touch what a layer computes.", right=True),
        Option("trains", "In eval mode, `loss.backward()` and `optimizer.step()` still move "
               "weights.",
               "eval() sets a flag that some layers read. The graph is built as before, and the "
               "optimizer does not look at the mode.", right=True),
        Option("drops-nothing", "Under `torch.no_grad()` dropout is off.",
               "Dropout looks at the mode, not at the graph: in train mode it drops units under "
               "no_grad() too."),
        Option("saves", "In eval mode no graph is built, so `torch.no_grad()` saves nothing.",
               "In eval mode the graph is built and kept too, only without what dropout adds in "
               "train mode. no_grad() is the switch that saves this memory."),
        Option("still", "Without `optimizer.step()` nothing in `state_dict()` can change.",
               "state_dict() holds buffers too: in train mode a forward pass alone moves "
               "BatchNorm's running mean, its variance and its counter."),
        Option("layer-norm", "`model.eval()` makes LayerNorm use running statistics.",
               "LayerNorm has no running statistics: it normalises each example by itself, in both "
               "modes."),
    ),
)  # fmt: skip
