"""Relation on the unit of a score: outputs are scored against the targets that train them.

Where the loss compares the outputs with the targets as a batch holds them, both have one unit. An
evaluation that scales the outputs, e.g. back to a price, has to scale the targets, too.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from course.debug.probes.modes import evaluation_of
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.thresholds import TINY
from course.debug.relations.noise import COMPARED
from course.debug.relations.program import program_of
from course.debug.relations.scores import Compared, affine
from course.state.nested import tensors_in

ONE_UNIT = 2.0
"""Times by which the spread of the targets may differ between training and validation, and spreads
between their means, where both are of one unit."""
FAR = 3.0
"""Times the targets' own spread, and the error of the outputs as they are, from which an error is
no longer one of a prediction: a scale that was fitted afterwards makes it smaller."""
LEAST_TARGETS = 20
"""Targets of a split from which their mean and spread say of which unit they are."""


def of_outputs_alone(session: Session) -> Iterator[Finding]:
    """What evaluate() compares with the targets that the loss uses is not another scale of the
    outputs."""
    if session.setup.evaluate is None:
        raise NotChecked("no evaluate()")
    scored, step = evaluation_of(session).tape.functions.called, program_of(session).first()
    if scored.isdisjoint(COMPARED) or not step.calls_any(COMPARED):
        raise NotChecked("nothing is compared with targets by a difference")
    place = _trained_on(session)
    outputs, targets = _validated(session, place)
    heard = Compared()
    with session.observe(), heard:
        session.setup.evaluate()
    whole = tuple(torch.cat([t.flatten() for t in side]) for side in (outputs, targets))
    given, met, plain = [], [], []
    for one, other in heard.pairs:
        for scaled, fixed in ((one, other), (other, one)):
            for output, target in [*zip(outputs, targets, strict=True), whole]:
                if _equal(fixed, target) and (law := affine(output, scaled)) is not None:
                    given.append(scaled.flatten().double())
                    met.append(target.flatten().double())
                    plain.append(output.flatten().double())
                    break
    if not given:
        raise NotChecked("evaluate() does not compare scaled outputs with the targets")
    error, as_they_are = (float((torch.cat(p) - torch.cat(met)).pow(2).mean().sqrt())
                          for p in (given, plain))  # fmt: skip
    spread = float(torch.cat(met).std())
    if error > FAR * max(spread, as_they_are):
        factor, shift = law
        yield Finding(
            "metric-wrong", "warning",
            f"evaluate() compares {factor:.4g} times the outputs {shift:+.4g} with the targets as "
            "they are, but the loss trains the outputs themselves on such targets: the error is "
            f"{error:.4g} (the targets' spread is {spread:.4g}), that of the outputs as they are "
            f"{as_they_are:.4g}.",
            {"error": error, "of_outputs_as_they_are": as_they_are, "spread_of_targets": spread,
             "factor": factor, "shift": shift},
            "y = y * std + mean  # the targets, too, before they are compared",
        )  # fmt: skip


def _trained_on(session: Session) -> int:
    """Place in a batch of the numbers that the loss compares the outputs with, both as they are.

    Raises:
        NotChecked: There is none.
    """
    program, mode = program_of(session), Compared()
    step = program.step(program.batches[0], within=mode)
    outputs = [e.output for e in step.tape.of("output") if e.graph]
    for place, target in enumerate(tensors_in(program.batches[0])):
        for given, met in mode.learned:
            if _equal(met, target) and any(o is not None and _equal(given, o) for o in outputs):
                return place
    raise NotChecked("outputs are not compared with numbers of the batch as they are")


def _validated(session: Session, place: int) -> tuple[list[Tensor], list[Tensor]]:
    """Outputs and targets of each batch of an evaluation, where its targets are of the same unit as
    those of training.

    Raises:
        NotChecked: They are not, or it does not call the model once for each batch in each pass.
    """
    outputs = [e.output for e in evaluation_of(session).tape.of("output") if e.call == 0]
    trained, validated = (
        [leaves[place] for batch in epoch.batches if len(leaves := list(tensors_in(batch))) > place]
        for epoch in (session.epoch, session.val_epoch)
    )
    if not validated or len(outputs) % len(validated) or any(o is None for o in outputs):
        raise NotChecked("evaluate() does not call the model once for each batch")
    outputs = outputs[: len(validated)]
    if not outputs or any(o.numel() != t.numel()
                          for o, t in zip(outputs, validated, strict=True)):  # fmt: skip
        raise NotChecked("outputs and targets are not of one size")
    one, other = (torch.cat([t.flatten().double() for t in side]) for side in (trained, validated))
    if min(len(one), len(other)) < LEAST_TARGETS:
        raise NotChecked("fewer than 20 targets")
    wide = float(other.std()) / max(float(one.std()), TINY)
    apart = abs(float(one.mean() - other.mean())) / max(float(one.std()), TINY)
    if not 1 / ONE_UNIT < wide < ONE_UNIT or apart > ONE_UNIT:
        raise NotChecked("training and validation targets may be of different units")
    return outputs, validated


def _equal(one: Tensor, other: Tensor) -> bool:
    """The same numbers, in whatever shape."""
    return one.numel() == other.numel() and torch.equal(one.flatten(), other.flatten().to(one))
