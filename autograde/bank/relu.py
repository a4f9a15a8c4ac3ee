"""01b.relu: ReLU and the way back through it, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from autograde.bank.harness import borrowed, numpy_only
from autograde.exercise import Answer, AnswerError, Case, Draw, Exercise, Part, Wrong, kept, pair
from course.from_scratch import activations


def draw(source: Draw, part: str) -> Case:
    """Numbers on both sides of 0, gradients of both signs; of some cases, zeros among them.

    Of the last case of `gate` all numbers are positive, so that y is x in value, and not in memory.
    """
    shape = [source.integer(2, 3), source.integer(3, 4)]
    shape = {"values": ([5], shape, [2, *shape])}.get(part, (shape, [6], [1, 4]))[source.index]
    signs = torch.ones(shape).flatten()
    signs[1::2] = -1  # every case has both
    x = (source.normal(*shape).abs() + 0.1) * signs.view(shape)
    x = 8 * x if part == "values" else x.abs() if (part, source.index) == ("gate", 2) else x
    if part == "zero":
        x.view(-1)[::3] = 0.0
    first, second = (source.normal(*shape).abs() + 0.1 for _ in range(2))
    turns = signs.view(shape) * (1 - 2 * source.integers(2, *shape).float())
    return {
        "x": x,
        "grads": [first * turns, -second * turns],
        "dtype": ("float64", "float32")[source.index % 2],
        "later": part == "later",
    }


def run(function, case: Case, device: torch.device) -> Answer:
    """Outputs, the gradients of two calls of backward, what the calls changed or gave twice."""
    x, *grads = (t.numpy().astype(case["dtype"]) for t in (case["x"], *case["grads"]))
    before = [array.copy() for array in (x, *grads)]
    with numpy_only():
        y, backward = pair(function(x), "y and backward")
        if not callable(backward):
            kind = type(backward).__name__
            raise AnswerError(f"The second thing returned is a {kind}; return the function.")
        answer: Answer = {"y": kept(as_array, y, "y")}
        y_again, _ = pair(function(x), "y and backward")  # same numbers, and an array of its own
        disturbed = ["x"] * (not np.array_equal(x, before[0]))
        if case["later"]:  # another forward pass, and the caller's array is used for other numbers
            function(-x)
            x[...] = 1.0
            before[0] = x.copy()
        returned = [y]
        memory = borrowed(y, {"x": x}) + borrowed(y_again, {AGAIN[0]: y})
        answer["grads"] = []
        for g in grads:
            returned.append(backward(g))
            memory += borrowed(returned[-1], {"x": x, "y": y, "grad_output": g})
            answer["grads"].append(kept(as_array, returned[-1], "what backward returned"))
        memory += borrowed(backward(grads[-1]), {AGAIN[1]: returned[-1]})
        function(1 - x)
    for name, now, was in zip(
        ("x", "grad_output", "grad_output"), (x, *grads), before, strict=True
    ):
        disturbed += [name] * (not np.array_equal(now, was))
    disturbed += _overwritten(returned, [answer["y"], *answer["grads"]])
    return answer | {
        "disturbed": list(dict.fromkeys(disturbed)),
        "memory": f"the memory of {' and '.join(dict.fromkeys(memory))}"
        if memory
        else "memory of its own",
    }


AGAIN = "the y of an earlier call", "the result of an earlier backward"
"""What a call with the same numbers may not hand out again."""


def _overwritten(returned: list[Any], were: list[Any]) -> list[str]:
    """Which results of earlier calls a later one has changed."""
    names = AGAIN[0], AGAIN[1], AGAIN[1]
    return [
        name
        for name, array, was in zip(names, returned, were, strict=True)
        if isinstance(was, torch.Tensor) and not torch.equal(as_array(array, ""), was)
    ]


def as_array(value: Any, what: str) -> torch.Tensor:
    """An array as a tensor of float64 (its dtype counts nothing here)."""
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "fiub":
        raise AnswerError(f"{what} is a {type(value).__name__}; it should be an array.")
    return torch.from_numpy(np.array(value, dtype=np.float64))


def reference(x: Any) -> tuple[Any, Any]:
    """The course's own two."""
    x = np.array(x)
    return activations.relu(x), lambda grad_output: activations.relu_backward(x, grad_output)


def gated(forward=lambda x: np.maximum(x, 0), gate=lambda x: x > 0, back=lambda g, m: g * m):
    """A right answer, or with one thing changed a wrong one."""

    def relu(x):
        mask = gate(x)
        return forward(x), lambda grad_output: back(grad_output, mask)

    return relu


def with_where(x):
    is_open = x > 0

    def backward(grad_output):
        return np.where(is_open, grad_output, 0.0)

    return np.where(is_open, x, 0.0), backward


def with_its_output(x):
    y = x.clip(min=0)
    kept_y = y.copy()

    def backward(grad_output):
        grad = grad_output.copy()
        grad[kept_y == 0] = 0
        return grad

    return y, backward


def with_sign(x):
    slope = np.maximum(np.sign(x), 0)
    return x * slope, lambda grad_output: grad_output * slope


open_at_zero = gated(gate=lambda x: x >= 0)
half_at_zero = gated(gate=lambda x: np.where(x == 0, 0.5, x > 0))
no_gate = gated(back=lambda g, m: g)
by_the_gradient = gated(back=lambda g, m: np.maximum(g, 0))
by_both = gated(back=lambda g, m: np.maximum(g, 0) * m)
by_the_output = gated(gate=lambda x: np.maximum(x, 0))
slope_only = gated(back=lambda g, m: 1.0 * m)
wrong_side = gated(back=lambda g, m: g * (1 - m))
sign_as_slope = gated(gate=np.sign)
leaky = gated(
    forward=lambda x: np.where(x > 0, x, 0.01 * x), gate=lambda x: np.where(x > 0, 1, 0.01)
)
leaky_back = gated(gate=lambda x: np.where(x > 0, 1, 0.01))
absolute = gated(forward=np.abs)
capped = gated(forward=lambda x: x.clip(0, 6), gate=lambda x: (x > 0) & (x < 6))
summed = gated(back=lambda g, m: (g * m).sum())


def in_place(x):
    mask = x > 0
    x[~mask] = 0
    return x, lambda grad_output: grad_output * mask


def in_place_and_copied(x):
    mask = x > 0
    x *= mask
    return x.copy(), lambda grad_output: grad_output * mask


def spoils_the_gradient(x):
    mask = x > 0

    def backward(grad_output):
        grad_output[~mask] = 0
        return grad_output

    return np.maximum(x, 0), backward


def looks_later(x):
    return np.maximum(x, 0), lambda grad_output: grad_output * (x > 0)


def of_the_last_call(x):
    of_the_last_call.mask = x > 0
    return np.maximum(x, 0), lambda grad_output: grad_output * of_the_last_call.mask


def adds_up(x):
    mask, total = x > 0, np.zeros_like(x)

    def backward(grad_output):
        nonlocal total
        total = total + grad_output * mask
        return total

    return np.maximum(x, 0), backward


def adds_up_in_place(x):
    mask, total = x > 0, np.zeros_like(x)

    def backward(grad_output):
        nonlocal total
        total += grad_output * mask
        return total

    return np.maximum(x, 0), backward


def itself_if_open(x):
    mask = x > 0
    return x if mask.all() else x * mask, lambda g: g if mask.all() else g * mask


def gradient_itself_if_open(x):
    mask = x > 0
    return x * mask, lambda grad_output: grad_output if mask.all() else grad_output * mask


def x_itself_if_open(x):
    mask = x > 0
    return x if mask.all() else x * mask, lambda grad_output: grad_output * mask


def buffer_for_values(x):
    buffers, mask = vars(buffer_for_values), x > 0
    key = f"{x.shape} {x.dtype}"
    y = np.maximum(x, 0, out=buffers.setdefault(key, np.empty_like(x)))
    return y, lambda grad_output: grad_output * mask


def buffer_for_gradients(x):
    mask, out = x > 0, np.empty_like(x)
    return np.maximum(x, 0), lambda grad_output: np.multiply(grad_output, mask, out=out)


def kept_by_value(x):
    kept_ys, mask = vars(kept_by_value), x > 0
    y = kept_ys.setdefault(f"{x.tobytes()} {x.shape} {x.dtype}", np.maximum(x, 0))
    return y, lambda grad_output: grad_output * mask


def gradients_kept_by_value(x):
    mask, grads = x > 0, {}

    def backward(grad_output):
        return grads.setdefault(grad_output.tobytes(), grad_output * mask)

    return np.maximum(x, 0), backward


def flattened(x):
    mask = x > 0
    return np.maximum(x, 0), lambda grad_output: (grad_output * mask).ravel()


def whole_numbers(x):
    mask = x > 0
    return np.maximum(x, 0), lambda grad_output: (grad_output * mask).astype(int)


def matrices_only(x):
    mask = x > 0
    return np.maximum(x, 0), lambda grad_output: grad_output * mask if x.ndim > 1 else grad_output


def by_places(x):
    places = np.nonzero(x > 0)

    def backward(grad_output):
        grad = np.zeros(np.shape(grad_output))
        grad[places] = grad_output[places]
        return grad

    return (x + np.abs(x)) / 2, backward


def returns_the_slope(x):
    return np.maximum(x, 0), (x > 0).astype(float)


EXERCISE = Exercise(
    id="01b.relu",
    title="ReLU, there and back",
    source='Annotated-loop essay, "The model"',
    ledger=("X47", "N16"),
    minutes=8,
    difficulty=1,
    read=("N16", "course.from_scratch.activations"),
    hints=(
        "What is the slope of y with respect to x where x is 2? And where it is -2?",
        "backward multiplies what arrives by 1 or 0. What decides is the x of the forward pass.",
        "Keep is_open = x > 0 (an array of its own); return np.maximum(x, 0) and a function that "
        "returns np.where(is_open, grad_output, 0).",
    ),
    signature="relu(x)",
    parts=(
        Part(
            "values", "y, for arrays of one to three dimensions", points=1, cases=3, fields=("y",)
        ),
        Part(
            "gate",
            "gradients of both signs, twice",
            points=1,
            cases=3,
            fields=("grads", "disturbed", "memory"),
        ),
        Part("zero", "x is exactly 0 in places", points=1, fields=("grads",)),
        Part("later", "another call, or x overwritten, before backward", points=1, hidden=True),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "y": "y",
        "grads": "what backward returned, call",
        "memory": "what came back lies in",
    },
    by_hand=(activations.relu, activations.relu_backward),
    wrong=(
        Wrong(
            "open-at-zero",
            open_at_zero,
            "A gradient passed where x is exactly 0. There the slope is 0 by agreement, as in "
            "torch: x > 0, not x >= 0.",
            sure=True,
        ),
        Wrong(
            "half-at-zero",
            half_at_zero,
            "Half of the gradient passed where x is exactly 0. There the slope is 0 by agreement, "
            "as in torch.",
            sure=True,
        ),
        Wrong(
            "no-gate",
            no_gate,
            "The gradient came back unchanged, even where x is negative. There y does not change "
            "with x: the slope is 0.",
        ),
        Wrong(
            "by-the-gradient",
            by_the_gradient,
            "The gradient itself was cut off at 0. What opens or closes the gate is the x of the "
            "forward pass; an open gate lets a negative gradient pass.",
            sure=True,
        ),
        Wrong(
            "by-both",
            by_both,
            "Negative gradients were cut off at open gates too. An open gate passes any gradient.",
            sure=True,
        ),
        Wrong(
            "by-the-output",
            by_the_output,
            "The gradient was multiplied by y. Where the gate is open, its slope is 1.",
        ),
        Wrong(
            "slope-only",
            slope_only,
            "Only 0 and 1 came back: those are the slopes. Multiply the arriving gradient by them.",
            sure=True,
        ),
        Wrong(
            "wrong-side",
            wrong_side,
            "The gradient came back where x is negative, but not where it is positive.",
        ),
        Wrong(
            "sign-as-slope",
            sign_as_slope,
            "Where x is negative the gradient came back with its sign flipped. The slope is 0 "
            "there, not -1.",
        ),
        Wrong(
            "leaky",
            leaky,
            "A hundredth of the negative numbers came through: that is leaky ReLU. Here they "
            "become 0, and so does their slope.",
        ),
        Wrong("leaky-back", leaky_back),
        Wrong("absolute", absolute),
        Wrong(
            "capped",
            capped,
            "y does not pass 6: that is ReLU6. Plain ReLU has no upper limit.",
        ),
        Wrong("summed", summed),
        Wrong(
            "in-place",
            in_place,
            "x itself was changed. Make a new array: np.maximum(x, 0) does.",
            sure=True,
        ),
        Wrong(
            "in-place",
            in_place_and_copied,
            sure=True,
        ),
        Wrong(
            "spoils-the-gradient",
            spoils_the_gradient,
            "grad_output itself was changed. Make a new array: np.where(...) does.",
            sure=True,
        ),
        Wrong(
            "looks-later",
            looks_later,
            "backward looked at x as it is now, but the caller had overwritten it. Decide in the "
            "forward pass which gates are open, and keep that array.",
            sure=True,
        ),
        Wrong(
            "of-the-last-call",
            of_the_last_call,
            "The first call's backward used the gates of a later call. Keep them in a local "
            "variable of the call: a global variable, or an attribute of the function, is shared "
            "by all calls.",
        ),
        Wrong(
            "adds-up",
            adds_up,
            "The second backward also returned the first one's gradient. Each call uses only its "
            "own grad_output: keep nothing from earlier calls.",
        ),
        Wrong("adds-up", adds_up_in_place),
        Wrong(
            "not-new",
            itself_if_open,
            "With all gates open, the very array that was passed in came back, so changing one of "
            "the two changes the other. Make a new array in every case.",
            sure=True,
        ),
        Wrong("not-new", gradient_itself_if_open, sure=True),
        Wrong("not-new", x_itself_if_open, sure=True),
        Wrong(
            "one-buffer",
            buffer_for_values,
            "A later call overwrote what an earlier one had returned. Make a new array in every "
            "call.",
            sure=True,
        ),
        Wrong("one-buffer", buffer_for_gradients, sure=True),
        Wrong(
            "kept-by-value",
            kept_by_value,
            "Two calls with the same numbers returned one and the same array, so changing one "
            "result changes the other. Make a new array in every call.",
            sure=True,
        ),
        Wrong("kept-by-value", gradients_kept_by_value, sure=True),
        Wrong(
            "returns-the-slope",
            returns_the_slope,
            "The second result is an array, made before any gradient had arrived. Define a "
            "function inside relu that takes grad_output, and return it without calling it.",
            raises="AnswerError: The second thing returned is a ndarray",
            sure=True,
        ),
        Wrong("flattened", flattened),
        Wrong("whole-numbers", whole_numbers),
        Wrong("matrices-only", matrices_only),
    ),
    right=(gated(), with_where, with_its_output, with_sign, by_places),
)
