"""01b.parameters: how many numbers a network learns, and how many a list hides."""

from autograde.exercise import Part, Wrong
from autograde.kinds import Number

EXERCISE = Number(
    id="01b.parameters", title="numbers that are learnt",
    source='Engineering module, "Building models"', ledger=("N43", "X16", "N42", "F04"),
    minutes=5, difficulty=1, read=("N42", "N43"),
    hints=(
        "Draw one layer: how many arrows come in per output? And what else does an output have?",
        "An output has one weight per input, and a bias: a layer holds (inputs + 1) · outputs.",
        "Three layers are three such products, two tensors each; of the list nothing is counted."),
    question="`model` has three `nn.Linear` layers: {n} inputs, hidden layers of {h} and {k}, {c} "
    "logits; a ReLU after each hidden one. `listed` keeps its two hidden layers in a Python list, "
    "and the last layer in an attribute of its own.",
    inputs={"n": (40, 90), "h": (24, 39), "k": (12, 21), "c": (4, 9)},
    answer=lambda n, h, k, c: {
        "tensors": 6, "numbers": (n + 1) * h + (h + 1) * k + (k + 1) * c, "listed": (k + 1) * c},
    parts=(
        Part("tensors", "the length of `list(model.parameters())`", points=1),
        Part("numbers", "`sum(p.numel() for p in model.parameters())`", points=1),
        Part("listed", "the same sum for `listed`", points=1)),
    wrong=(
        Wrong("modules", lambda n, h, k, c: {"tensors": 5},
              "Five modules it is; a ReLU learns nothing, and a Linear has a weight and a bias."),
        Wrong("layers", lambda n, h, k, c: {"tensors": 3},
              "Three layers it is; each of them has two tensors, a weight and a bias."),
        Wrong("no-bias", lambda n, h, k, c: {"numbers": n * h + h * k + k * c, "listed": k * c},
              "Those are the weights alone. Every output has a bias, too."),
        Wrong("bias-per-input", lambda n, h, k, c: {"listed": k * (c + 1)}, "One bias per output."),
        Wrong("last-missing", lambda n, h, k, c: {"numbers": (n + 1) * h + (h + 1) * k},
              "Those are the two hidden layers; the one that makes the {c} logits is missing."),
        Wrong("units", lambda n, h, k, c: {"numbers": h + k + c, "listed": c},
              "Those are outputs of layers: each has as many weights as it has inputs."),
        Wrong("looks-inside", lambda n, h, k, c: {"listed": (n + 1) * h + (h + c + 1) * k + c},
              "The list's layers were counted: parameters() does not look into a list."),
        Wrong("listed-alone", lambda n, h, k, c: {"listed": (n + 1) * h + (h + 1) * k},
              "Those are the two that the list hides. The last layer is counted."),
        Wrong("nothing", lambda n, h, k, c: {"listed": 0}, "The last layer is no list: it counts."),
    ),
)  # fmt: skip
