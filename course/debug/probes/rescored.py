"""Probe on the accuracy of a model with other weights: there, too, it must be an accuracy.

A fresh model gives nearly all examples the same answer, for which a wrong count is often right by
chance.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from itertools import pairwise

import torch

from course.debug.probes.metric import REPEATED, Plain, _hits, _judged, _named, _observed
from course.debug.probes.modes import close, evaluation_of
from course.debug.probes.report import Finding
from course.debug.probes.session import Evaluation, NotChecked, Session, as_metrics, pair
from course.debug.probes.tape import Tape
from course.debug.probes.thresholds import ROUNDED

DRAWS = 2
"""Draws of the weights: of 80 examples two counts are the same by chance once in 12 times."""
LARGER = 3.0
"""Weights are drawn so many times as large as they are, so that answers are far from even."""
CALLS = (4, 8, 16)
HALVED = (0.47, 0.66)
"""After so many calls the share of what was carried over is 1/5, 1/9 and 1/17 where all weigh
alike: 0.56 and 0.53 of what it was, and as much as 0.65 if the first weights count three times. A
score that is smoothed on purpose cannot keep both within these ends: its second is the first one's
square."""


def accuracy(session: Session) -> Iterator[Finding]:
    """The accuracy is the share of right answers, whatever the weights."""
    if not _named(evaluation_of(session), "acc"):
        raise NotChecked("no accuracy in evaluate()")
    for draw in range(DRAWS):
        seen = redrawn(session, draw)
        plain = _met(session, seen)
        for name, value in _named(seen, "acc").items():
            found = list(_judged(session, _observed(session, plain, plain.rates, name, value)))
            if found:
                yield found[0]
                return


def from_zero(session: Session) -> Iterator[Finding]:
    """The score of other weights does not depend on whether the first weights were scored before.

    Sums that are carried over leave a share of it, which becomes smaller as they grow: a mean over
    as many examples lies halfway. A score that is smoothed on purpose, or the best so far, moves
    otherwise.
    """
    seen = evaluation_of(session)
    alone, after = redrawn(session, 0), redrawn(session, 0, scored_before=True)
    for name, first in seen.first.items():
        fresh, later = (one.first.get(name, math.nan) for one in (alone, after))
        if not close(first, seen.second.get(name, math.nan)) or close(first, fresh, REPEATED):
            continue
        if not close(later, fresh, REPEATED) and _adds_up(session, name, fresh):
            yield Finding(
                "metric-not-reset", "warning",
                f"{name} of other weights is {fresh:.4g}, but {later:.4g} if the first weights, "
                f"which score {first:.4g}, were scored before: sums are carried over from one call "
                "to the next.",
                {"first": first, "of_other_weights": fresh, "after_the_first": later},
                "correct = total = 0  # at the start of every evaluate(); metric.reset()",
            )  # fmt: skip
            return


def _adds_up(session: Session, name: str, fresh: float) -> bool:
    """Called again and again, the score of other weights comes nearer to what it is alone as one of
    sums does, in which the share of the first weights is halved where the calls are doubled."""
    if "scored again" not in session.memory:
        session.memory["scored again"] = (
            redrawn(session, 0, calls=2), redrawn(session, 0, scored_before=True, calls=CALLS[-1])
        )  # fmt: skip
    alone, calls = session.memory["scored again"]
    if not close(fresh, alone.later[0].get(name, math.nan)):
        return False  # drawn at random
    told = [one.get(name, math.nan) for one in (calls.first, *calls.later)]
    left = [told[number - 1] - fresh for number in CALLS]
    return all(a != 0 and HALVED[0] < b / a < HALVED[1] for a, b in pairwise(left))


def redrawn(
    session: Session, draw: int, *, scored_before: bool = False, calls: int = 1
) -> Evaluation:
    """What `evaluate()` returns for a model with random weights.

    Args:
        draw: Seed of the weights.
        scored_before: The weights as they were are scored first.
        calls: How often they are scored then; what comes after the first is in `later`.

    Raises:
        NotChecked: It raises.
    """
    own = torch.Generator().manual_seed(draw)
    with session.observe(), torch.no_grad():
        if scored_before:
            with torch.enable_grad(), contextlib.suppress(Exception):
                session.setup.evaluate()
        for p in session.model.parameters():
            size = LARGER * (p.float().pow(2).mean().sqrt() + ROUNDED)
            p.copy_(size.to(p) * torch.randn(p.shape, generator=own).to(p))
        tape = Tape(session.model, session.optimizers, session.setup.scheduler)
        seen = Evaluation(tape)
        session.model.train()
        try:
            with torch.enable_grad(), tape.running():
                seen.first = as_metrics(session.setup.evaluate())
                seen.later = [as_metrics(session.setup.evaluate()) for _ in range(calls - 1)]
        except Exception as error:
            raise NotChecked(f"evaluate() raises {type(error).__name__} then") from error
    return seen


def _met(session: Session, seen: Evaluation) -> Plain:
    """The answers that `evaluate()` got for the validation batches, in their order."""
    batches = [pair(batch) for batch in session.val_epoch.batches]
    given = seen.tape.of("forward")
    outputs = [e.output for e in seen.tape.of("output")]
    if not session.val_epoch.whole or not len(batches) == len(given) == len(outputs):
        raise NotChecked("evaluate() does not call the model once for each validation batch")
    plain = Plain([], [], [], [], [])
    for (inputs, targets), event, output in zip(batches, given, outputs, strict=True):
        got = event.inputs
        same = got is not None and got.shape == inputs.shape and torch.equal(
            got, session.place(inputs).to(got)
        )  # fmt: skip
        hits = _hits(output, session.place(targets)) if same and output is not None else None
        if hits is None or any(event.submodes.values()):
            raise NotChecked("outputs in eval mode are not those of classes, batch by batch")
        plain.rates.append(float(hits.float().mean()))
        plain.counts.append(len(targets))
        plain.outputs.append(output)
        plain.targets.append(session.place(targets))
    return plain
