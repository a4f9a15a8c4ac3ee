"""Relation on scores: what a softmax or a sigmoid has made of them is not put into it again."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from course.debug.probes.functions import comes_from
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.thresholds import OFTEN, ROUNDED
from course.debug.relations.program import program_of

LOG_SOFTMAX = {F.log_softmax, torch.log_softmax, Tensor.log_softmax}
LOG_SUMS = {torch.logsumexp, Tensor.logsumexp}
MINUS = {torch.sub, Tensor.sub, Tensor.__sub__}
OF_LOGITS = {F.logsigmoid, F.binary_cross_entropy_with_logits}
"""Functions that take a sigmoid of what they get."""
HEARD = {F.cross_entropy, F.binary_cross_entropy_with_logits}
"""Functions of which the tape already knows whether they get what a softmax or a sigmoid gave."""


def again(session: Session) -> Iterator[Finding]:
    """No log-probabilities are taken of probabilities as if these were scores.

    For example `Categorical(logits=net(x).softmax(-1))`, in a loss or in a policy: exp(log_softmax)
    of numbers from 0 to 1 lies between 1 / (1 + (C - 1) e) and e / (e + C - 1).
    """
    program, mode = program_of(session), _Squeezed()
    called = program.first().tape.functions.called
    heard = called & (LOG_SUMS | LOG_SOFTMAX | OF_LOGITS | {F.cross_entropy})
    if not heard:
        raise NotChecked("no log-probabilities of scores are taken")
    if heard <= HEARD and not any(e.squeezed for e in program.first().tape.of("loss")):
        return
    program.step(program.batches[0], within=mode)
    for kind, (seen, twice, classes) in mode.counts.items():
        if not twice or twice <= OFTEN * seen:
            continue
        most = 1 / (1 + (classes - 1) / math.e) if kind == "softmax" else 1 / (1 + 1 / math.e)
        logits = "logits" if kind == "softmax" else "logit"
        yield Finding(
            "double-softmax", "error",
            f"In {twice} of {seen} calls of a step, what a {kind} gave is taken for {logits}, of "
            f"which another {kind} is taken: no probability can rise above {most:.2f}, however "
            "long it is trained.",
            {"calls": twice, "of": seen, "largest_probability": most},
            "law = Categorical(logits=scores)  # or Categorical(probs=scores.softmax(-1))",
        )  # fmt: skip
        return
    if not any(seen for seen, _, _ in mode.counts.values()):
        raise NotChecked("no log-probabilities of learned scores are taken")


class _Squeezed(TorchFunctionMode):
    """Calls that take log-probabilities of scores with a graph, and those that get shares."""

    def __init__(self) -> None:
        super().__init__()
        self.sums: list[tuple[Tensor, Tensor]] = []
        """Scores, and the logarithm of the sum of their exponentials."""
        self.counts = {"softmax": (0, 0, 2), "sigmoid": (0, 0, 2)}

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None):
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        x = kwargs.get("input", args[0] if args else None)
        if not isinstance(x, Tensor) or not x.requires_grad or not x.dim():
            return result
        if function in LOG_SUMS:
            self.sums.append((x, result))
        elif function in OF_LOGITS:
            self._count("sigmoid", x, again=comes_from(x, "Sigmoid"))
        elif function in LOG_SOFTMAX or function is F.cross_entropy or (
            function in MINUS and any(x is a and args[1] is b for a, b in self.sums)
        ):  # fmt: skip
            axis = 1 if function is F.cross_entropy and x.dim() > 1 else -1
            self._count("softmax", x, again=_adds_up(x, axis) and comes_from(x, "Softmax"))
        return result

    def _count(self, kind: str, x: Tensor, *, again: bool) -> None:
        seen, twice, classes = self.counts[kind]
        self.counts[kind] = seen + 1, twice + again, x.shape[-1] if again else classes


def _adds_up(x: Tensor, axis: int) -> bool:
    """Shares of more than one class. A softmax of equal scores is no less one."""
    return x.shape[axis] > 1 and float((x.detach().sum(axis) - 1).abs().max()) < ROUNDED
