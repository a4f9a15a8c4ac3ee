"""01b.parameters: how many numbers a network learns, and how many a list hides."""

from autograde.exercise import Part, Wrong
from autograde.kinds import Number

EXERCISE = Number(
    id="01b.parameters", title="numbers that are learnt",
    source='Engineering module, "Building models"', ledger=("N43", "X16", "N42", "F04"),
    minutes=5, difficulty=1, read=("N42", "N43"),
    hints=(
        "Draw one layer: how many arrows arrive at each output? And what else does an output have?",
        "An output has one weight per input, and a bias: a layer holds (inputs + 1) · outputs.",
        "Three layers are three such products, with two tensors each; nothing in the list is "
        "counted."),
    question="`model` has three `nn.Linear` layers: {n} inputs, hidden layers of {h} and {k}, {c} "
             "logits; a ReLU follows each hidden one. `listed` keeps its two hidden layers in a "
             "Python list, and its last layer in an attribute.",
    inputs={"n": (40, 90), "h": (24, 39), "k": (12, 21), "c": (4, 9)},
    answer=lambda n, h, k, c: {
        "tensors": 6, "numbers": (n + 1) * h + (h + 1) * k + (k + 1) * c, "listed": (k + 1) * c},
    parts=(
        Part("tensors", "the length of `list(model.parameters())`", points=1),
        Part("numbers", "`sum(p.numel() for p in model.parameters())`", points=1),
        Part("listed", "the same sum for `listed`", points=1)),
    wrong=(
        Wrong("modules", lambda n, h, k, c: {"tensors": 5},
              "That counts the five modules. A ReLU has no tensors, and a Linear has two: a "
              "weight and a bias."),
        Wrong("layers", lambda n, h, k, c: {"tensors": 3},
              "That counts the three layers. Each of them has two tensors, a weight and a bias."),
        Wrong("two-more", lambda n, h, k, c: {"tensors": 8},
              "That is two too many: neither the input nor a ReLU has tensors. Three layers have "
              "two each, a weight and a bias."),
        Wrong("modules-twice", lambda n, h, k, c: {"tensors": 10},
              "That gives each of the five modules two tensors. A ReLU has none."),
        Wrong("two-layers", lambda n, h, k, c: {"tensors": 4},
              "Two layers would have four. There are three: the last one makes the logits."),
        Wrong("weights-and-one", lambda n, h, k, c: {
              "numbers": n * h + h * k + k * c + 3, "listed": k * c + 1},
              "That is one bias per layer. Every output has a bias of its own."),
        Wrong("no-bias", lambda n, h, k, c: {"numbers": n * h + h * k + k * c, "listed": k * c},
              "Those are only the weights. Every output has a bias, too."),
        Wrong("bias-per-input", lambda n, h, k, c: {
              "numbers": n * (h + 1) + h * (k + 1) + k * (c + 1), "listed": k * (c + 1)},
              "That is one bias per input. There is one per output."),
        Wrong("last-missing", lambda n, h, k, c: {"numbers": (n + 1) * h + (h + 1) * k},
              "Those are the two hidden layers; the one that makes the {c} logits is missing."),
        Wrong("middle-missing", lambda n, h, k, c: {"numbers": (n + 1) * h + (k + 1) * c},
              "Those are the first and the last layer; the one in the middle, from {h} to {k}, is "
              "missing."),
        Wrong("units", lambda n, h, k, c: {"numbers": h + k + c, "listed": c},
              "Those are the layers' outputs: each output has as many weights as it has inputs."),
        Wrong("looks-inside", lambda n, h, k, c: {"listed": (n + 1) * h + (h + c + 1) * k + c},
              "That counts the list's layers, too: parameters() does not look into a list."),
        Wrong("listed-alone", lambda n, h, k, c: {"listed": (n + 1) * h + (h + 1) * k},
              "Those are the two layers that the list hides. The last layer is the one that "
              "counts."),
        Wrong("nothing", lambda n, h, k, c: {"listed": 0},
              "The last layer is not in a list, so it counts."),
    ),
)  # fmt: skip
