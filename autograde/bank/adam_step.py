"""04a.adam: one step of Adam in NumPy, with the state in and out."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from autograde.bank.common_wrong import common, named
from autograde.bank.harness import Watch
from autograde.exercise import Answer, AnswerError, Case, Draw, Exercise, Part, Wrong, pair
from course.from_scratch import optimizers


def draw(source: Draw, part: str) -> Case:
    """Gradients for one parameter, or for two in turn; lr, betas and eps differ.

    Gradients of the first step reach from 1e-6 to 1e3; eps is large in every second case, or else
    nobody could see where it stands. The two parameters have one shape in every second case, so
    that what is kept by shape is kept for both.
    """
    turns = {"first": [0], "steps": [0] * 5, "own": [0, 1, 1, 0, 1], "zeros": [0] * 4}[part]
    shapes = [(source.integer(2, 4),), (source.integer(1, 2), 2)]
    if part == "own" and source.index == 1:
        shapes[0] = shapes[1]
    grads = [source.normal(*shapes[at]) + 0.05 for at in turns]
    if part == "first":
        grads = [source.choice([-1, 1]) * torch.tensor([1e-6, 1e-3, 1.0, 1e3])]
        shapes[0] = (4,)
    if part == "zeros":  # one entry never has a gradient, another not at first
        for grad in grads:
            grad[0] = 0.0
        grads[0][1] = 0.0
    if part == "steps":  # what has been moving goes on without a gradient
        grads[-1][1] = 0.0
    return {
        "thetas": [source.normal(*shape) for shape in shapes],
        "turns": turns,
        "grads": grads,
        "lrs": [source.choice([0.05, 0.1, 0.2]) * (1 + i) for i in range(len(turns))],
        "betas": [source.choice([0.5, 0.8, 0.9]), source.choice([0.95, 0.99, 0.999])],
        "eps": 1e-8 if part == "zeros" or source.index == 0 else source.uniform(0.01, 0.1),
        "dtype": "float32" if part == "zeros" and source.index else "float64",
    }


def run(function, case: Case, device: torch.device) -> Answer:
    """The parameter after each step, and what was changed of that which was handed over."""
    thetas, grads = (
        [given.numpy().astype(case["dtype"]) for given in case[name]]
        for name in ("thetas", "grads")
    )
    handed = {f"theta of parameter {i}": array for i, array in enumerate(thetas)}
    handed |= {f"grad of step {i}": array for i, array in enumerate(grads)}
    watch = Watch(data={name: torch.from_numpy(array) for name, array in handed.items()})
    states: list = [{} for _ in thetas]
    path = []
    for at, grad, lr in zip(case["turns"], grads, case["lrs"], strict=True):
        with np.errstate(all="ignore"):
            returned = function(thetas[at], grad, states[at], lr, tuple(case["betas"]), case["eps"])
        new, states[at] = pair(returned, "the new theta and the state")
        thetas[at] = _read(new, thetas[at])
        path.append(torch.from_numpy(thetas[at].copy()))
    disturbed = watch.changed()
    _ask_again(function, case, path[0])
    return {"path": path, "disturbed": disturbed}


def _ask_again(function, case: Case, once: Tensor) -> None:
    """Refuse what gives another first step the second time: all that it knows is in the state."""
    at = case["turns"][0]
    theta, grad = (
        one.numpy().astype(case["dtype"]) for one in (case["thetas"][at], case["grads"][0])
    )
    with np.errstate(all="ignore"):
        returned = function(theta, grad, {}, case["lrs"][0], tuple(case["betas"]), case["eps"])
    new, _ = pair(returned, "the new theta and the state")
    again = torch.from_numpy(_read(new, theta).copy())
    if not torch.equal(again.nan_to_num(), once.nan_to_num()):
        raise AnswerError(
            "The same first step, with an empty state, gave another theta the second time: "
            "something was remembered outside of `state`, as in a default argument or a variable "
            "of the notebook. Keep m, v and t in the state that you return."
        )


def _read(new: object, old: np.ndarray) -> np.ndarray:
    """The parameter in the old one's dtype: np.sqrt of a float is a float64, which may come in."""
    if isinstance(new, Tensor) or not isinstance(new, np.ndarray) or new.shape != old.shape:
        kind = f"{type(new).__name__} of shape {list(getattr(new, 'shape', []))}"
        raise AnswerError(
            f"The new theta is a {kind}; an array of shape {list(old.shape)} is asked for."
        )
    return new.astype(old.dtype)


def reference(theta, grad, state, lr, betas, eps):
    """The course's own step."""
    return optimizers.adam_step(theta, grad, state, lr=lr, betas=betas, eps=eps)


def _move(m, v, share1, share2, eps, _grad):
    return (m / share1) / (np.sqrt(v / share2) + eps)


def _mean(beta, old, new):
    return beta * old + (1 - beta) * new


def _shares(beta1, beta2, t):
    return 1 - beta1**t, 1 - beta2**t


def _adam(name="", *, mean=_mean, square=lambda b, v, g: _mean(b, v, g * g), move=_move,
          shares=_shares, squares_of_m=False, swap=False, keeps=dict, lost=()):  # fmt: skip
    """Adam with one thing of it exchanged; the shares are 1 - beta to the power of the step."""

    def adam_step(theta, grad, state, lr, betas, eps):
        state = keeps(state)
        beta1, beta2 = betas[::-1] if swap else betas
        t = state.get("t", 0) + 1
        m = mean(beta1, state.get("m", np.zeros_like(theta)), grad)
        squared = m if squares_of_m else grad
        v = square(beta2, state.get("v", np.zeros_like(theta)), squared)
        moved = theta - lr * move(m, v, *shares(beta1, beta2, t), eps, grad)
        new = {"t": t, "m": m, "v": v}
        return moved, {key: value for key, value in new.items() if key not in lost}

    return named(name, adam_step)


def started_at(t):
    """t is one too large in each step."""

    def adam_step(theta, grad, state, lr, betas, eps):
        return plain(theta, grad, {**state, "t": state.get("t", t)}, lr, betas, eps)

    return named("started_at", adam_step)


def corrected_once(theta, grad, state, lr, betas, eps):
    t, m, v = state.get("t", 0) + 1, state.get("m", 0.0), state.get("v", 0.0)
    m, v = _mean(betas[0], m, grad), _mean(betas[1], v, grad**2)
    share1, share2 = _shares(*betas, 1) if t == 1 else (1, 1)
    return theta - lr * _move(m, v, share1, share2, eps, grad), {"t": t, "m": m, "v": v}


def along_the_old_m(corrected):
    """The m that came in, corrected as the new one would be, or as it is."""

    def adam_step(theta, grad, state, lr, betas, eps):
        m = state.get("m", np.zeros_like(theta))
        _, new = plain(theta, grad, state, lr, betas, eps)
        share1, share2 = _shares(*betas, new["t"])
        return theta - lr * _move(m, new["v"], share1 if corrected else 1, share2, eps, grad), new

    return named("along_the_old_m", adam_step)


def amsgrad(corrected):
    """The largest v so far, as in torch's AMSGrad, or the largest corrected one."""

    def adam_step(theta, grad, state, lr, betas, eps):
        _, new = plain(theta, grad, state, lr, betas, eps)
        share1, share2 = _shares(*betas, new["t"])
        v, share2 = (new["v"] / share2, 1) if corrected else (new["v"], share2)
        top = np.maximum(state.get("top", 0.0), v)
        moved = theta - lr * _move(new["m"], top, share1, share2, eps, grad)
        return moved, {**new, "top": top}

    return named("amsgrad", adam_step)


def zeros_stand_still(theta, grad, state, lr, betas, eps):
    moved, new = plain(theta, grad, state, lr, betas, eps)
    return np.where(grad == 0, theta, moved), new


def zeros_are_no_step(theta, grad, state, lr, betas, eps):
    t, still = state.get("t", 0) + 1, grad == 0
    m, v = state.get("m", 0 * grad), state.get("v", 0 * grad)
    m = np.where(still, m, _mean(betas[0], m, grad))
    v = np.where(still, v, _mean(betas[1], v, grad * grad))
    moved = theta - lr * _move(m, v, *_shares(*betas, t), eps, grad)
    return moved, {"t": t, "m": m, "v": v}


_shared: dict = {}


def one_state_for_all(theta, grad, state, lr, betas, eps):
    """The state that comes in is ignored for one outside of the function, by shape."""
    moved, _shared[theta.shape] = plain(theta, grad, _shared.get(theta.shape, {}), lr, betas, eps)
    return moved, {}


def in_place(theta, grad, state, lr, betas, eps):
    new, state = plain(theta, grad, state, lr, betas, eps)
    theta[...] = new
    return theta, state


def rate_in_m(theta, grad, state, lr, betas, eps):
    t = state.get("t", 0) + 1
    m = _mean(betas[0], state.get("m", 0.0), lr * grad)
    v = _mean(betas[1], state.get("v", 0.0), grad**2)
    m_hat, v_hat = m / (1 - betas[0] ** t), v / (1 - betas[1] ** t)
    return theta - m_hat / (np.sqrt(v_hat) + eps), {"t": t, "m": m, "v": v}


def one_starts_at_gradient(both):
    """m, or both, are the first gradient's and are corrected."""

    def adam_step(theta, grad, state, lr, betas, eps):
        v = state.get("v", grad**2 if both else 0.0)
        return plain(theta, grad, {**state, "m": state.get("m", grad), "v": v}, lr, betas, eps)

    return named("one_starts_at_gradient", adam_step)


def eps_on_theta(theta, grad, state, lr, betas, eps):
    moved, state = plain(theta, grad, state, lr, betas, 0.0)
    return moved + eps, state


def corrected_kept(theta, grad, state, lr, betas, eps):
    t = state.get("t", 0) + 1
    m = _mean(betas[0], state.get("m", 0.0), grad) / (1 - betas[0] ** t)
    v = _mean(betas[1], state.get("v", 0.0), grad**2) / (1 - betas[1] ** t)
    return theta - lr * m / (np.sqrt(v) + eps), {"t": t, "m": m, "v": v}


def starts_at_gradient(theta, grad, state, lr, betas, eps):
    m = _mean(betas[0], state.get("m", grad), grad)
    v = _mean(betas[1], state.get("v", grad**2), grad**2)
    return theta - lr * m / (np.sqrt(v) + eps), {"m": m, "v": v}


def a_step_behind(theta, grad, state, lr, betas, eps):
    t = state.get("t", 0)
    m = _mean(betas[0], state.get("m", 0.0), grad)
    v = _mean(betas[1], state.get("v", 0.0), grad**2)
    m_hat, v_hat = m / (1 - betas[0] ** max(t, 1)), v / (1 - betas[1] ** max(t, 1))
    return theta - lr * m_hat / (np.sqrt(v_hat) + eps), {"t": t + 1, "m": m, "v": v}


def counted_from_zero(theta, grad, state, lr, betas, eps):
    t = state.get("t", 0)
    m = _mean(betas[0], state.get("m", 0.0), grad)
    v = _mean(betas[1], state.get("v", 0.0), grad**2)
    below = np.sqrt(v / np.float64(1 - betas[1] ** t)) + eps
    return theta - lr * m / np.float64(1 - betas[0] ** t) / below, {"t": t + 1, "m": m, "v": v}


def divided_by_python_zero(theta, grad, state, lr, betas, eps):
    """The same, where what is divided is a number of Python's."""
    t = state.get("t", 0)
    m_share, v_share = 1 / (1 - betas[0] ** t), 1 / (1 - betas[1] ** t)
    m = _mean(betas[0], state.get("m", 0.0), grad)
    v = _mean(betas[1], state.get("v", 0.0), grad**2)
    moved = theta - lr * m * m_share / (np.sqrt(v * v_share) + eps)
    return moved, {"t": t + 1, "m": m, "v": v}


def first_uncorrected(theta, grad, state, lr, betas, eps):
    """t is that of the step before, and at t = 0 nothing is corrected."""
    t = state.get("t", 0)
    m = _mean(betas[0], state.get("m", 0.0), grad)
    v = _mean(betas[1], state.get("v", 0.0), grad**2)
    shares = _shares(*betas, t) if t else (1, 1)
    return theta - lr * _move(m, v, *shares, eps, grad), {"t": t + 1, "m": m, "v": v}


class CountedForAll:
    """One t for every parameter that ever came, kept outside of the state."""

    __name__ = "counted_for_all"

    def __init__(self):
        self.t = 0

    def __call__(self, theta, grad, state, lr, betas, eps):
        moved, state = plain(theta, grad, {**state, "t": self.t}, lr, betas, eps)
        self.t += 1
        return moved, state


class CountedByShape:
    """One t for all parameters of a shape, kept outside of the state; an empty one begins again."""

    __name__ = "counted_by_shape"

    def __init__(self):
        self.t = {}

    def __call__(self, theta, grad, state, lr, betas, eps):
        t = self.t.get(theta.shape, 0) if state else 0
        moved, state = plain(theta, grad, {**state, "t": t}, lr, betas, eps)
        self.t[theta.shape] = t + 1
        return moved, state


def plain(theta, grad, state, lr, betas, eps):
    t = state.get("t", 0) + 1
    m = betas[0] * state.get("m", 0.0) + (1 - betas[0]) * grad
    v = betas[1] * state.get("v", 0.0) + (1 - betas[1]) * grad**2
    m_hat, v_hat = m / (1 - betas[0] ** t), v / (1 - betas[1] ** t)
    return theta - lr * m_hat / (np.sqrt(v_hat) + eps), {"t": t, "m": m, "v": v}


def rate_of_the_first(theta, grad, state, lr, betas, eps):
    lr = state.get("lr", lr)
    moved, new = plain(theta, grad, state, lr, betas, eps)
    return moved, {**new, "lr": lr}


def usual_betas(theta, grad, state, lr, betas, eps):
    return plain(theta, grad, state, lr, (0.9, 0.999), eps)


def usual_eps(theta, grad, state, lr, betas, eps):
    return plain(theta, grad, state, lr, betas, 1e-8)


def with_setdefault(theta, grad, state, lr, betas, eps):
    b1, b2 = betas
    state.setdefault("step", 0)
    state.setdefault("m", np.zeros_like(theta))
    state.setdefault("v", np.zeros_like(theta))
    state["step"] += 1
    state["m"] = state["m"] + (1 - b1) * (grad - state["m"])
    state["v"] = state["v"] + (1 - b2) * (grad**2 - state["v"])
    size = lr / (1 - b1 ** state["step"])
    below = np.sqrt(state["v"]) / np.sqrt(1 - b2 ** state["step"]) + eps
    return theta - size * state["m"] / below, state


def with_running_products(theta, grad, state, lr, betas, eps):
    m, v, left1, left2 = state.get("all", (0.0, 0.0, 1.0, 1.0))
    m, v = betas[0] * m + (1 - betas[0]) * grad, betas[1] * v + (1 - betas[1]) * np.square(grad)
    left1, left2 = left1 * betas[0], left2 * betas[1]
    step = lr * (m / (1 - left1)) / ((v / (1 - left2)) ** 0.5 + eps)
    return theta - step.astype(theta.dtype), {"all": (m, v, left1, left2)}


EXERCISE = Exercise(
    id="04a.adam",
    title="one step of Adam in NumPy",
    source='Annotated-loop essay, "The weight update"',
    ledger=("X52", "N31", "N33", "F64", "F70"),
    minutes=12,
    difficulty=2,
    read=("course.from_scratch.optimizers.adam_step", "N31", "N33"),
    hints=(
        "Three things are kept from one step to the next. Which are they, and what are their "
        "initial values?",
        "Read the state with state.get('m', 0.0), because it may be empty. Count t up first.",
        "m = b1*m + (1 - b1)*g and v = b2*v + (1 - b2)*g*g; divide m by 1 - b1**t and v by "
        "1 - b2**t; theta - lr * m_hat / (np.sqrt(v_hat) + eps); return it with the new state.",
    ),
    signature="adam_step(theta, grad, state, lr, betas, eps)",
    parts=(
        Part(
            "first",
            "the first step, for gradients from 1e-6 to 1000",
            points=1,
            cases=3,
            fields=("path",),
        ),
        Part(
            "steps",
            "five steps, each with another lr; other betas and eps",
            points=1.5,
            cases=3,
            fields=("path",),
        ),
        Part("own", "two parameters in turn, each with its own state", 1, fields=("path",)),
        Part("kept", "the steps, and the arguments unchanged", 0.5, fields=("disturbed", "path")),
        Part(
            "zeros",
            "entries without a gradient, and float32",
            points=1,
            hidden=True,
            cases=3,
            fields=("path",),
        ),
    ),
    by_hand=(
        torch.optim.Adam.step,
        torch.optim.SparseAdam.step,
        torch.optim.NAdam.step,
        torch.optim.RAdam.step,
        torch.optim.Adamax.step,
        "torch.optim.adam",
        "torch.optim.nadam",
        "torch.optim.radam",
        "torch.optim.adamax",
        "torch.optim._functional",
        "sklearn.neural_network._stochastic_optimizers",
    ),
    reference=reference,
    draw=lambda source, part: draw(source, "first" if part == "kept" else part),
    run=run,
    says={"path": "theta after step (counted from 0)"},
    wrong=(
        Wrong(
            "no-correction",
            _adam("no_correction", move=lambda m, v, a, b, eps, g: m / (np.sqrt(v) + eps)),
            "The averages begin at 0 and were used as they are, so early steps have the wrong "
            "size. Divide m by 1 - beta1**t and v by 1 - beta2**t.",
        ),
        Wrong(
            "v-not-corrected",
            _adam("v_not_corrected", move=lambda m, v, a, b, eps, g: m / a / (np.sqrt(v) + eps)),
            "m was corrected for its start at 0, v was not: divide it by 1 - beta2**t.",
        ),
        Wrong(
            "m-not-corrected",
            _adam("m_not_corrected", move=lambda m, v, a, b, eps, g: m / (np.sqrt(v / b) + eps)),
            "v was corrected for its start at 0, m was not: divide it by 1 - beta1**t.",
        ),
        Wrong(
            "corrected-outside-the-root",
            _adam("outside", move=lambda m, v, a, b, eps, g: m / a / (np.sqrt(v) / b + eps)),
            "The root of v was divided by 1 - beta2**t. Correct v first, v / (1 - beta2**t), then "
            "take the root.",
        ),
        Wrong(
            "eps-inside",
            _adam("eps_inside", move=lambda m, v, a, b, eps, g: m / a / np.sqrt(v / b + eps)),
            "eps was added under the root. It is added to the root: np.sqrt(v_hat) + eps.",
        ),
        Wrong(
            "eps-before-correction",
            _adam("eps_early", move=lambda m, v, a, b, eps, g: m / a * b**0.5 / (v**0.5 + eps)),
            "eps was added before v was corrected, so the correction scaled it. Correct v, take "
            "the root, then add eps.",
        ),
        Wrong(
            "eps-left-out",
            _adam("eps_left_out", move=lambda m, v, a, b, eps, g: m / a / np.sqrt(v / b)),
            "eps is missing in the denominator, where it prevents 0 / 0.",
        ),
        Wrong(
            "no-root",
            _adam("no_root", move=lambda m, v, a, b, eps, g: m / a / (v / b + eps)),
            "m was divided by v itself. v holds squares: divide by its root.",
        ),
        Wrong(
            "gradient-for-m",
            _adam("gradient_for_m", move=lambda m, v, a, b, eps, g: g / (np.sqrt(v / b) + eps)),
            "The step followed the last gradient alone; it goes along m, the average of them.",
        ),
        Wrong(
            "betas-swapped",
            _adam("betas_swapped", swap=True),
            "beta1 and beta2 are swapped: the first belongs to m, the second to v.",
        ),
        Wrong(
            "adds-up",
            _adam("adds_up", mean=lambda b, m, g: b * m + g),
            "m adds the whole gradient, as momentum does in SGD. Adam averages: the gradient "
            "enters with 1 - beta1.",
        ),
        Wrong(
            "both-add-up",
            _adam(
                "both_add_up", mean=lambda b, m, g: b * m + g, square=lambda b, v, g: b * v + g * g
            ),
            "m and v add the whole gradient and the whole square. Both are averages: what is new "
            "enters with 1 - beta.",
        ),
        Wrong(
            "v-adds-up",
            _adam("v_adds_up", square=lambda b, v, g: b * v + g * g),
            "v adds the whole square. It is an average: the square enters with 1 - beta2.",
        ),
        Wrong(
            "shares-swapped",
            _adam(
                "shares_swapped",
                mean=lambda b, m, g: (1 - b) * m + b * g,
                square=lambda b, v, g: (1 - b) * v + b * g * g,
            ),
            "beta and 1 - beta are swapped: the old average is kept with beta, and what is new "
            "enters with 1 - beta.",
        ),
        Wrong(
            "size-for-square",
            _adam("size_for_square", square=lambda b, v, g: _mean(b, v, abs(g))),
            "v averaged the sizes of the gradient, |g|. It averages the squares, grad**2.",
        ),
        Wrong(
            "size-without-root",
            _adam(
                "size_without_root",
                square=lambda b, v, g: _mean(b, v, abs(g)),
                move=lambda m, v, a, b, eps, g: m / a / (v / b + eps),
            ),
            "m was divided by an average of |g|. v averages the squares, grad**2, and the root is "
            "taken of that average.",
        ),
        Wrong(
            "a-step-ahead",
            started_at(1),
            "The correction is that of the next step: t is 1 in the first step, 2 in the second. "
            "Begin at 0 and count up once.",
        ),
        Wrong(
            "corrected-once",
            corrected_once,
            "The first step is right, but in later ones the averages were not corrected. Divide by "
            "1 - beta**t in every step.",
        ),
        Wrong(
            "eps-as-a-floor",
            _adam(
                "eps_as_a_floor",
                move=lambda m, v, a, b, eps, g: m / a / np.maximum(np.sqrt(v / b), eps),
            ),
            "Where eps is smaller than the root it had no effect: the larger of the two was used. "
            "eps is added to the root.",
        ),
        Wrong(
            "largest-so-far",
            amsgrad(corrected=False),
            "v never became smaller: the largest one so far was used, as in AMSGrad. Adam divides "
            "by this step's v.",
        ),
        Wrong("largest-so-far", amsgrad(corrected=True)),
        Wrong(
            "largest-so-far",
            _adam("largest_kept", square=lambda b, v, g: np.maximum(v, _mean(b, v, g * g))),
        ),
        Wrong(
            "along-the-old-m",
            along_the_old_m(corrected=True),
            "The step went along the m of the step before. First put the gradient into m, then "
            "move.",
        ),
        Wrong("along-the-old-m", along_the_old_m(corrected=False)),
        Wrong(
            "one-v-for-all",
            _adam("one_v", square=lambda b, v, g: _mean(b, v, (g * g).mean() + 0 * g)),
            "All entries were divided by the same number. v has one entry for each entry of theta.",
        ),
        Wrong(
            "one-v-for-all",
            _adam("summed_v", square=lambda b, v, g: _mean(b, v, (g * g).sum() + 0 * g)),
        ),
        Wrong(
            "square-left-out",
            _adam("square_left_out", square=_mean),
            "v averaged the gradient itself, so its root is nan where that is negative. It "
            "averages the square: grad**2.",
            sure=True,
        ),
        Wrong(
            "beta-times-t",
            _adam("beta_times_t", shares=lambda b1, b2, t: (1 - b1 * t, 1 - b2 * t)),
            "The averages were divided by 1 - beta * t. t is an exponent: 1 - beta**t.",
            sure=True,
        ),
        Wrong(
            "eps-after-the-fraction",
            _adam("eps_after", move=lambda m, v, a, b, eps, g: m / a / np.sqrt(v / b) + eps),
            "eps was added after the division. It is added to the root, in the denominator: lr * "
            "m_hat / (np.sqrt(v_hat) + eps).",
        ),
        Wrong("eps-after-the-fraction", eps_on_theta),
        Wrong(
            "rate-in-m",
            rate_in_m,
            "m contains the rates of earlier steps. It should average only the gradients; this "
            "step's lr multiplies the fraction.",
        ),
        Wrong(
            "uphill",
            _adam("uphill", move=lambda *all: -_move(*all)),
            "The step goes up the gradient. It should be theta minus lr times the fraction.",
        ),
        Wrong(
            "state-lost",
            _adam("state_lost", keeps=lambda state: {}),
            "Every step was a first step: m, v and t have to be read from the state and go into "
            "the one that is returned.",
        ),
        Wrong(
            "t-stays-1",
            _adam("t_stays", lost=("t",)),
            "The averages continue, but the correction is always that of the first step: keep t "
            "in the state and count it up.",
        ),
        Wrong(
            "moments-lost",
            _adam("moments_lost", lost=("m", "v")),
            "t continues, but m and v start from 0 in every step: keep them in the state.",
        ),
        Wrong(
            "zeros-stand-still",
            zeros_stand_still,
            "An entry whose gradient is 0 in this step stayed where it was. m remembers earlier "
            "gradients, so the entry keeps moving.",
            sure=True,
        ),
        Wrong(
            "zeros-are-no-step",
            zeros_are_no_step,
            "The averages of an entry whose gradient is 0 did not change. A 0 is a gradient, too: "
            "both averages shrink.",
            sure=True,
        ),
        Wrong(
            "rate-of-the-first",
            rate_of_the_first,
            "The rate of the first step was used in all steps. Use the lr that is passed in at "
            "each step.",
        ),
        Wrong(
            "usual-betas",
            usual_betas,
            "The averages are those for betas 0.9 and 0.999, whatever was passed in. Use the pair "
            "`betas`.",
        ),
        Wrong(
            "usual-eps",
            usual_eps,
            "eps was 1e-8, whatever was passed in. Add the eps that is passed in.",
        ),
        Wrong("one-state-for-all", one_state_for_all),
        Wrong("one-state-for-all", CountedForAll()),
        Wrong("one-state-for-all", CountedByShape()),
        Wrong(
            "counted-from-zero",
            counted_from_zero,
            "The first step divided by 0: 1 - beta**t is 0 for t = 0. t is 1 in the first step: "
            "count it up before you correct.",
            sure=True,
        ),
        Wrong(
            "first-uncorrected",
            first_uncorrected,
            "The first step was not corrected, and later ones were corrected with the t of the "
            "step before. t is 1 in the first step: count it up before you correct.",
        ),
        Wrong("counted-from-zero", divided_by_python_zero, raises="ZeroDivisionError"),
        Wrong(
            "beta1-for-both",
            _adam("beta1_for_both", shares=lambda b1, b2, t: (1 - b1**t, 1 - b1**t)),
            "v was corrected with beta1. Each average has its own: divide v by 1 - beta2**t.",
        ),
        Wrong(
            "squares-of-m",
            _adam("squares_of_m", squares_of_m=True),
            "v averaged the squares of m. It should average those of the gradient, grad**2.",
        ),
        Wrong(
            "in-place",
            in_place,
            "The theta that was passed in was changed. `theta = theta - ...` makes a new array; "
            "`theta -= ...` does not.",
            sure=True,
        ),
        Wrong(
            "corrected-kept",
            corrected_kept,
            "The corrected averages went into the state, so they were corrected again in every "
            "step. Store m and v uncorrected; m_hat and v_hat are for this step alone.",
        ),
        Wrong(
            "starts-at-gradient",
            starts_at_gradient,
            "The averages began at the first gradient and were not corrected. They begin at 0.",
        ),
        Wrong(
            "corrected-as-from-0",
            one_starts_at_gradient(both=False),
            "An average began at the first gradient and was corrected as if it had begun at 0. "
            "Begin both at 0.",
        ),
        Wrong("corrected-as-from-0", one_starts_at_gradient(both=True)),
        Wrong(
            "a-step-behind",
            a_step_behind,
            "The correction is that of the previous step: t is 1 in the first step, 2 in the "
            "second.",
        ),
        *common(plain, "returns-none", "returns-text", "changes-seed", "changes-dtype"),
    ),
    right=(plain, with_setdefault, with_running_products),
)
