"""01a.four-gradients: predict .grad of a vector for four scalars made from it."""

from autograde.exercise import Part, Wrong
from autograde.kinds import Number

EXERCISE = Number(
    id="01a.four-gradients", title="four gradients to predict",
    source='Module 2, "Autograd", lab 2', ledger=("X24", "N18", "X58"),
    minutes=6, difficulty=2, read=("N18", "N17"),
    hints=("x.grad[i] answers the question: what is the slope of the scalar with respect to x[i]?",
        "The slope of a mean does not depend on x, that of a square does, and ties share a slope.",
        "2·x[i] for squares, 1/n for the mean, 1/k for each of k largest; uncleared calls add up."),
    question="x is a float32 leaf with {n} entries: x[0] = {a}, the last {k} are all {m}, and "
             "every other entry is below {m}. Before each of the four lines, x.grad is None. "
             "Write a fraction as one, e.g. 1/7, or with three digits.",
    inputs={"n": (8, 12), "k": (3, 5), "a": (4, 9), "m": (11, 19)},
    answer=lambda n, k, a, m: {"square": 2 * a, "mean": 1 / n, "max": 1 / k, "twice": 2 * a + 1},
    parts=(Part("square", "x.grad[0] after `x.square().sum().backward()`", points=1),
        Part("mean", "x.grad[0] after `x.mean().backward()`", points=1),
        Part("max", "x.grad[-1] after `x.max().backward()`", points=1),
        Part("twice", "x.grad[0] after `x.sum().backward(); x.square().sum().backward()`", 1)),
    wrong=(Wrong("value", lambda n, k, a, m: {"square": a * a, "mean": float(a), "max": float(m)},
              "That is a value from the forward pass. A gradient is a slope with respect to one "
              "entry."),
        Wrong("no-factor", lambda n, k, a, m: {"square": a, "twice": a + 1},
              "The slope of x² is 2x: the exponent comes down as a factor."),
        Wrong("not-divided", lambda n, k, a, m: {"mean": 1.0},
              "That is the slope of the sum. The mean divides it by the {n} entries."),
        Wrong("all-of-it", lambda n, k, a, m: {"max": 1.0},
              "A single largest entry would get the whole slope. Here {k} entries tie: x.max() "
              "shares it."),
        Wrong("one-of-the-ties", lambda n, k, a, m: {"max": 0.0},
              "max(dim=0) gives all of it to one of the ties. x.max() without dim shares it among "
              "all {k}."),
        Wrong("value-shared", lambda n, k, a, m: {"mean": a / n, "max": m / k},
              "That divides the entry's value. A mean's slope does not depend on how large the "
              "entry is."),
        Wrong("values-added", lambda n, k, a, m: {"twice": a + a * a},
              "The values of the two forward passes were added. Their slopes add up: 1 and 2x."),
        Wrong("shared-by-all", lambda n, k, a, m: {"max": 1 / n},
              "Only the largest entries share the slope; the others get 0."),
        Wrong("replaced", lambda n, k, a, m: {"twice": 2 * a},
              "That is the second call's gradient alone. backward() adds to .grad, and nothing "
              "was cleared."),
        Wrong("first-kept", lambda n, k, a, m: {"twice": 1},
              "That is the first call's gradient alone. The second call adds its own to it.")),
)  # fmt: skip
