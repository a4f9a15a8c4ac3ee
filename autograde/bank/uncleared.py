"""01c.uncleared: how far a weight travels when its gradient is constant and never cleared."""

from autograde.exercise import Part, Wrong
from autograde.kinds import Number

EXERCISE = Number(
    id="01c.uncleared", title="zero_grad() left out, for a constant gradient",
    source='Chapter 5, "Bug 1"; module 2', ledger=("N58", "X13", "X32", "F26"), within=0.005,
    minutes=8, difficulty=2, read=("N58", "F26", "F74"), hints=(
        "Write down .grad after the first, the second and the third backward().",
        "Each update moves w by lr times what .grad holds at that moment: add these moves up.",
        "1 + 2 + … + n = n(n + 1)/2. If .grad is cleared after every k updates, this sum starts "
        "again n/k times."),
    question="A loss has the slope {g} everywhere, so each backward() adds a gradient of {g}. "
             "Plain SGD with lr = {lr} makes {n} updates from w = 0, without zero_grad(). In "
             "another run, for `windows`, zero_grad() runs after every window of {k} updates.",
    inputs={"g": (3, 9), "lr": [0.01, 0.02, 0.05], "n": [12, 24, 36], "k": [3, 4, 6]},
    answer=lambda g, lr, n, k: {"grad": float(n * g), "moved": lr * g * n * (n + 1) / 2,
                                "ratio": (n + 1) / 2, "windows": lr * g * n * (k + 1) / 2},
    parts=(Part("grad", "what .grad holds after the last backward()", 1),
           Part("moved", "how far w is from 0 after all updates", 1),
           Part("ratio", "how many times as far that is as with zero_grad() in every update", 1),
           Part("windows", "how far w is from 0 after the other run, cleared after every "
                           "window", 1)),
    wrong=(
        Wrong("replaced", lambda g, lr, n, k: {"grad": g}, "backward() adds to what is there."),
        Wrong("one-gradient-a-step", lambda g, lr, n, k: {"moved": lr * g * n, "ratio": 1.0},
              "That is one gradient per step. But a step uses all that .grad holds by then."),
        Wrong("one-step-a-window", lambda g, lr, n, k: {"windows": lr * g * n},
              "That uses each gradient once, as one step per window does. Here every update makes "
              "a step, with all gradients since the last zero_grad()."),
        Wrong("one-short", lambda g, lr, n, k: {"grad": (n - 1) * g, "ratio": (n - 1) / 2,
              "moved": lr * g * n * (n - 1) / 2, "windows": lr * g * n * (k - 1) / 2},
              "That begins with an empty update. The first update already has a gradient of {g}."),
        Wrong("half-a-square", lambda g, lr, n, k: {"moved": lr * g * n * n / 2, "ratio": n / 2,
              "windows": lr * g * n * k / 2}, "That takes half a square for the sum 1 + 2 + … . "
                                              "Add up 1 + 2 + 3, and compare it with 3²/2."),
        Wrong("last-one-always", lambda g, lr, n, k: {"moved": lr * g * n * n, "ratio": n,
              "windows": lr * g * n * k}, "Only the last move is that long; earlier ones are "
                                          "shorter."),
        Wrong("lr-forgotten", lambda g, lr, n, k: {
              "moved": g * n * (n + 1) / 2, "windows": g * n * (k + 1) / 2},
              "Those are the values of .grad, added up. Each move is lr = {lr} times one of them."),
        Wrong("of-the-other-run", lambda g, lr, n, k: {"grad": k * g, "ratio": (k + 1) / 2},
              "That belongs to the run that is cleared after every {k} updates. Without "
              "zero_grad() all {n} gradients add up."),
        Wrong("updates-alone", lambda g, lr, n, k: {"grad": n},
              "That is how many gradients have come. Each of them is {g}."),
        Wrong("all-of-them", lambda g, lr, n, k: {"grad": g * n * (n + 1) / 2},
              "That adds up what .grad held at each update. It asks for what it holds at the end."),
        Wrong("in-single-moves", lambda g, lr, n, k: {"ratio": n * (n + 1) / 2},
              "That counts moves of one gradient. With zero_grad() in every update there are {n} "
              "of them: divide."),
        Wrong("turned-over", lambda g, lr, n, k: {"ratio": 2 / (n + 1)},
              "That is the inverse. Without zero_grad() w goes farther, so the ratio is above 1."),
        Wrong("minus", lambda g, lr, n, k: {
              "moved": -lr * g * n * (n + 1) / 2, "windows": -lr * g * n * (k + 1) / 2},
              "That is where w ends. How far it is from 0 has no sign."),
        Wrong("g-forgotten", lambda g, lr, n, k: {
              "moved": lr * n * (n + 1) / 2, "windows": lr * n * (k + 1) / 2},
              "That is for a slope of 1. Here the slope is {g}."),
        Wrong("lr-inside", lambda g, lr, n, k: {"grad": lr * g * n}, "step() multiplies by lr."),
        Wrong("one-window", lambda g, lr, n, k: {"windows": lr * g * k * (k + 1) / 2},
              "That is how far the first {k} updates go; there are {n}."),
        Wrong("not-cleared", lambda g, lr, n, k: {"windows": lr * g * n * (n + 1) / 2},
              "That is without any clearing. With clearing, .grad grows to {k} gradients at most."),
    ),
)  # fmt: skip
