"""Relation between loss and metric: the answers that a metric rates best cost less than its worst.

The answers are made up and put in the place of the model's outputs, so that it need not be trained,
nor be able to learn.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from course.debug.probes.modes import evaluation_of, scored_with
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.relations.direction import NOT, WORDS, among
from course.debug.relations.program import program_of
from course.state.nested import mapped, tensors_in

BEST = 0.95
"""Score of answers that are all right, of those that lie between 0 and 1; the worst are as far
from 0."""
FAR = 10.0
"""Made-up answers lie so many times as far from 0 as any output: beyond every threshold."""
INSIDE = 0.02
"""Distance of made-up answers from 0 and 1, where outputs are shares."""
BATCHES = 3
"""Training batches whose losses are compared."""
DEARER = 1.1
"""Ratio of two losses from which the one is larger, not rounded."""


def alike(session: Session) -> Iterator[Finding]:
    """Of two ways to give each row one number by its answer, 0 or 1, the one that a metric rates
    best does not cost more than the one it rates worst."""
    program, seen = program_of(session), evaluation_of(session)
    names = [k for k in seen.first if among(WORDS, k) and not among(NOT, k)]
    if session.setup.train_step is None or session.setup.val_loader is None or not names:
        raise NotChecked("needs train_step, a val_loader and a metric that is better if higher")
    outputs = [e.output for e in seen.tape.of("output") if e.call == 0]
    batches = session.val_epoch.batches
    if not session.val_epoch.whole or len(outputs) != len(batches):
        raise NotChecked("evaluate() does not call the model once for each validation batch")
    if any(o is None or not _is_a_column(o) for o in outputs):
        raise NotChecked("outputs are not one number per row")
    for place, _ in enumerate(tensors_in(batches[0])):
        answers = [_answers(b, place) for b in batches]
        trained = [_answers(b, place) for b in program.batches[:BATCHES]]
        if any(a is None or len(a) != len(o) for a, o in zip(answers, outputs, strict=True)):
            continue
        if any(a is None for a in trained):
            continue
        for low, high in _levels(torch.cat([o.flatten() for o in outputs])):
            ways = [(low, high), (high, low)]
            scores = [
                scored_with(session, _Instead(answers, way)).get(names[0], math.nan) for way in ways
            ]
            if not (max(scores) >= BEST and min(scores) <= 1 - BEST):
                continue
            best = ways[scores.index(max(scores))]
            costs = [[_cost(session, n, a, way) for n, a in enumerate(trained)]
                     for way in (best, best[::-1])]  # fmt: skip
            if all(math.isfinite(c) for cost in costs for c in cost) and all(
                b > 0 and b > DEARER * w for b, w in zip(*costs, strict=True)
            ):
                yield _finding(names[0], scores, best, costs)
            return
    raise NotChecked("no answers of 0 and 1 in a batch decide the metric")


def _finding(
    name: str, scores: list[float], best: tuple[float, float], costs: list[list[float]]
) -> Finding:
    zero, one = best
    return Finding(
        "loss-negated", "error",
        f"{name} is {max(scores):.3g} if rows of answer 1 get the output {one:.3g} and rows of "
        f"answer 0 get {zero:.3g}, and {min(scores):.3g} the other way round; but the loss is "
        f"{costs[0][0]:.3g} for the first and {costs[1][0]:.3g} for the second: in the loss, 1 "
        "means what 0 means in the metric, or its sign is wrong.",
        {"output_for_1": one, "output_for_0": zero, "best": max(scores), "worst": min(scores),
         "loss_of_best": costs[0][0], "loss_of_worst": costs[1][0]},
        "label = 1 - same  # where the loss takes 1 for a pair that is different",
    )  # fmt: skip


def _is_a_column(output: Tensor) -> bool:
    return output.is_floating_point() and output.dim() > 0 and output.numel() == len(output)


def _answers(batch: Any, place: int) -> Tensor | None:
    """A column of a batch, if it holds 0 and 1 and nothing else; of a short one, either."""
    leaves = list(tensors_in(batch))
    column = leaves[place] if place < len(leaves) else None
    if column is None or not column.dim() or column.numel() != len(column):
        return None
    column = column.flatten()
    return column > 0 if bool(((column == 0) | (column == 1)).all()) else None


def _levels(outputs: Tensor) -> Iterator[tuple[float, float]]:
    """A low and a high output; within the range of outputs first."""
    far = FAR * max(1.0, float(outputs.abs().max()))
    if not math.isfinite(far):
        raise NotChecked("outputs are not finite")
    if bool((outputs >= 0).all()):
        if bool((outputs <= 1).all()):
            yield INSIDE, 1 - INSIDE
        yield INSIDE, far
    else:
        yield -far, far


class _Instead:
    """A hook that gives each row a made-up number by its answer; call by call."""

    def __init__(self, answers: list[Tensor], way: tuple[float, float]) -> None:
        self.answers, self.way, self.calls = answers, way, 0

    def __call__(self, _: nn.Module, args: tuple, output: Any) -> Any:
        first = next(tensors_in(output), None)
        answers = self.answers[min(self.calls, len(self.answers) - 1)]
        self.calls += 1
        if first is None or first.numel() != len(answers):
            raise NotChecked("the model gives another number of outputs")
        low, high = (torch.tensor(v).to(first) for v in self.way)
        made = torch.where(answers.to(first.device), high, low).reshape(first.shape)
        made = made + first - first.detach()  # backward goes on to the weights
        return mapped(lambda t: made if t is first else t, output)


def _cost(session: Session, number: int, answers: Tensor, way: tuple[float, float]) -> float:
    program = program_of(session)
    instead = _Instead([answers], way)

    def prepare() -> None:
        session.model.register_forward_hook(instead)  # taken off where the step is put back

    step = program.step(program.batches[number], prepare=prepare)
    if instead.calls != 1:
        raise NotChecked("a step does not call the model once")
    return step.loss
