"""02a.depth: what many layers make of the size of a signal."""

from autograde.exercise import Part, Wrong
from autograde.kinds import Number
from course.from_scratch.initialisation import mean_square_after as after

EXERCISE = Number(
    id="02a.depth", title="a signal through depth",
    source='Lecture 3, "Debug checklist · why won\'t loss go down? · part 2"; He et al. 2015',
    ledger=("B20", "T22"), minutes=6, difficulty=2, read=("course.from_scratch.initialisation",),
    hints=("What does one layer multiply the mean square by? Each further layer multiplies again.",
           "Per layer, inputs times the weights' variance; a relu halves that. Mean squares of "
           "independent signals add up.",
           "(n·v)^L; (n·v/2)^L; the variance 2/n makes n·v/2 = 1; each block doubles."),
    question="A network has {d} layers with {n} inputs and {n} outputs each, and no biases. "
             "Weights are independent, with mean 0 and variance {v}; the network's input has mean "
             "square 1. In a block x + f(x), f(x) is independent of x, with mean 0 and the same "
             "mean square as x.",
    inputs={"n": (120, 260), "v": [0.008, 0.009, 0.012, 0.013, 0.014, 0.016], "d": (4, 7)},
    answer=lambda n, v, d: {"linear": after(d, n, v), "relu": after(d, n, v, activation="relu"),
                            "std": (2 / n) ** 0.5, "residual": after(d, n, 1 / n, residual=True)},
    within=0.02,
    parts=(Part("linear", "the mean square after all layers, without activation", points=1),
           Part("relu", "the same, with a relu after each layer, the last one too", points=1),
           Part("std", "the standard deviation of the weights that keeps the mean "
                       "square at 1 with relus", points=1),
           Part("residual", "the mean square after the same number of blocks x + f(x)", 1)),
    wrong=tuple(Wrong(name, answer, message) for name, answer, message in (
        ("one-layer", lambda n, v, d: {"linear": n * v, "relu": n * v / 2, "residual": 2},
         "That is one layer. Each of the {d} layers multiplies what the one before it returns."),
        ("a-layer-short", lambda n, v, d: {"linear": (n * v) ** (d - 1),
         "relu": (n * v / 2) ** (d - 1), "residual": 2 ** (d - 1)},
         "That is one layer short: all {d} of them multiply."),
        ("added-up", lambda n, v, d: {"linear": d * n * v, "relu": d * n * v / 2,
         "residual": 1 + d}, "That adds {d} times. But each layer multiplies: take a power."),
        ("root-taken", lambda n, v, d: {"linear": (n * v) ** (d / 2), "residual": 2 ** (d / 2)},
         "That is the root of the mean square, the typical size. The mean square is its square."),
        ("sizes-doubled", lambda n, v, d: {"residual": 4**d},
         "That doubles the size per block. For independent signals, the mean squares add up."),
        ("relu-forgotten", lambda n, v, d: {"relu": (n * v) ** d, "std": n**-0.5},
         "That is right without relu. A relu sets half of the signal to 0."),
        ("one-relu-less", lambda n, v, d: {"relu": n * v * (n * v / 2) ** (d - 1)},
         "One relu is missing: the last of the {d} layers also has one."),
        ("variance-squared", lambda n, v, d: {"linear": (n * v * v) ** d,
         "relu": (n * v * v / 2) ** d}, "There {v} was squared, but it is already the variance."),
        ("two-per-block", lambda n, v, d: {"residual": 2 * d},
         "That adds 2 per block. But each block doubles what comes in: raise to the power {d}."),
        ("block-of-a-layer", lambda n, v, d: {"residual": (1 + n * v) ** d},
         "That uses n·v as the size of f(x). In the question f(x) is as large as x."),
        ("relu-once", lambda n, v, d: {"relu": (n * v) ** d / 2}, "There are {d} relus, not one."),
        ("relu-quarters", lambda n, v, d: {"relu": (n * v / 4) ** d},
         "That keeps a quarter per layer. Half of the squares are gone, the others stay."),
        ("variance", lambda n, v, d: {"std": 2 / n}, "That is the variance. Take its root."),
        ("no-shortcut", lambda n, v, d: {"residual": 1.0},
         "f(x) alone would keep it at 1, but x is added to it, and both have the same size."))),
)  # fmt: skip
