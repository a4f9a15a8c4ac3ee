"""01c.uncleared: how far a weight travels when its gradient is constant and never cleared."""

from autograde.exercise import Part, Wrong
from autograde.kinds import Number

EXERCISE = Number(
    id="01c.uncleared", title="zero_grad() left out, for a constant gradient",
    source='Chapter 5, "Bug 1"; module 2', ledger=("N58", "X13", "X32", "F26"), within=0.005,
    minutes=8, difficulty=2, read=("N58", "F26", "F74"), hints=(
        "Write down .grad after the first, the second and the third backward().",
        "Each update moves by lr times what .grad holds then: add these moves up.",
        "1 + 2 + … + n = n(n + 1)/2. Cleared after every k updates, the sum begins n/k times."),
    question="A loss has the slope {g} everywhere, so each backward() brings a gradient of {g}. "
    "Plain SGD with lr = {lr} makes {n} updates from w = 0, without zero_grad(). For the last "
    "number, zero_grad() runs once after every {k} updates.",
    inputs={"g": (3, 9), "lr": [0.01, 0.02, 0.05], "n": [12, 24, 36], "k": [3, 4, 6]},
    answer=lambda g, lr, n, k: {"grad": float(n * g), "moved": lr * g * n * (n + 1) / 2,
                                "ratio": (n + 1) / 2, "windows": lr * g * n * (k + 1) / 2},
    parts=(Part("grad", "what .grad holds after the last backward()", 1),
           Part("moved", "how far w is from 0 after all updates", 1),
           Part("ratio", "how many times as far that is as with zero_grad() each time", 1),
           Part("windows", "how far w is from 0 if zero_grad() runs now and then, as above", 1)),
    wrong=(
        Wrong("replaced", lambda g, lr, n, k: {"grad": g}, "backward() adds to what is there."),
        Wrong("one-gradient-a-step", lambda g, lr, n, k: {"moved": lr * g * n, "ratio": 1.0,
              "windows": lr * g * n}, "That is how far one gradient per step goes. A step uses all "
              "that .grad holds by then."),
        Wrong("one-short", lambda g, lr, n, k: {"grad": (n - 1) * g, "ratio": (n - 1) / 2,
              "moved": lr * g * n * (n - 1) / 2, "windows": lr * g * n * (k - 1) / 2},
              "That begins with an empty update. The first one has a gradient of {g} already."),
        Wrong("last-one-always", lambda g, lr, n, k: {"moved": lr * g * n * n, "ratio": n,
              "windows": lr * g * n * k}, "Only the last move is that long: the first is short."),
        Wrong("lr-forgotten", lambda g, lr, n, k: {
              "moved": g * n * (n + 1) / 2, "windows": g * n * (k + 1) / 2},
              "Those are the gradients, added up. Each move is lr = {lr} times one of them."),
        Wrong("lr-inside", lambda g, lr, n, k: {"grad": lr * g * n}, "step() multiplies by lr."),
        Wrong("one-window", lambda g, lr, n, k: {"windows": lr * g * k * (k + 1) / 2},
              "That is the way of the first {k} updates; there are {n}."),
        Wrong("not-cleared", lambda g, lr, n, k: {"windows": lr * g * n * (n + 1) / 2},
              "That is without any clearing. Cleared, .grad grows to {k} gradients at most."),
    ),
)  # fmt: skip
