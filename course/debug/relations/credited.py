"""Relation on a policy that acts several times: what weighs an action depends on that action."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, distributions
from torch.overrides import TorchFunctionMode

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.tape import patched
from course.debug.probes.thresholds import ROUNDED, TINY
from course.debug.relations.program import program_of

LEAST_TIMES, MOST_TIMES = 3, 6
"""Actions of a row from which past and future differ, and how many are exchanged one by one."""
LEAST_ROWS = 8
"""Rows of which some get another action, and another reward, where rows exchange theirs."""
LAWS = (distributions.Categorical, distributions.Bernoulli, distributions.Normal)
NEGATED = {torch.neg, Tensor.neg, Tensor.__neg__}
TIMES = {torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__}


def by_its_own(session: Session) -> Iterator[Finding]:
    """The weight of an action's log-probability depends on that action, not only on earlier ones.

    A weight that does not teaches nothing: the mean of its gradient is 0. So are returns that are
    summed from the start and not to the end. Asked where the actions [B, T] are one draw, and each
    is exchanged between rows in turn; rewards that come with the batch do not hang on actions.
    """
    program = program_of(session)
    batch = program.batches[0]
    if program.first().is_one_of_torchs:
        raise NotChecked("the loss is one of torch's")

    def weights(moved: int | None) -> list[Tensor]:
        seen = _Weights(moved)
        program.step(batch, within=seen.listening())
        return seen.weights if seen.draws == 1 else []

    base = weights(None)
    if len(base) != 1 or base[0].dim() != 2 or len(base[0]) < LEAST_ROWS:
        raise NotChecked("no weights of the log-probabilities [B, T] of one draw")
    times = base[0].shape[1]
    if times < LEAST_TIMES:
        raise NotChecked("a row has too few actions")
    own, later = [], []
    for time in range(min(times, MOST_TIMES)):
        now = weights(time)
        if len(now) != 1 or now[0].shape != base[0].shape:
            raise NotChecked("other actions lead to another step")
        other = [_is_other(base[0][:, n], now[0][:, n]) for n in range(times)]
        own.append(any(other[: time + 1]))
        later.append(any(other[time + 1 :]))
    if not any(own) and sum(later) >= min(times, MOST_TIMES) - 1:
        yield Finding(
            "wrong-formula", "error",
            f"The log-probability of each of {times} actions is weighed by a number that changes "
            "with the actions before it, but not with the action itself nor with any later one: "
            "rewards are summed from the start, so no action is credited with what it leads to.",
            {"actions": times, "exchanged": len(own), "later_weights_changed": sum(later)},
            "returns = rewards.flip(1).cumsum(1).flip(1)  # from each step to the end",
        )  # fmt: skip


def _is_other(old: Tensor, new: Tensor) -> bool:
    """Two columns are not the same numbers, not even where all are shifted and scaled alike, as
    they are if they are brought to mean 0 and deviation 1 over the batch."""
    a, b = old.double() - old.double().mean(), new.double() - new.double().mean()
    fit = float(a @ b) / max(float(a @ a), TINY)
    return float((b - fit * a).norm()) > ROUNDED * float(b.norm()) + TINY


class _Weights(TorchFunctionMode):
    """Fixed numbers by which log-probabilities of a draw are multiplied, while one listens.

    Args:
        moved: The action of each row, by its time, that is another row's.
    """

    def __init__(self, moved: int | None) -> None:
        super().__init__()
        self.moved = moved
        self.draws = 0
        self.weights: list[Tensor] = []
        self._drawn: Tensor | None = None
        self._logs: list[Tensor] = []

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Listen to torch's laws, too."""
        with contextlib.ExitStack() as stack:
            for law in LAWS:
                stack.enter_context(patched(law, "sample", self._sample))
                stack.enter_context(patched(law, "log_prob", self._log_prob))
            yield stack.enter_context(self)

    def _sample(self, original: Callable, law: Any, *args: Any, **kwargs: Any) -> Tensor:
        value = original(law, *args, **kwargs)
        self.draws += 1
        if self.moved is not None and value.dim() == 2 and self.moved < value.shape[1]:
            value = value.clone()
            value[:, self.moved] = value[:, self.moved].roll(1, 0)
        self._drawn = value
        return value

    def _log_prob(self, original: Callable, law: Any, value: Tensor) -> Tensor:
        log = original(law, value)
        if value is self._drawn and log.requires_grad:
            self._logs.append(log)
        return log

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None):
        result = function(*args, **(kwargs or {}))
        if function in NEGATED and any(args[0] is log for log in self._logs):
            self._logs.append(result)
        elif function in TIMES and len(args) > 1:
            for log, weight in (args[:2], args[1::-1]):
                fixed = isinstance(weight, Tensor) and not weight.requires_grad
                known = any(log is one for one in self._logs)
                if known and fixed and weight.shape == log.shape:
                    self.weights.append(weight.detach().clone())
        return result
