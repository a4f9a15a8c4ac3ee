"""Relation on a policy with a critic: the policy's loss does not train the critic's value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from course.debug.probes.functions import LOSSES
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, clone
from course.debug.probes.tape import Tape
from course.debug.probes.thresholds import CHANGED, ROUNDED, TINY
from course.debug.relations.program import program_of, without_dropout

DISTANCES = {F.mse_loss, F.smooth_l1_loss, F.huber_loss, F.l1_loss}
NAMES = {LOSSES[function] for function in DISTANCES}
PICKED = {torch.gather, Tensor.gather, Tensor.__getitem__, torch.take_along_dim}
"""Functions that pick an action's log-probability out of those of all."""
COSTS = {F.cross_entropy, F.nll_loss}
"""The same with the other sign, one for each row."""
LEAST_ROWS = 8
"""Rows of a batch from which two columns are proportional by no chance."""


def baseline(session: Session) -> Iterator[Finding]:
    """The value that is subtracted from a return as a baseline learns from its own loss alone."""
    program = program_of(session)
    if program.first().is_one_of_torchs or not any(e.name in NAMES for e in program.first().losses):
        raise NotChecked("no distance is one of several parts of the loss")
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
                    f"{share:.0%} of the gradient at the critic's values is the actions' log-"
                    "probability: the advantage keeps its graph, and the policy's loss pushes the "
                    "values away from the returns.",
                    {"share_of_the_gradient": share, "rows": len(log)},
                    "advantage = returns - value.detach()",
                )  # fmt: skip
                return


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

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None):
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        if function in DISTANCES and len(args) > 1 and result.requires_grad:
            value, other = args[:2] if args[0].requires_grad else (args[1], args[0])
            if value.shape == other.shape and not other.requires_grad:
                self._listen(value, other, function)
        elif function in PICKED | COSTS and isinstance(result, Tensor) and result.requires_grad:
            rows = result.detach().double()
            log = -rows if function in COSTS else rows
            if rows.dim() and rows.numel() == len(rows) and bool((log < 0).all()):
                self.logs.append(log.flatten())
        return result

    def _listen(self, value: Tensor, other: Tensor, function: Any) -> None:
        leaf = value.detach().clone().requires_grad_()
        (own,) = torch.autograd.grad(function(leaf, other.detach()), leaf)
        own = own.flatten().double()
        value.register_hook(lambda g: self.values.append((g.detach().flatten().double(), own)))
