"""01b.parameters: how many numbers a network learns, and how many a list hides."""

from autograde.exercise import Part, Wrong
from autograde.kinds import Number


def weights(n, h, m, k):
    """Of the hidden layers: n to h, h to k, and k to k for all others of the m."""
    return n * h + h * k + (m - 1) * k * k


def hidden(n, h, m, k):
    """Their weights and biases."""
    return weights(n, h, m, k) + h + m * k


EXERCISE = Number(
    id="01b.parameters", title="numbers that are learnt",
    source='Engineering module, "Building models"', ledger=("N43", "X16", "N42", "F04"),
    minutes=5, difficulty=1, read=("N42", "N43"),
    hints=(
        "Draw one layer: how many arrows arrive at each output? And what else does an output have?",
        "An output has one weight per input, and a bias: a layer holds (inputs + 1) · outputs.",
        "Add up such products, one per layer, and give each layer two tensors; nothing in the list "
        "is counted."),
    question="`model` is made of `nn.Linear` layers: {n} inputs, a hidden layer of {h}, then "
             "{m} hidden layers of {k}, then {c} logits; a ReLU follows each hidden layer. "
             "`listed` keeps its hidden layers in a Python list, and its last layer in an "
             "attribute.",
    inputs={"n": (40, 90), "h": (24, 39), "m": (2, 5), "k": (12, 21), "c": (4, 9)},
    answer=lambda n, h, m, k, c: {"tensors": 2 * (m + 2), "listed": (k + 1) * c,
                                  "numbers": hidden(n, h, m, k) + (k + 1) * c},
    parts=(Part("tensors", "the length of `list(model.parameters())`", points=1),
           Part("numbers", "`sum(p.numel() for p in model.parameters())`", points=1),
           Part("listed", "the same sum for `listed`", points=1)),
    wrong=(
        Wrong("one-too-many", lambda n, h, m, k, c: {
              "tensors": 2 * (m + 3), "numbers": hidden(n, h, m + 1, k) + (k + 1) * c},
              "That has one hidden layer of {k} too many: the layer from {h} to {k} is the first "
              "of the {m}."),
        Wrong("modules", lambda n, h, m, k, c: {"tensors": 2 * m + 3},
              "That counts the modules. A ReLU has no tensors, and a Linear has two."),
        Wrong("layers", lambda n, h, m, k, c: {"tensors": m + 2},
              "That counts the layers. Each of them has two tensors, a weight and a bias."),
        Wrong("hidden-layers", lambda n, h, m, k, c: {"tensors": 2 * m + 2},
              "Those are the hidden layers' tensors. The layer of the logits has two as well."),
        Wrong("weights-and-one", lambda n, h, m, k, c: {
              "numbers": weights(n, h, m, k) + k * c + m + 2, "listed": k * c + 1},
              "That is one bias per layer. Every output has a bias of its own."),
        Wrong("no-bias", lambda n, h, m, k, c: {
              "numbers": weights(n, h, m, k) + k * c, "listed": k * c},
              "Those are only the weights. Every output has a bias, too."),
        Wrong("bias-per-input", lambda n, h, m, k, c: {
              "numbers": weights(n, h, m, k) + k * c + n + h + m * k, "listed": k * (c + 1)},
              "That is one bias per input. There is one per output."),
        Wrong("one-of-them", lambda n, h, m, k, c: {"numbers": hidden(n, h, 1, k) + (k + 1) * c},
              "That counts one hidden layer of {k}, but there are {m} of them."),
        Wrong("inputs-of-the-first", lambda n, h, m, k, c: {
              "numbers": (n + 1) * h + m * (h + 1) * k + (k + 1) * c},
              "That gives each of the {m} layers of {k} as many inputs as the first, {h}. The "
              "others get the {k} outputs of the layer before."),
        Wrong("last-missing", lambda n, h, m, k, c: {"numbers": hidden(n, h, m, k)},
              "Those are the hidden layers; the one that makes the {c} logits is missing."),
        Wrong("units", lambda n, h, m, k, c: {"numbers": h + m * k + c, "listed": c},
              "Those are the layers' outputs: each output has as many weights as it has inputs."),
        Wrong("looks-inside", lambda n, h, m, k, c: {"listed": hidden(n, h, m, k) + (k + 1) * c},
              "That counts the list's layers, too: parameters() does not look into a list."),
        Wrong("listed-alone", lambda n, h, m, k, c: {"listed": hidden(n, h, m, k)},
              "Those are the layers that the list hides. The last layer is the one that counts."),
        Wrong("nothing", lambda n, h, m, k, c: {"listed": 0},
              "The last layer is not in a list, so it counts."),
    ),
)  # fmt: skip
