"""Relations on a policy: its loss does not train the critic, does not reward certainty, and credits
the action that was played."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, distributions
from torch.overrides import TorchFunctionMode

from course.debug.probes.draws import DRAWS
from course.debug.probes.functions import LOSSES, TAKEN
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, clone
from course.debug.probes.tape import Tape, patched
from course.debug.probes.thresholds import CHANGED, ROUNDED, TINY
from course.debug.relations.joining import read_by_the_model
from course.debug.relations.program import Program, changed, program_of, without_dropout
from course.debug.relations.steps import close
from course.state.nested import tensors_in

DISTANCES = {F.mse_loss, F.smooth_l1_loss, F.huber_loss, F.l1_loss}
NAMES = {LOSSES[function] for function in DISTANCES}
DIFFERENCES = TAKEN | {Tensor.__rsub__}
SQUARES = {torch.square, Tensor.square, Tensor.square_, torch.pow, Tensor.pow, Tensor.__pow__}
"""Functions that make a distance of what one of DIFFERENCES gave."""
PICKED = {torch.gather, Tensor.gather, Tensor.__getitem__, torch.take_along_dim}
"""Functions that pick an action's log-probability out of those of all."""
COSTS = {F.cross_entropy, F.nll_loss}
"""The same with the other sign, one for each row."""
CERTAIN = 30.0
"""Distance of an output from the others from which its share is 1 but for rounding."""
LEAST_COST = 1e-5
"""Difference of two losses that is more than rounding."""
PLAYED = 3
"""Steps in which the same is seen, so that no rare branch is taken for a habit."""
LEAST_ROWS = 8
"""Rows of a batch from which two columns are proportional by no chance."""


def baseline(session: Session) -> Iterator[Finding]:
    """The value subtracted from a return as a baseline learns only from its own loss."""
    program = program_of(session)
    first = program.first()
    has_distance = any(e.name in NAMES for e in first.losses) or first.calls_any(SQUARES)
    if first.is_one_of_torchs or not has_distance:
        raise NotChecked("the loss does not have a distance as one of several parts")
    heard = _Heard(session)
    with session.observe(), without_dropout(session.model):
        torch.manual_seed(0)
        try:
            with heard.running(), heard.mode:
                program.make_step(clone(program.batches[0]))
        except Exception as error:
            raise NotChecked(f"the step raises {type(error).__name__}") from error
    logs = [t for t in heard.mode.logs if len(t) >= LEAST_ROWS]
    if not heard.mode.values or not logs:
        raise NotChecked("no value is learned next to log-probabilities of actions")
    for gradient, own in heard.mode.values:
        for log in logs:
            share = _of_the_policy(gradient, own, log)
            if share > CHANGED:
                yield Finding(
                    "loss-through-baseline", "warning",
                    f"{share:.0%} of the gradient at the critic's values comes from the actions' "
                    "log-probabilities: the advantage keeps its graph, and the policy's loss "
                    "pushes the values away from the returns.",
                    {"share_of_the_gradient": share, "rows": len(log)},
                    "advantage = returns - value.detach()",
                )  # fmt: skip
                return


def explores(session: Session) -> Iterator[Finding]:
    """If all rewards are 0, a confident policy does not have a lower loss than an uncertain one."""
    program = program_of(session)
    batch, first = program.batches[0], program.first()
    outputs = [e.output for e in first.tape.of("output") if e.graph]
    if len(first.calls) != 1 or not outputs or outputs[0] is None or outputs[0].dim() != 2:
        raise NotChecked("the model does not give one row of numbers for each state")
    rows, number = outputs[0].shape
    leaves, read = list(tensors_in(batch)), read_by_the_model(session)
    own = [t for n, t in enumerate(leaves) if n not in read and t.dim() and t.numel() == rows]
    actions = [t for t in own if not t.is_floating_point() and int(t.max()) < number]
    rewards = [t for t in own if t.is_floating_point()]
    if not rewards or len(actions) != 1 or number < 2 or first.losses:
        raise NotChecked("a batch does not hold actions and their rewards")

    def given(*, won: bool, move: int = 0) -> Any:
        def change(t: Tensor) -> Tensor:
            if any(t is r for r in rewards):
                return t if won else 0 * t
            return (t + move) % number if t is actions[0] else t

        return changed(batch, change)

    def hangs_on_actions(*, won: bool) -> bool:
        costs = (program.step(given(won=won, move=move)).loss for move in (0, 1))
        return not close(*costs)

    if not hangs_on_actions(won=True) or hangs_on_actions(won=False):
        raise NotChecked("the loss does not depend on actions through their rewards alone")
    nothing = given(won=False)
    unsure, sure = (_with_certainty(program, nothing, scale) for scale in (0.0, CERTAIN))
    if unsure - sure > LEAST_COST:
        yield Finding(
            "loss-negated", "warning",
            f"With all rewards 0, the loss is {unsure:.3g} for an uncertain policy and {sure:.3g} "
            "for a confident one: the entropy is added to the loss, which punishes exploring; a "
            "bonus must be subtracted.",
            {"cost_of_unsure": unsure, "cost_of_sure": sure, "actions": number},
            "loss = policy_loss - 0.01 * entropy",
        )  # fmt: skip


def played(session: Session) -> Iterator[Finding]:
    """The log-probability that is trained is that of the action that was played.

    If two actions are drawn from one distribution in each step, and the loss takes the
    log-probability of the second alone but depends on the first in another way, the reward belongs
    to the first.
    """
    program, twice = program_of(session), 0
    if not program.first().calls_any(DRAWS):
        raise NotChecked("a step draws no random numbers")
    for batch in program.batches[:PLAYED]:
        seen = _Played()
        cost = program.step(batch, within=seen.listening()).loss
        if len(seen.draws) < 2:
            raise NotChecked("a step does not draw twice from a distribution")
        pairs = [(a, b) for a, b in pairwise(seen.draws) if a.shape == b.shape and a.same_law(b)]
        scored = [[any(v.data_ptr() == d.value.data_ptr() for v in seen.scored) for d in two]
                  for two in pairs]  # fmt: skip
        if len(seen.draws) != 2 or scored != [[False, True]]:
            break
        costs = [program.step(batch, within=_Played(place).listening()).loss for place in (0, 1)]
        twice += not close(cost, costs[0]) and close(cost, costs[1])
    if twice >= PLAYED:
        yield Finding(
            "wrong-formula", "warning",
            "Two actions are drawn from the same probabilities in each step, and the loss takes "
            "the log-probability of only the second: the first, which was played and rewarded, "
            "gets no credit.",
            {"steps": twice},
            "log_prob = law.log_prob(action)  # of the action that was played",
        )  # fmt: skip


@dataclass
class _Draw:
    """One draw and the numbers of the law that it is from."""

    value: Tensor
    law: list[Tensor]

    @property
    def shape(self) -> torch.Size:
        return self.value.shape

    def same_law(self, other: _Draw) -> bool:
        pairs = list(zip(self.law, other.law, strict=False))
        return len(self.law) == len(other.law) and all(
            a.shape == b.shape and torch.equal(a, b) for a, b in pairs
        )


class _Played:
    """Draws from laws, and the values whose log-probabilities are taken, while one listens.

    Args:
        moved: Which draw is handed out as other rows', and keeps its own log-probability.
    """

    def __init__(self, moved: int | None = None) -> None:
        self.draws: list[_Draw] = []
        self.scored: list[Tensor] = []
        self.moved = moved
        self.own: tuple[Tensor, Tensor] | None = None
        """The draw that is moved, as it is handed out and as it was."""

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for law in (distributions.Categorical, distributions.Normal, distributions.Bernoulli):
                stack.enter_context(patched(law, "sample", self._sample))
                stack.enter_context(patched(law, "log_prob", self._log_prob))
            yield

    def _sample(self, original: Callable, law: Any, *args: Any, **kwargs: Any) -> Tensor:
        value = original(law, *args, **kwargs)
        numbers = (law.__dict__.get(name) for name in law.arg_constraints)
        self.draws.append(_Draw(value, [n.detach() for n in numbers if isinstance(n, Tensor)]))
        if len(self.draws) - 1 == self.moved and value.dim():
            self.own = value.roll(1, 0), value
            return self.own[0]
        return value

    def _log_prob(self, original: Callable, law: Any, value: Tensor) -> Tensor:
        self.scored.append(value)
        if self.own is not None and value.data_ptr() == self.own[0].data_ptr():
            value = self.own[1]
        return original(law, value)


def _with_certainty(program: Program, batch: Any, scale: float) -> float:
    """What a batch costs where the model's outputs are for one answer, by so much, in each row."""

    def certain(_: object, args: object, output: Any) -> Any:
        def chosen(t: Tensor) -> Tensor:
            one = torch.arange(t.shape[-1], device=t.device) == 0
            return 0 * t + scale * one.to(t)

        return changed(output, lambda t: chosen(t) if t.dim() == 2 and t.shape[1] > 1 else t)

    def listen() -> None:  # before the step: what is hooked earlier, the snapshot takes away
        program.model.register_forward_hook(certain)

    return program.step(batch, prepare=listen).loss


def _of_the_policy(gradient: Tensor, own: Tensor, log: Tensor) -> float:
    """How much of a gradient is proportional to log-probabilities; 0 where it is not all of what
    its own loss leaves."""
    if len(gradient) != len(log):
        return 0.0
    both = torch.stack([own, log], 1)
    parts = torch.linalg.lstsq(both, gradient[:, None]).solution[:, 0]
    size = float(gradient.norm().clamp_min(TINY))
    rest = float((both @ parts - gradient).norm())
    return float((parts[1] * log).norm()) / size if rest < ROUNDED * size else 0.0


def _is_two(power: Any) -> bool:
    return isinstance(power, (int, float)) and power == 2


class _Heard(Tape):
    """A tape with the log-probabilities of continuous actions, too."""

    def __init__(self, session: Session) -> None:
        super().__init__(session.model, session.optimizers, session.setup.scheduler)
        self.mode = _Values()

    def _noting(self, kind: str) -> Callable:
        noting = super()._noting(kind)

        def wrapper(original: Callable, *args: Any, **kwargs: Any) -> Any:
            result = noting(original, *args, **kwargs)
            if kind == "log_prob" and isinstance(result, Tensor) and result.dim() and (
                    result.requires_grad):  # fmt: skip
                self.mode.logs.append(result.detach().double().reshape(len(result), -1).sum(1))
            return result

        return wrapper


class _Values(TorchFunctionMode):
    """Numbers [B] that a distance pulls to others, with all of their gradient and that of the
    distance; and log-probabilities [B]."""

    def __init__(self) -> None:
        super().__init__()
        self.values: list[tuple[Tensor, Tensor]] = []
        self.logs: list[Tensor] = []
        self._differences: list[tuple[Tensor, Tensor, Tensor]] = []
        """Each with the two of which it is."""

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None):
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        if function in DISTANCES and len(args) > 1 and result.requires_grad:
            self._compare(*args[:2], function)
        elif function in DIFFERENCES and isinstance(result, Tensor) and result.requires_grad:
            if all(isinstance(t, Tensor) for t in args[:2]):
                self._differences.append((result, *args[:2]))
        elif function in SQUARES and (len(args) < 2 or _is_two(args[1])):
            for difference, one, other in self._differences:
                if difference is args[0]:
                    self._compare(one, other, F.mse_loss)
        elif function in PICKED | COSTS and isinstance(result, Tensor) and result.requires_grad:
            rows = result.detach().double()
            log = -rows if function in COSTS else rows
            if rows.dim() and rows.numel() == len(rows) and bool((log < 0).all()):
                self.logs.append(log.flatten())
        return result

    def _compare(self, one: Tensor, other: Tensor, function: Any) -> None:
        """Listen to the one of two that has a graph, if only one has."""
        value, other = (one, other) if one.requires_grad else (other, one)
        if value.shape == other.shape and not other.requires_grad:
            self._listen(value, other, function)

    def _listen(self, value: Tensor, other: Tensor, function: Any) -> None:
        leaf = value.detach().clone().requires_grad_()
        (own,) = torch.autograd.grad(function(leaf, other.detach()), leaf)
        own = own.flatten().double()
        value.register_hook(lambda g: self.values.append((g.detach().flatten().double(), own)))
