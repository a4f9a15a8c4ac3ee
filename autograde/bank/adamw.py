"""04a.adamw: an optimizer on tensors, with decay apart from the gradient and torch's state."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from autograde.bank.harness import Watch
from autograde.exercise import (
    Answer,
    AnswerError,
    Case,
    Draw,
    Exercise,
    Part,
    Wrong,
    as_number,
    kept,
)
from course.from_scratch import optimizers

KEYS = ("exp_avg", "exp_avg_sq")


def draw(source: Draw, part: str) -> Case:
    """Two parameters and their gradients at each of four steps; in `missing` one comes late.

    Only `decay` and `all` have decay and a rate that matters to it at once, so that one mistake
    costs one part. The second case of `missing` has decay, in which only the idle time counts; in
    that of `plain` both have one shape, so that what is kept by shape is kept for both.
    """
    shapes = [(source.integer(2, 3), 2), (source.integer(1, 3),)]
    if part == "plain" and source.index == 1:
        shapes[1] = shapes[0]
    quiet = 1 if part == "missing" else None  # of whose gradients the last is all zeros
    late = 2 if part in ("missing", "all") else 0
    decays = part in ("decay", "all") or (part == "missing" and source.index % 2 == 1)
    lr, steps = source.uniform(0.05, 0.2), 2 + late
    return {
        "weights": [source.normal(*shape, scale=2.0) for shape in shapes],
        "grads": [
            [None if step < late and at == 0
             else (source.normal(*shape) + 0.1) * (at != quiet or step + 1 < steps)
             for at, shape in enumerate(shapes)] for step in range(steps)
        ],
        "lrs": [lr * (3**step if part in ("rate", "all") else 1) for step in range(steps)],
        "betas": [source.choice([0.5, 0.8, 0.9]), source.choice([0.95, 0.99, 0.999])],
        "eps": 1e-8 if source.index == 0 else source.uniform(0.01, 0.1),
        "weight_decay": source.uniform(0.3, 0.9) if decays else 0.0,
        "late": late,
        "generator": part == "plain",
        "unused": part == "cleared",
        "tensors": part == "plain" and source.index == 1,
        "dtype": "float32" if source.index else "float64",
    }  # fmt: skip


def run(function, case: Case, device: torch.device) -> Answer:
    """The weights after each step, and those of the idle parameter; the state; cleared or not.

    Another optimizer steps in between where all is asked, so that a count of the class shows.
    """
    dtype = getattr(torch, case["dtype"])
    given = [weight.to(device, dtype, copy=True) for weight in case["weights"]]
    kind = torch.Tensor.requires_grad_ if case["tensors"] else nn.Parameter
    parameters = [kind(weight) for weight in given]
    handed = (p for p in parameters) if case["generator"] else list(parameters)
    options = case["lrs"][0], tuple(case["betas"]), case["eps"], case["weight_decay"]
    optimizer, other = function(handed, *options), nn.Parameter(torch.ones(1, device=device))
    for name in ("step", "zero_grad"):
        if not callable(getattr(optimizer, name, None)):
            raise AnswerError(f"What AdamW(...) made has no method {name}().")
    second, weights = function([other], *options), []
    grads = [[None if g is None else g.to(device, dtype) for g in all_] for all_ in case["grads"]]
    handed = ((at, i, g) for at, all_ in enumerate(grads) for i, g in enumerate(all_))
    named = {f".grad of parameter {i} in step {at}": g for at, i, g in handed if g is not None}
    watch = Watch(data=named)
    for lr, all_ in zip(case["lrs"], grads, strict=True):
        for parameter, grad in zip(parameters, all_, strict=True):
            parameter.grad = grad
        if lr != case["lrs"][0]:
            optimizer.lr = lr
        optimizer.step()
        if case["late"] and case["weight_decay"]:
            other.grad = torch.ones_like(other)
            second.step()
        weights.append(_copied(parameters))
    disturbed = watch.changed()
    if any(p.grad is not grad for p, grad in zip(parameters, grads[-1], strict=True)):
        disturbed.append("which tensor .grad of a parameter is")
    if case["late"] and case["weight_decay"]:  # a run that begins again knows nothing of this one
        function(list(parameters), *options).step()
        weights.append(_copied(parameters))
    answer = {
        "weights": weights,
        "idle": [first for first, _ in weights[: case["late"]]],
        "woken": [] if case["weight_decay"] else weights,  # with decay that belongs to `decay`
        "disturbed": disturbed,
        "state": kept(_state_of, optimizer, parameters[1]),
    }
    if case["unused"]:  # as the weights of a layer that took no part in the loss
        parameters[0].grad = None
    other.grad = torch.ones_like(other)  # of a parameter that has never been moved, too
    optimizer.zero_grad()
    second.zero_grad()
    cleared = all(p.grad is None or not p.grad.any() for p in (*parameters, other))
    return answer | {"cleared": cleared, "goes on": _goes_on(function, case, device)}


def _copied(parameters: list[Tensor]) -> list[Tensor]:
    return [p.detach().cpu().clone() for p in parameters]


def _goes_on(function, case: Case, device: torch.device) -> bool:
    """Whether zero_grad() between two steps leaves the second as it is without: its own, twice."""
    if not case["unused"]:
        return True
    options, after = (tuple(case["betas"]), case["eps"], case["weight_decay"]), []
    for clears in (False, True):
        p = nn.Parameter(case["weights"][1].to(device, torch.float64, copy=True))
        optimizer = function([p], case["lrs"][0], *options)
        for _, grad in case["grads"]:
            p.grad = grad.to(p)
            optimizer.step()
            if clears:
                optimizer.zero_grad()
        after.append(p.detach().clone())
    return bool(torch.equal(*after))


def _state_of(optimizer: object, parameter: nn.Parameter) -> dict:
    """The numbers that torch keeps of a parameter."""
    state = getattr(optimizer, "state", None)
    entries = state.items() if isinstance(state, dict) else ()
    mine = next((entry for key, entry in entries if key is parameter), None)
    if not isinstance(mine, dict) or not {"step", *KEYS} <= set(mine):
        found = (
            f"that holds {', '.join(map(str, mine))}"
            if isinstance(mine, dict)
            else _no_state(state)
        )
        raise AnswerError(
            f"state[p] of a parameter p should be a dictionary with step, exp_avg and exp_avg_sq, "
            f"as torch's; {found}."[:200]
        )
    values = {key: mine[key] for key in KEYS}
    if not all(isinstance(value, Tensor) for value in values.values()):
        raise AnswerError("exp_avg and exp_avg_sq in state[p] are tensors of p's shape.")
    read = {key: value.detach().cpu().clone() for key, value in values.items()}
    return {"step": as_number(mine["step"], "state[p]['step']"), **read}


def _no_state(state: object) -> str:
    """What there is in place of a parameter's own entry."""
    kinds = sorted({type(key).__name__ for key in state}) if isinstance(state, dict) else []
    if kinds and not any("Parameter" in kind or "Tensor" in kind for kind in kinds):
        return f"the keys are of type {', '.join(kinds)}, not the parameters themselves"
    return "there is none"


class Reference:
    """The course's step, with its state under torch's names."""

    def __init__(self, parameters, lr, betas, eps, weight_decay) -> None:
        self.lr, self.parameters, self.mine = lr, list(parameters), {}
        self.options = {"betas": betas, "eps": eps, "weight_decay": weight_decay}

    @property
    def state(self) -> dict:
        names = {"step": "step", "m": "exp_avg", "v": "exp_avg_sq"}
        return {p: {names[k]: v for k, v in mine.items()} for p, mine in self.mine.items()}

    def step(self) -> None:
        for p in (p for p in self.parameters if p.grad is not None):
            new, self.mine[p] = optimizers.adamw_step(
                p.detach(), p.grad, self.mine.get(p, {}), lr=self.lr, **self.options
            )
            p.data.copy_(new)

    def zero_grad(self) -> None:
        for p in self.parameters:
            p.grad = None


def reference(parameters, lr, betas, eps, weight_decay):
    """What `run` builds."""
    return Reference(parameters, lr, betas, eps, weight_decay)


class Plain:
    """A right answer; the wrong ones change a method of it."""

    def __init__(self, parameters, lr, betas, eps, weight_decay):
        self.parameters, self.lr, self.betas = list(parameters), lr, betas
        self.eps, self.weight_decay = eps, weight_decay
        self.state = {p: {} for p in self.parameters}

    def new(self, p):
        return {"step": 0, "exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}

    @torch.no_grad()
    def step(self):
        for p in self.parameters:
            if p.grad is not None:
                self.update(p, p.grad)

    def update(self, p, grad):
        state = self.state[p] = self.state.get(p) or self.new(p)
        state["step"] += 1
        self.decay(p)
        p.sub_(self.lr * self.direction(state, self.gradient(p, grad), *self.betas))

    def gradient(self, p, grad):
        return grad

    def decay(self, p):
        p.mul_(1 - self.lr * self.weight_decay)

    def moments(self, state, grad, beta1, beta2):
        state["exp_avg"].mul_(beta1).add_(grad, alpha=1 - beta1)
        state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        return state["exp_avg"], state["exp_avg_sq"], state["step"]

    def direction(self, state, grad, beta1, beta2):
        m, v, t = self.moments(state, grad, beta1, beta2)
        return (m / (1 - beta1**t)) / ((v / (1 - beta2**t)).sqrt() + self.eps)

    def zero_grad(self):
        for p in self.parameters:
            p.grad = None


class DecayInGradient(Plain):
    def decay(self, p):
        pass

    def gradient(self, p, grad):
        return grad + self.weight_decay * p


class DecayAddedToGradient(DecayInGradient):
    def gradient(self, p, grad):
        return grad.add_(self.weight_decay * p)


class DecayWithoutRate(Plain):
    def decay(self, p):
        p.mul_(1 - self.weight_decay)


class Grows(Plain):
    def decay(self, p):
        p.mul_(1 + self.lr * self.weight_decay)


class NoDecay(Plain):
    def decay(self, p):
        pass


class DecayLast(Plain):
    def update(self, p, grad):
        shrink = self.lr * self.weight_decay
        self.weight_decay, kept = 0.0, self.weight_decay
        super().update(p, grad)
        self.weight_decay = kept
        p.mul_(1 - shrink)


class IdleDecays(Plain):
    @torch.no_grad()
    def step(self):
        for p in self.parameters:
            if p.grad is None:
                self.decay(p)
        super().step()


class NoneIsZero(Plain):
    @torch.no_grad()
    def step(self):
        for p in self.parameters:
            self.update(p, torch.zeros_like(p) if p.grad is None else p.grad)


class ZerosSkipped(Plain):
    @torch.no_grad()
    def step(self):
        for p in self.parameters:
            if p.grad is not None and p.grad.any():
                self.update(p, p.grad)


class ParametersOnly(Plain):
    def __init__(self, parameters, *rest):
        super().__init__([p for p in parameters if isinstance(p, nn.Parameter)], *rest)


class DataReplaced(Plain):
    """Right, too: p stays the model's own, with other memory."""

    def update(self, p, grad):
        p.data = p.data.clone()
        super().update(p, grad)


class DecayOverTheRoot(Plain):
    """The decay is not in the averages, but divided by the root with them."""

    def update(self, p, grad):
        old, state = p.clone(), self.state[p]
        shrink, self.weight_decay = self.weight_decay, 0.0
        super().update(p, grad)
        self.weight_decay = shrink
        v = (state or self.state[p])["exp_avg_sq"] / (1 - self.betas[1] ** self.state[p]["step"])
        p.sub_(self.lr * shrink * old / (v.sqrt() + self.eps))


class MatricesDecay(Plain):
    def decay(self, p):
        if p.ndim > 1:
            super().decay(p)


class ZeroGradForgets(Plain):
    def zero_grad(self):
        super().zero_grad()
        self.state.clear()


class ZeroGradStartsAgain(Plain):
    def zero_grad(self):
        super().zero_grad()
        self.state = {p: {} for p in self.parameters}


class StepClears(Plain):
    def step(self):
        super().step()
        self.zero_grad()


class ClearsTheMoved(Plain):
    def zero_grad(self):
        for p in self.parameters:
            if self.state.get(p):
                p.grad = None


class StateOfTheClass(Plain):
    shared: dict = {}  # noqa: RUF012

    def __init__(self, *all_):
        super().__init__(*all_)
        self.state = self.shared


class StateByShape(Plain):
    """Parameters of one shape have one state."""

    def update(self, p, grad):
        mine = next((q for q in self.parameters if q.shape == p.shape), p)
        self.state[p] = self.state[mine] = self.state.get(mine) or self.new(p)
        super().update(p, grad)


class StateOnTheParameter(Plain):
    def update(self, p, grad):
        if not hasattr(p, "kept"):
            p.kept = self.new(p)
        self.state[p] = p.kept
        super().update(p, grad)


class EpsBeforeCorrection(Plain):
    def direction(self, state, grad, beta1, beta2):
        m, v, t = self.moments(state, grad, beta1, beta2)
        return (m / (1 - beta1**t)) * (1 - beta2**t) ** 0.5 / (v.sqrt() + self.eps)


class NoneNotSkipped(Plain):
    @torch.no_grad()
    def step(self):
        for p in self.parameters:
            self.update(p, p.grad)


class OneCount(Plain):
    def __init__(self, *all_):
        super().__init__(*all_)
        self.t = 0

    def step(self):
        self.t += 1
        super().step()

    def moments(self, state, grad, beta1, beta2):
        state["step"] = self.t
        return super().moments(state, grad, beta1, beta2)


class SquareLeftOut(Plain):
    def moments(self, state, grad, beta1, beta2):
        state["exp_avg"].mul_(beta1).add_(grad, alpha=1 - beta1)
        state["exp_avg_sq"].mul_(beta2).add_(grad, alpha=1 - beta2)
        return state["exp_avg"], state["exp_avg_sq"], state["step"]


class CorrectedKept(Plain):
    def direction(self, state, grad, beta1, beta2):
        made = super().direction(state, grad, beta1, beta2)
        state["exp_avg"].div_(1 - beta1 ** state["step"])
        state["exp_avg_sq"].div_(1 - beta2 ** state["step"])
        return made


class RateFixed(Plain):
    def update(self, p, grad):
        self.first = getattr(self, "first", self.lr)
        self.lr, kept = self.first, self.lr
        super().update(p, grad)
        self.lr = kept


class DecayFixed(Plain):
    def __init__(self, *all_):
        super().__init__(*all_)
        self.shrink = 1 - self.lr * self.weight_decay

    def decay(self, p):
        p.mul_(self.shrink)


class NotInPlace(Plain):
    def update(self, p, grad):
        super().update(p.clone(), grad)


class NameBound(Plain):
    """`p = p - ...`: the state is right, and the name p stands for another tensor."""

    def update(self, p, grad):
        old = p.clone()
        super().update(p, grad)
        p.copy_(old)


class StepNotInPlace(Plain):
    """The decay is in place; then `p = p - ...`."""

    def update(self, p, grad):
        old = p.clone()
        super().update(p, grad)
        p.copy_(old)
        self.decay(p)


class DecayOfOne(Plain):
    """lr * weight_decay is taken off, whatever the weight."""

    def decay(self, p):
        p.sub_(self.lr * self.weight_decay)


class CountOverParameters(Plain):
    """Every update of a parameter moves the one count on."""

    t = 0

    def moments(self, state, grad, beta1, beta2):
        self.t += 1
        state["step"] = self.t
        return super().moments(state, grad, beta1, beta2)


class StateById(Plain):
    def step(self):
        self.state = getattr(self, "mine", {})
        super().step()
        self.mine, self.state = self.state, {id(p): s for p, s in self.state.items()}


class ZeroesNone(Plain):
    def zero_grad(self):
        for p in self.parameters:
            p.grad.zero_()


class GeneratorKept(Plain):
    def __init__(self, parameters, *rest):
        super().__init__([], *rest)
        self.parameters = parameters


class GradStaysOn(Plain):
    def step(self):
        with torch.enable_grad():
            for p in self.parameters:
                if p.grad is not None:
                    self.update(p, p.grad)


class NoCorrection(Plain):
    def direction(self, state, grad, beta1, beta2):
        m, v, _ = self.moments(state, grad, beta1, beta2)
        return m / (v.sqrt() + self.eps)


class EpsInside(Plain):
    def direction(self, state, grad, beta1, beta2):
        m, v, t = self.moments(state, grad, beta1, beta2)
        return (m / (1 - beta1**t)) / (v / (1 - beta2**t) + self.eps).sqrt()


class Swapped(Plain):
    def moments(self, state, grad, beta1, beta2):
        return super().moments(state, grad, beta2, beta1)


class StartsAtGradient(Plain):
    def moments(self, state, grad, beta1, beta2):
        if state["step"] == 1:
            state["exp_avg"], state["exp_avg_sq"] = grad.clone(), grad.square()
            return state["exp_avg"], state["exp_avg_sq"], 1
        return super().moments(state, grad, beta1, beta2)


class NamesOfItsOwn(Plain):
    def __init__(self, *all_):
        super().__init__(*all_)
        self.mine, self.state = self.state, {}

    def update(self, p, grad):
        self.state = self.mine
        super().update(p, grad)
        old = self.state[p]
        self.state = {p: {"t": old["step"], "m": old["exp_avg"], "v": old["exp_avg_sq"]}}


class NeverClears(Plain):
    def zero_grad(self):
        pass


class ClearsTheFirst(Plain):
    def zero_grad(self):
        self.parameters[0].grad = None


class CountOfTheClass(OneCount):
    t = 0

    def __init__(self, *all_):
        Plain.__init__(self, *all_)

    def step(self):
        CountOfTheClass.t += 1
        Plain.step(self)


class WithData:
    def __init__(self, parameters, lr, betas, eps, weight_decay):
        self.__dict__.update({k: v for k, v in locals().items() if k != "self"})
        self.parameters, self.state = tuple(parameters), {}

    def step(self):
        for p in self.parameters:
            if p.grad is None:
                continue
            b1, b2 = self.betas
            zeros = torch.zeros_like(p.data)
            old = self.state.get(p, {"step": 0, "exp_avg": zeros, "exp_avg_sq": zeros})
            t = old["step"] + 1
            m = b1 * old["exp_avg"] + (1 - b1) * p.grad
            v = b2 * old["exp_avg_sq"] + (1 - b2) * p.grad**2
            self.state[p] = {"step": t, "exp_avg": m, "exp_avg_sq": v}
            below = v.sqrt() / (1 - b2**t) ** 0.5 + self.eps
            p.data -= self.lr * (m / (1 - b1**t) / below + self.weight_decay * p.data)

    def zero_grad(self):
        for p in self.parameters:
            if p.grad is not None:
                p.grad.zero_()


class WithLerp(Plain):
    def new(self, p):
        count = torch.tensor(0.0)
        return {"step": count, "exp_avg": p * 0, "exp_avg_sq": p * 0}

    def moments(self, state, grad, beta1, beta2):
        state["exp_avg"].lerp_(grad, 1 - beta1)
        state["exp_avg_sq"].lerp_(grad.square(), 1 - beta2)
        return state["exp_avg"], state["exp_avg_sq"], int(state["step"])


EXERCISE = Exercise(
    id="04a.adamw",
    title="AdamW on tensors",
    source='Annotated-loop essay, "The weight update"',
    kind="class",
    ledger=("X53", "X54", "X62", "N32", "C29"),
    minutes=18,
    difficulty=3,
    read=("course.from_scratch.optimizers.adamw_step", "N32", "04a.adam"),
    hints=(
        "Your Adam is nearly all of it. What is new is where the decay acts, and that p itself "
        "moves.",
        "Under torch.no_grad(), for every p with a gradient: shrink p, then move it; p.mul_() and "
        "p.sub_() change the model's own tensor.",
        "state = self.state.setdefault(p, {}); if it is empty, put in step 0 and two "
        "zeros_like(p). Then count, p.mul_(1 - self.lr * self.weight_decay), both averages, "
        "p.sub_(self.lr * m_hat / (v_hat.sqrt() + self.eps)).",
    ),
    signature="AdamW(parameters, lr, betas, eps, weight_decay)",
    parts=(
        Part("plain", "two steps without decay, parameters as a generator", 1, fields=("weights",)),
        Part(
            "decay",
            "two steps with decay",
            points=1.5,
            cases=3,
            fields=("weights", "disturbed"),
        ),
        Part("missing", "a parameter without a gradient at first", 1, fields=("idle", "woken")),
        Part("rate", "a rate that is changed between steps", 0.5, fields=("weights",)),
        Part("state", "state[p] and its three entries", 0.5, fields=("state",)),
        Part("cleared", "zero_grad()", 0.5, fields=("cleared", "goes on")),
        Part(
            "all",
            "everything at once, with two optimizers side by side",
            1,
            hidden=True,
            fields=("weights",),
        ),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "weights": "the weights after step (counted from 0), by parameter:",
        "woken": "the weights after step (counted from 0), by parameter:",
        "idle": "the weight that has no gradient yet, after step",
        "state": "state[p] of the second parameter",
        "cleared": "whether zero_grad() clears every .grad",
        "goes on": "whether a step after zero_grad() is as without it:",
    },
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
    wrong=(
        Wrong(
            "decay-in-gradient",
            DecayInGradient,
            "That is Adam with L2: the decay went into the gradient and, with it, was divided by "
            "the root of v. AdamW shrinks the weight itself: p times 1 - lr * weight_decay.",
        ),
        Wrong("decay-in-gradient", DecayAddedToGradient),
        Wrong(
            "decay-without-rate",
            DecayWithoutRate,
            "The weights shrank by weight_decay itself. In AdamW the rate multiplies it: by "
            "lr * weight_decay.",
        ),
        Wrong(
            "grows", Grows, "The decay made the weights longer: the factor is 1 minus, not plus."
        ),
        Wrong(
            "no-decay",
            NoDecay,
            "The weights moved as if weight_decay were 0.",
        ),
        Wrong(
            "decay-of-one",
            DecayOfOne,
            "Every weight lost lr * weight_decay, whatever its size. It should lose that share of "
            "its size: p times 1 - lr * weight_decay.",
        ),
        Wrong(
            "decay-over-the-root",
            DecayOverTheRoot,
            "The decay was divided by the root of v, as the step is. AdamW shrinks the weight "
            "itself: p times 1 - lr * weight_decay.",
        ),
        Wrong(
            "matrices-decay",
            MatricesDecay,
            "Parameters with one dimension did not decay. Leaving them out is for whoever makes "
            "the groups: here every parameter that is moved decays.",
        ),
        Wrong(
            "zero-grad-forgets",
            ZeroGradForgets,
            "After zero_grad() the next step differed from one without it: it forgot the averages "
            "or the count. Clear only .grad there.",
            sure=True,
        ),
        Wrong("zero-grad-forgets", ZeroGradStartsAgain, sure=True),
        Wrong(
            "decay-last",
            DecayLast,
            "The weights shrank after they were moved, so the step shrank as well. Shrink the "
            "weights first.",
        ),
        Wrong(
            "idle-decays",
            IdleDecays,
            "A parameter without a gradient shrank. Leave it alone: it took no part in the loss.",
            sure=True,
        ),
        Wrong(
            "none-is-zero",
            NoneIsZero,
            "A parameter without a gradient was treated as if its gradient were zero: it decayed, "
            "and its step was counted. Skip it.",
        ),
        Wrong(
            "none-not-skipped",
            NoneNotSkipped,
            "A parameter that took no part in the loss has .grad = None. Skip those.",
            raises="NoneType",
        ),
        Wrong(
            "one-count",
            OneCount,
            "A parameter whose first gradient came late was corrected as if it had been there "
            "from the start. Count the steps of each parameter in its own state.",
            sure=True,
        ),
        Wrong(
            "count-over-parameters",
            CountOverParameters,
            "The first parameter is right, but the next one is corrected as if it were a step "
            "further on: they all share one count. Keep a `step` in the state of each.",
        ),
        Wrong(
            "square-left-out",
            SquareLeftOut,
            "exp_avg_sq averaged the gradient itself, so its root is nan where that is negative. "
            "It averages the square: grad * grad.",
            sure=True,
        ),
        Wrong(
            "corrected-kept",
            CorrectedKept,
            "The corrected averages went into the state, so they were corrected again in every "
            "step. Store exp_avg and exp_avg_sq uncorrected; the correction is for this step "
            "alone.",
        ),
        Wrong(
            "rate-fixed",
            RateFixed,
            "The rate of the first step was used in all steps. Read self.lr in step(): a schedule "
            "sets it between two steps.",
        ),
        Wrong(
            "decay-fixed",
            DecayFixed,
            "The weights shrank by the first step's rate in all steps. Read self.lr in step(), for "
            "the decay, too.",
        ),
        Wrong(
            "zeros-skipped",
            ZerosSkipped,
            "A parameter whose gradient is all zeros was skipped. Its averages shrink and its "
            "momentum keeps moving it: only None means that it took no part.",
            sure=True,
        ),
        Wrong(
            "parameters-only",
            ParametersOnly,
            "Tensors that are not an nn.Parameter stayed where they were. Move whatever was "
            "passed in, whatever its type.",
            sure=True,
        ),
        Wrong(
            "eps-before-correction",
            EpsBeforeCorrection,
            "eps was added before exp_avg_sq was corrected, so the correction scaled it. Correct, "
            "take the root, then add eps.",
        ),
        Wrong("step-clears", StepClears),
        Wrong("clears-the-moved", ClearsTheMoved),
        Wrong(
            "state-of-the-class",
            StateOfTheClass,
            "A second optimizer of the same parameters went on with the averages of the first. "
            "Each starts with its own: make self.state in __init__, and keep nothing on the "
            "class or on the parameters.",
            sure=True,
        ),
        Wrong("state-of-the-class", StateOnTheParameter, sure=True),
        Wrong("not-in-place", NameBound),
        Wrong("not-in-place", StepNotInPlace, sure=True),
        Wrong(
            "not-in-place",
            NotInPlace,
            "The step did not reach the model's own weights. `p = p - ...` gives another tensor "
            "the name p; change p itself: p.mul_(), p.sub_().",
            sure=True,
        ),
        Wrong(
            "generator-kept",
            GeneratorKept,
            "With parameters from a generator only the first step moved them: a generator can be "
            "read once. Make a list of it in __init__.",
            sure=True,
        ),
        Wrong(
            "grad-stays-on",
            GradStaysOn,
            "torch records what is done to a parameter, so it refuses to change it in place. Put "
            "the update under torch.no_grad().",
            raises="a leaf Variable that requires grad",
        ),
        Wrong(
            "no-correction",
            NoCorrection,
            "The averages begin at 0 and were used as they are. Divide m by 1 - beta1**t and v by "
            "1 - beta2**t.",
        ),
        Wrong(
            "eps-inside",
            EpsInside,
            "eps was added under the root. It is added to the root.",
        ),
        Wrong(
            "betas-swapped",
            Swapped,
            "beta1 and beta2 are swapped: the first belongs to exp_avg.",
        ),
        Wrong(
            "starts-at-gradient",
            StartsAtGradient,
            "The averages began at the first gradient. They should begin at 0, and are corrected "
            "for that.",
        ),
        Wrong("names-of-its-own", NamesOfItsOwn),
        Wrong("state-by-id", StateById),
        Wrong("state-by-shape", StateByShape),
        Wrong("never-clears", NeverClears),
        Wrong(
            "zeroes-none",
            ZeroesNone,
            "A parameter that took no part in the loss has .grad = None, and None cannot be "
            "zeroed. Skip those in zero_grad(), or set all to None.",
            raises="'NoneType' object has no attribute 'zero_'",
        ),
        Wrong("clears-the-first", ClearsTheFirst),
        Wrong("count-of-the-class", CountOfTheClass),
    ),
    right=(Plain, WithData, WithLerp, DataReplaced),
)
