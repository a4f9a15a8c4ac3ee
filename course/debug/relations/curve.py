"""Relation on an averaged loss: whatever weights the examples comes before the mean."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from course.debug.probes.functions import LOSSES
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.thresholds import ROUNDED
from course.debug.relations.program import changed, program_of
from course.state.nested import tensors_in

OF_CLASSES = {F.cross_entropy, F.nll_loss, F.binary_cross_entropy,
              F.binary_cross_entropy_with_logits}  # fmt: skip
NAMES = {LOSSES[function] for function in OF_CLASSES}
TURNS = 3
"""Ways to hand the targets to other rows: their costs differ, as the outputs do."""


def straight(session: Session) -> Iterator[Finding]:
    """The mean of a loss over classes enters in proportion: a curve on the mean comes too late.

    A weight that depends on how hard an example is, as in a focal loss, differs from example to
    example. Computed from the batch's mean it is the same for all, and only changes the step's
    length.
    """
    program = program_of(session)
    losses = program.first().losses
    if len(losses) != 1 or losses[0].reduction != "mean" or losses[0].name not in NAMES:
        raise NotChecked("no single loss over classes that is averaged")
    if program.first().is_one_of_torchs:
        raise NotChecked("backward is called on the mean itself")
    met = losses[0].targets
    batch = program.batches[0]
    if not any(t.shape == met.shape and torch.equal(t.cpu(), met.cpu()) for t in tensors_in(batch)):
        raise NotChecked("the targets of the loss are not in the batch as they are")
    seen = [_cost(session, batch, met, by) for by in range(TURNS)]
    means, slopes, totals = (torch.tensor(column).double() for column in zip(*seen, strict=True))
    if not bool((slopes > 0).all()):
        raise NotChecked("the loss falls as the mean grows")
    if min(map(_spread, (means, totals))) < ROUNDED:
        raise NotChecked("other targets give the same loss")
    if _spread(slopes) > ROUNDED:
        easy, hard = int(means.argmin()), int(means.argmax())
        yield Finding(
            "weighed-after-the-mean", "warning",
            f"The mean loss of a batch gets a weight of {float(slopes[easy]):.3g} when it is "
            f"{float(means[easy]):.3g} and of {float(slopes[hard]):.3g} when it is "
            f"{float(means[hard]):.3g}: a curve is applied to the mean, so all examples of a batch "
            "get the same weight, and hard ones no more than easy ones.",
            {"mean": float(means[easy]), "counts": float(slopes[easy]),
             "other_mean": float(means[hard]), "counts_then": float(slopes[hard])},
            'each = F.cross_entropy(logits, y, reduction="none")\n'
            "loss = ((1 - torch.exp(-each)) ** 2 * each).mean()",
        )  # fmt: skip


def _spread(values: Tensor) -> float:
    return float((values.max() - values.min()) / values.abs().max().clamp_min(ROUNDED))


def _cost(session: Session, batch: Any, met: Tensor, by: int) -> tuple[float, float, float]:
    """The mean, by how much the loss grows with it, and the loss, with targets of other rows."""

    def turn(t: Tensor) -> Tensor:
        own = t.shape == met.shape and torch.equal(t.cpu(), met.cpu())
        return t.roll(by, 0) if own else t

    means = _Means()
    step = program_of(session).step(changed(batch, turn), within=means)
    if len(means.values) != 1 or len(means.slopes) != 1:
        raise NotChecked("backward is not called on the mean exactly once")
    return means.values[0], means.slopes[0], step.loss


class _Means(TorchFunctionMode):
    """Losses over classes that are averaged, and the gradient that comes back to each."""

    def __init__(self) -> None:
        super().__init__()
        self.values: list[float] = []
        self.slopes: list[float] = []

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None):
        result = function(*args, **(kwargs or {}))
        if function in OF_CLASSES and result.requires_grad and not result.dim():
            self.values.append(float(result.detach()))
            result.register_hook(lambda gradient: self.slopes.append(float(gradient)))
        return result
