"""What the rungs share: the set-up, how a step is made, how outputs are scored."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course.debug.probes.session import NotChecked, Session, as_float, pair
from course.debug.probes.thresholds import YES
from course.state import evaluation_mode

Numbers = dict[str, Any]
Picture = Callable[[], Any]
"""Draws a matplotlib figure."""


@dataclass(frozen=True)
class Outcome:
    """What a rung saw."""

    message: str
    evidence: Numbers = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    picture: Picture | None = None
    """Draws what was seen."""


class Fall(Exception):
    """A rung failed: what was seen, and what to try first.

    With a `cause`, the rung itself identified the fault; without one, the doctor is asked.
    """

    def __init__(
        self,
        message: str,
        evidence: Numbers | None = None,
        fix: str = "",
        *,
        cause: str = "",
        picture: Picture | None = None,
    ) -> None:
        super().__init__(message)
        self.outcome = Outcome(message, evidence or {}, picture=picture)
        self.fix, self.cause = fix, cause


@dataclass(frozen=True)
class Scores:
    """The score of each validation example."""

    each: Tensor
    """Share of right answers per example [N], or squared error per example [N] in regression."""
    name: str
    """`accuracy` or `squared error`."""

    @property
    def mean(self) -> float:
        return float(self.each.mean())

    @property
    def higher_is_better(self) -> bool:
        return self.name == "accuracy"

    def beats(self, other: Scores) -> float:
        """One-sided p-value that these scores are no better than the other's, example by example.

        Right and wrong answers: McNemar's exact test on the examples that only one of the two gets
        right. Other scores: Wilcoxon's signed-rank test.
        """
        from scipy.stats import binomtest, wilcoxon

        gain = (self.each - other.each).double() * (1 if self.higher_is_better else -1)
        gain = gain[gain != 0]
        if not len(gain):
            return 1.0
        if set(self.each.unique().tolist()) <= {0.0, 1.0}:
            return float(binomtest(int((gain > 0).sum()), len(gain), 0.5, "greater").pvalue)
        return float(wilcoxon(gain.numpy(), alternative="greater").pvalue)


class Climb:
    """The climb: what was asked for, and what lower rungs pass on to higher ones."""

    def __init__(
        self, session: Session, *, epochs: int, subset: float, seed: int, steps: int
    ) -> None:
        self.session, self.setup, self.declared = session, session.setup, session.declared
        self.epochs, self.subset, self.seed, self.steps = epochs, subset, seed, steps
        self.model: nn.Module = session.model
        self.baseline: Scores | None = None
        """Scores of the dumb baseline on the validation data, from rung 2."""
        self.trained: nn.Module | None = None
        """The model at its best epoch, from rung 6."""

    @property
    def allowed(self) -> set[str]:
        """Class ids that the author declares as intended."""
        allow = self.declared.get("allow", ())
        return {allow} if isinstance(allow, str) else set(allow)

    # The data

    @cached_property
    def task(self) -> str:
        """The declared task, else the one inferred from the targets."""
        if self.session.task != "unknown":
            return self.session.task
        _, targets = self.session.batch
        if not targets.is_floating_point():
            return "classification"
        outputs = self.session.outputs
        zero_one = set(targets.unique().tolist()) <= {0.0, 1.0}
        if not zero_one:
            return "regression"
        return "multilabel" if outputs.dim() == 2 and outputs.shape[1] > 1 else "binary"

    @cached_property
    def train_rows(self) -> tuple[Tensor, Tensor]:
        """Inputs and targets of the training batches that were read, joined, on the CPU."""
        return _joined(self.session.epoch.batches, "train_loader")

    @cached_property
    def val_rows(self) -> tuple[Tensor, Tensor]:
        """Inputs and targets of the validation batches that were read, joined, on the CPU."""
        return _joined(self.session.val_epoch.batches, "val_loader")

    def as_loaded(self, *rows: Tensor) -> list[Tensor]:
        """Copies of rows on the device of the train_loader's batches, as a step may expect."""
        batch = pair(self.session.epoch.batches[0])
        return [part.to(one.device, copy=True) for part, one in zip(rows, batch, strict=True)]

    # Training and scoring

    def step(self, batch: Any) -> float:
        """One call of the user's `train_step`, or our six operations on the user's parts."""
        return as_float((self.setup.train_step or self.session.plain_step)(batch))

    @contextlib.contextmanager
    def from_the_start(self) -> Iterator[None]:
        """Inside, everything starts as it was passed in; afterwards it is restored."""
        with self.session.observe():
            torch.manual_seed(self.seed)
            yield

    def score(self, inputs: Tensor, targets: Tensor, *, size: int = 256) -> Scores:
        """Scores of the model in eval mode, without a graph."""
        with evaluation_mode(self.model):
            parts = [
                self.model(self.session.place(chunk)).detach().cpu() for chunk in inputs.split(size)
            ]
        return self.scores_of(torch.cat(parts), targets.cpu())

    def scores_of(self, outputs: Tensor, targets: Tensor) -> Scores:
        """Score each example; targets that the loss ignores do not count."""
        if self.task == "regression":
            if outputs.shape != targets.shape:
                outputs = outputs.reshape(targets.shape) if _fits(outputs, targets) else outputs
            error = (outputs - targets).double().square()
            return Scores(error.flatten(1).mean(1) if error.dim() > 1 else error, "squared error")
        right = self.answers(outputs, targets).reshape(targets.shape) == targets
        counted = targets >= 0 if not targets.is_floating_point() else torch.ones_like(right)
        right, counted = (right & counted).double(), counted.double()
        if right.dim() > 1:
            right, counted = right.flatten(1).sum(1), counted.flatten(1).sum(1)
            return Scores((right / counted.clamp(min=1))[counted > 0], "accuracy")
        return Scores(right[counted > 0], "accuracy")

    def answers(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """What the outputs predict: the class, or yes and no as 1.0 and 0.0.

        Classes are on the second axis, as in cross-entropy, or on the last: [B, T, C].

        Raises:
            NotChecked: Outputs that are not scores of classes.
        """
        if self.task == "classification" and outputs.dim() > 1 and outputs.shape[1] > 1:
            second = outputs.shape[:1] + outputs.shape[2:] == targets.shape
            last = outputs.dim() > 2 and outputs.shape[:-1] == targets.shape
            if second and last:
                raise NotChecked(f"classes may be on axis 1 or 2 of {list(outputs.shape)}")
            return outputs.argmax(dim=-1 if last else 1)
        if self.task == "classification":
            raise NotChecked(f"outputs {list(outputs.shape)} are not scores [B, C] of classes")
        loss_fn = self.setup.loss_fn
        probabilities = isinstance(loss_fn, nn.BCELoss) or loss_fn is F.binary_cross_entropy
        return (outputs > (YES if probabilities else 0.0)).to(torch.get_default_dtype())


def _fits(outputs: Tensor, targets: Tensor) -> bool:
    return outputs.numel() == targets.numel() and len(outputs) == len(targets)


def _joined(batches: list[Any], name: str) -> tuple[Tensor, Tensor]:
    if not batches:
        raise Fall(f"the {name} yielded no batch", fix=f"next(iter({name}))")
    pairs = [pair(batch) for batch in batches]
    try:
        return torch.cat([x for x, _ in pairs]).cpu(), torch.cat([y for _, y in pairs]).cpu()
    except RuntimeError as error:
        raise NotChecked("batches of different shapes cannot be joined") from error


def shares(targets: Tensor) -> dict[int, float]:
    """Share of each class."""
    values, counts = targets[targets >= 0].unique(return_counts=True)
    total = int(counts.sum())
    return {int(v): int(c) / total for v, c in zip(values.tolist(), counts.tolist(), strict=True)}
