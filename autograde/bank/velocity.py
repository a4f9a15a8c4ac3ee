"""04a.velocity: momentum under a constant gradient, step by step and in the limit."""

from autograde.exercise import Part, Wrong
from autograde.kinds import Number

EXERCISE = Number(
    id="04a.velocity", title="momentum under a constant gradient", minutes=6, difficulty=1,
    source='Annotated-loop essay, "The weight update"', ledger=("N30", "T17"), read=("N30", "F149"),
    hints=("Write down v after each step: the first one is g itself.",
           "v ← μ·v + g, then θ ← θ - lr·v: the rate multiplies all of v. When does v stop "
           "changing?",
           "v: g, (1 + μ)g, (1 + μ + μ²)g; the weight moves by lr times their sum. A v that "
           "stays the same solves v = μv + g. Nesterov's step is lr·(g + μ·v), with the new v."),
    question="torch's SGD with lr = {lr} and momentum {mu}; the weight is 0 before the first step "
    "and its gradient is {g} at every step.",
    inputs={"lr": [0.02, 0.05, 0.1, 0.2], "mu": [0.5, 0.6, 0.7, 0.8], "g": (2, 9)},
    answer=lambda lr, mu, g: {
        "velocity": g * (1 + mu + mu**2), "weight": -lr * g * (3 + 2 * mu + mu**2),
        "limit": lr * g / (1 - mu), "nesterov": -lr * g * (1 + mu)},
    parts=(Part("velocity", "the velocity after three steps", points=1),
           Part("weight", "the weight after three steps, with its sign", points=1),
           Part("limit", "the length of a step, after very many steps", points=0.5),
           Part("nesterov", "the weight after one step with nesterov=True", points=0.5)),
    wrong=tuple(Wrong(name, answer, message) for name, answer, message in (
        ("damped", lambda lr, mu, g: {
         "velocity": g * (1 - mu**3), "weight": -lr * g * (3 - mu - mu**2 - mu**3)},
         "That averages: g is multiplied by 1 - {mu}. torch adds all of g: v ← {mu}·v + g."),
        ("no-memory", lambda lr, mu, g: {"velocity": float(g), "weight": -3.0 * lr * g},
         "That is SGD without momentum: here {mu} of the last velocity stays."),
        ("one-gradient", lambda lr, mu, g: {"limit": lr * g}, "v grows until v = {mu}·v + {g}."),
        ("factor-alone", lambda lr, mu, g: {"limit": 1 / (1 - mu)},
         "That is how many times as long a step becomes. Without momentum it is {lr}·{g}."),
        ("by-momentum", lambda lr, mu, g: {"limit": lr * g / mu},
         "That divides by {mu}. A v that stays the same solves v = {mu}·v + {g}."),
        ("signed-length", lambda lr, mu, g: {"limit": -lr * g / (1 - mu)}, "A length has no sign."),
        ("gradient-left-out", lambda lr, mu, g: {"nesterov": -lr * g * mu},
         "That leaves out the gradient. Nesterov's step goes along g + {mu}·v."),
        ("a-step-long", lambda lr, mu, g: {"velocity": g * (1 + mu + mu**2 + mu**3),
         "weight": -lr * g * (4 + 3 * mu + 2 * mu**2 + mu**3)},
         "That is the value after four steps: the first step's v is the gradient itself, {g}."),
        ("no-look-ahead", lambda lr, mu, g: {"nesterov": -lr * g},
         "That is the step without nesterov. With it: along g + {mu}·v, where v is {g} by then."),
        ("a-step-further", lambda lr, mu, g: {"nesterov": -lr * g * (1 + mu + mu**2)},
         "That uses the v of two steps. In the first one v is the gradient itself, {g}."),
        ("rate-inside", lambda lr, mu, g: {"velocity": lr * g * (1 + mu + mu**2)}, "v has no lr."),
        ("a-step-short", lambda lr, mu, g: {"velocity": g * (1 + mu), "weight": -lr * g * (2 + mu)},
         "That is the value after two steps: the first step's v is the gradient itself."),
        ("undamped", lambda lr, mu, g: {"velocity": 3.0 * g, "weight": -6.0 * lr * g},
         "That keeps all of v. Each step keeps {mu} of it, then adds {g}."),
        ("third-step", lambda lr, mu, g: {"weight": -lr * g * (1 + mu + mu**2)},
         "That is the third move alone. The weight adds up all three."),
        ("uphill", lambda lr, mu, g: {
         "weight": lr * g * (3 + 2 * mu + mu**2), "nesterov": lr * g * (1 + mu)},
         "The size is right, but the sign is not: a step goes against the gradient."),
        ("no-rate", lambda lr, mu, g: {"limit": g / (1 - mu), "nesterov": -g * (1 + mu)},
         "The rate of {lr} is missing: the weight moves by lr times the velocity."))))  # fmt: skip
