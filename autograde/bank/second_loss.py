"""01c.second-loss: one step of a two-output layer on paper, and the loss after it."""

from autograde.exercise import Part, Wrong
from autograde.kinds import Number
from course.worked.one_step import on_paper


def slip(*keys, **how):
    """Some of the numbers, as one mistake gives them."""
    return lambda **q: {key: value for key, value in on_paper(**q, **how).items() if key in keys}


def of_the_other_corner(*, a, b, c, d, x, z, t, u, lr):
    """Row 1, column 0, as row 0, column 1 of the layer with rows and columns exchanged."""
    return slip("grad", "weight")(a=d, b=c, c=b, d=a, x=z, z=x, t=u, u=t, lr=lr)


def where_one_weight_moved(*, a, b, c, d, x, z, t, u, lr):
    """The loss after a step of row 0, column 1 alone."""
    errors = (a * x + b * z - t) * (1 - lr * z**2), c * x + d * z - u
    return {"second": (errors[0] ** 2 + errors[1] ** 2) / 2}


EXERCISE = Number(
    id="01c.second-loss", title="one step on paper, and the loss after it",
    source='Chapter 3, "One complete step"', ledger=("X37", "N09", "N10", "N11"),
    minutes=10, difficulty=2, read=("N09", "N10", "N11"), within=0.005, answer=on_paper, hints=(
        "First write down the two residuals y − t: every other number is made from them.",
        "Row i, column j of the gradient is residual i times input j; the bias gets residual i.",
        "Both residuals are multiplied by 1 − lr · (x₀² + x₁² + 1); the 1 is the bias's share."),
    question="A linear layer has W = [[{a}, {b}], [{c}, {d}]], a row for each output, and a bias "
             "[0, 0]. It sees x = [{x}, {z}] with the target [{t}, {u}]. The loss is the mean of "
             "the two squared errors, as in MSELoss. Plain SGD with lr = {lr} takes one step, "
             "which moves W and the bias.",
    inputs={"a": [-0.6, -0.4, 0.4, 0.7], "b": [-0.5, 0.3, 0.8], "c": [-0.9, 0.2, 0.6],
            "d": [-0.3, 0.4, 0.5], "x": (1, 3), "z": (2, 3), "t": (1, 3), "u": (-2, 2),
            "lr": [0.01, 0.02, 0.03]},
    parts=(Part("loss", "the loss before the step", 1), Part("grad", "dL/dW, row 0, column 1", 1),
           Part("weight", "W after the step, row 0, column 1", 1),
           Part("second", "the loss of the same example after the step", 1)),
    wrong=(
        Wrong("of-the-sum", slip("loss", "grad", "weight", "second", of=2.0),
              "That belongs to the sum of the squared errors. The mean of two is half of it."),
        Wrong("half-of-the-mean", slip("loss", "grad", "second", of=0.5),
              "That belongs to half of the mean. For two outputs, ½ Σ is already the mean."),
        Wrong("uphill", slip("weight", "second", sign=1.0), "That went uphill: w − lr · grad."),
        Wrong("sign", lambda **q: {"grad": -on_paper(**q)["grad"]},
              "The size is right, the sign is not: an error is an output minus its target."),
        Wrong("bias-left", slip("second", bias=0),
              "In that number the bias stayed 0, but it moves, too."),
        Wrong("shrunk-once", slip("second", power=1), "The loss falls by the factor's square."),
        Wrong("transposed", slip("grad", "weight", turned=True), "Column 1 uses input 1, not 0."),
        Wrong("whole-step", slip("weight", rate=1.0), "That is without lr: w − lr · gradient."),
        Wrong("row-1-column-0", of_the_other_corner,
              "That is row 1, column 0. A row belongs to an output, a column to an input."),
        Wrong("row-0-column-0", lambda **q: {
              "weight": q["a"] + on_paper(**q, turned=True)["weight"] - q["b"]},
              "That is row 0, column 0. Columns are counted from 0, so column 1 is the second."),
        Wrong("input-left-out", lambda **q: {
              "grad": on_paper(**q)["grad"] / q["z"],
              "weight": q["b"] - q["lr"] * on_paper(**q)["grad"] / q["z"]},
              "That is the residual alone. Multiply it by the input of that column."),
        Wrong("not-moved", lambda **q: {"second": on_paper(**q)["loss"]},
              "That is the loss before the step. Use W and the bias after it."),
        Wrong("one-weight-moved", where_one_weight_moved,
              "There only the weight in row 0, column 1 has moved. The step moves all four weights "
              "and both biases."),
        Wrong("root", lambda **q: {"loss": on_paper(**q)["loss"] ** 0.5}, "MSELoss takes no root."),
        Wrong("one-output", lambda **q: slip("second")(
            **{**q, "u": q["c"] * q["x"] + q["d"] * q["z"]}),
              "That counts the squared error of output 0 alone. Both belong to the loss."),
        Wrong("target-forgotten", slip("loss", "grad", "weight", "second", goal=0),
              "That is without the target. An error is an output minus its target."),
    ),
)  # fmt: skip
