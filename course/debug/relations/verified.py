"""Relation between loss and metric of pairs: what a metric rates best costs less than its worst.

For models that give one output for each of two things, which a loss draws together or pushes apart
by an answer of 0 or 1. Outputs are made up, so that nothing need be trained.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from course.debug.probes.modes import evaluation_of, scored_with
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.relations.branches import Branches
from course.debug.relations.direction import NOT, WORDS, among
from course.debug.relations.judged import BATCHES, BEST, DEARER, FAR, _answers
from course.debug.relations.program import program_of
from course.state.nested import tensors_in


def alike(session: Session) -> Iterator[Finding]:
    """Of two ways to draw pairs together by their answer, 0 or 1, the one that a metric rates best
    does not cost more than the one it rates worst."""
    program = program_of(session)
    if session.setup.train_step is None or session.setup.val_loader is None:
        raise NotChecked("needs train_step and a val_loader")
    names = [k for k in evaluation_of(session).first if among(WORDS, k) and not among(NOT, k)]
    if not names or not session.val_epoch.whole:
        raise NotChecked("no metric in evaluate() for which higher is known to be better")
    for place, _ in enumerate(tensors_in(program.batches[0])):
        answers = [_answers(b, place) for b in session.val_epoch.batches]
        trained = [_answers(b, place) for b in program.batches[:BATCHES]]
        if any(a is None or bool(a.all()) or not bool(a.any()) for a in [*answers, *trained]):
            continue
        scores = [_scored(session, answers, near).get(names[0], math.nan) for near in (1, 0)]
        if not (max(scores) >= BEST and min(scores) <= 1 - BEST):
            continue
        best = 1 if scores[0] == max(scores) else 0
        costs = [[_cost(session, n, a, near) for n, a in enumerate(trained)]
                 for near in (best, 1 - best)]  # fmt: skip
        if all(math.isfinite(c) for cost in costs for c in cost) and all(
            b > 0 and b > DEARER * w for b, w in zip(*costs, strict=True)
        ):
            yield Finding(
                "loss-negated", "error",
                f"{names[0]} is {max(scores):.3g} if pairs with answer {best} get the same output "
                f"twice and the others get opposite ones, and {min(scores):.3g} the other way "
                f"round; but the loss is {costs[0][0]:.3g} for the first and {costs[1][0]:.3g} for "
                "the second: it pushes apart the pairs that belong together.",
                {"answer_of_alike": best, "best": max(scores), "worst": min(scores),
                 "loss_of_best": costs[0][0], "loss_of_worst": costs[1][0]},
                "label = 1 - same  # where the loss takes 1 for a pair that is different",
            )  # fmt: skip
        return
    raise NotChecked("no answers of 0 and 1 in a batch decide the metric")


def _instead(answers: list[Tensor], near: int) -> Branches:
    """Pairs with this answer get one output twice, and the others two opposite ones."""

    def make(batch: int, side: int, output: Tensor) -> Tensor:
        own = torch.Generator().manual_seed(batch)
        made = torch.randn(output.shape, generator=own)
        made *= FAR * max(1.0, float(output.abs().max())) / made.norm(dim=1, keepdim=True)
        apart = (answers[batch].cpu() != bool(near)) & bool(side)
        return torch.where(apart[:, None], -made, made)

    return Branches([len(a) for a in answers], make)


def _scored(session: Session, answers: list[Tensor], near: int) -> dict[str, float]:
    instead = _instead(answers, near)
    scores = scored_with(session, instead)
    if not instead.is_done:
        raise NotChecked("evaluate() does not call the model for each pair")
    return scores


def _cost(session: Session, number: int, answers: Tensor, near: int) -> float:
    program = program_of(session)
    instead = _instead([answers], near)
    step = program.step(program.batches[number],
                        prepare=lambda: program.model.register_forward_hook(instead))  # fmt: skip
    if not instead.is_done:
        raise NotChecked("a step does not give two outputs for each row")
    return step.loss
