"""Relation between loss and metric: lowering the loss raises the metric."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

import torch
from torch import Tensor

from course.debug.probes.loop import own_loop
from course.debug.probes.metric import REPEATED
from course.debug.probes.modes import close, evaluation_of, scored_with
from course.debug.probes.report import SPENT, Finding
from course.debug.probes.rescored import redrawn
from course.debug.probes.session import (
    Evaluation,
    NotChecked,
    Session,
    as_float,
    as_metrics,
    clone,
)
from course.debug.probes.splits import label_shift
from course.debug.probes.thresholds import TINY
from course.state.nested import mapped

LONG = 48
"""Steps in either direction: a metric of all programs of the tests has begun to move by then."""
LONGER = 2 * LONG
"""The same where the metric has moved by nearly enough by then: few rows are scored, and a share of
few rows moves far by chance."""
FASTER = 5.0
"""Times the rate at which as many steps go as far as hundreds of the author's."""
NEARLY = 0.5
"""Of the distances that are asked for: from so far on, more steps are made."""
WORDS = ("acc", "reward", "return", "auc", "roc", "f1", "iou", "dice", "r2", "concordance",
         "c_index", "recall", "precision", "hit", "ndcg", "mrr")  # fmt: skip
"""Words of metrics that are better the higher they are."""
NOT = ("loss", "error", "err", "train")
OF_CHOICES = ("reward", "return")
"""Words of what choices bring in: the loss that a policy is trained by need not fall for it."""
OF_ORDERS = ("ndcg", "dcg", "mrr")
"""Words of metrics that are far from 0 for any order, so that each row's lies in a narrow range."""
CALLED = ("recall", "precision", "sensitiv", "specific", "coverage", "f1", "iou", "dice", "detect")
"""Words of metrics that one answer for all rows can drive up, e.g. recall where all is called
positive: from a network that calls a few, either end of training may lie there."""
RANKED = re.compile(r"@|_at_|(recall|precision)s?_?\d")
"""Names of the same for the first few of an order, whose number no answer changes."""
FAR = 30.0
"""The one answer that is given for all, on either side of 0: beyond any threshold."""
FEW = 4
"""Classes of which each is tried as the one answer."""
DRAWS, SPREADS = 12, 3.0
"""Random networks, and how many deviations of their metrics are chance: each end of such a range
lies as far from most of them."""
APART = 0.25
"""Of the distance between both ends: so far on either side of the start they have to lie."""
BUSY = 0.6
"""Share of the budget after which an experiment of so many steps is not begun."""
ROUGH = 4.0
"""Standard errors of a share of as many rows as were scored; a share moves less by chance. The ends
are twice as far from each other, and either is half as far from the start."""


def follows(session: Session) -> Iterator[Finding]:
    """Steps down the loss do not lower the metric while steps up the loss raise it."""
    step = session.setup.train_step
    if step is None or own_loop(session).unit != "step":
        raise NotChecked("needs train_step")
    seen = evaluation_of(session)
    if any(not close(v, seen.second.get(k, math.nan), REPEATED) for k, v in seen.first.items()):
        raise NotChecked("evaluate() does not repeat")
    names = [k for k in seen.first if among(WORDS, k) and not among(NOT, k)]
    if not names:
        raise NotChecked("no metric in evaluate() for which higher is known to be better")
    if any("maximize" not in g for o in session.optimizers for g in o.param_groups):
        raise NotChecked("the optimizer cannot go uphill")
    if _other_classes(session):
        raise NotChecked("validation holds different classes, so its metric may fall")
    if session.is_spent(BUSY):
        raise NotChecked(SPENT)
    name = next((n for n in names if not is_one_sided(n)), names[0])
    start = seen.first[name]
    noise = chance(seen, start)
    if among(OF_ORDERS, name):
        noise = min(noise, SPREADS * _spread(session, name) or noise)  # 0 if of other weights
    way: Way | None = Way(LONG)
    while way is not None:
        steps, faster = way.steps, way.faster
        ends, way = _ends(session, name, start, noise, way)
        if session.is_spent(BUSY):
            break
    if not ends:
        return
    rate = f" at {faster:.0f} times the rate" if faster > 1 else ""
    yield Finding(
        "loss-negated", "error",
        f"{steps} steps{rate} that lower the loss take {name} from {start:.3g} to "
        f"{ends[0][0]:.3g}, and {steps} steps that raise the loss take it to {ends[0][1]:.3g}: the "
        "loss has the wrong sign, or its targets have the wrong meaning.",
        {"start": start, "after_lower_loss": ends[0][0], "after_higher_loss": ends[0][1],
         "steps": steps, "times_the_rate": faster},
        "loss = -(log_prob * advantage).mean()  # minus; in a pair loss, 1 marks a similar pair",
    )  # fmt: skip


@dataclass(frozen=True)
class Way:
    """How far training goes in either direction."""

    steps: int
    faster: float = 1.0
    """By so much the rate is larger than the author's."""


def _ends(
    session: Session, name: str, start: float, noise: float, way: Way
) -> tuple[list[tuple[float, float]], Way | None]:
    """Metrics after steps down and up for two seeds, if both times the first is worse than the
    start and the second better; else none, and how to try again where both were on their way."""
    ends = []
    for seed in (0, 1):
        down, fell = _after(session, name, seed, way, uphill=False)
        if not (fell or among(OF_CHOICES, name)) or not down < start - noise / 2:
            return [], None
        up, _ = _after(session, name, seed, way, uphill=True)
        least = max(noise / 2, APART * (up - down))
        if up - down < 2 * noise or not (down < start - least and start + least < up):
            near = up - down > 2 * noise * NEARLY and up > start + noise / 2
            return [], _further(way, near, down < up < start + noise / 2)
        if is_one_sided(name) and not _constants(session, name) < start + least:
            raise NotChecked("one answer for all rows has a better score, which tells no sign")
        ends.append((down, up))
    return ends, None


def _further(way: Way, near: bool, slow: bool) -> Way | None:
    """What to try next: more steps where both ends were nearly there, larger ones where the upper
    one has not begun to move, e.g. in a table of embeddings of which a batch reads few rows."""
    if way != Way(LONG):
        return None
    return Way(LONGER) if near else Way(LONG, FASTER) if slow else None


def _other_classes(session: Session) -> bool:
    """What is scored holds other classes than what is trained on, or some far more often."""
    try:
        return any(finding.is_alarm for finding in label_shift(session))
    except NotChecked:
        return False


def among(words: tuple[str, ...], name: str) -> bool:
    return any(word in name.lower() for word in words)


def is_one_sided(name: str) -> bool:
    """A metric that one answer for all rows may drive up."""
    return among(CALLED, name) and not RANKED.search(name.lower())


def _constants(session: Session, name: str) -> float:
    """The best score of outputs that are the same in all places: high, low, or for one class."""
    ways: list[tuple[int, int]] = [(0, 0), (0, 1)]
    ways += [(axis, n) for axis in (1, -1) for n in range(FEW)]

    def scored(axis: int, number: int) -> float:
        def same(t: Any) -> Any:
            if not isinstance(t, Tensor) or not t.is_floating_point():
                return t
            if not axis or t.dim() < 2:
                return torch.full_like(t, FAR if number else -FAR)
            one = torch.full_like(t, -FAR)
            one.select(axis, number % t.shape[axis]).fill_(FAR)
            return one

        return scored_with(session, lambda *args: mapped(same, args[2])).get(name, math.inf)

    return max(scored(*way) for way in ways)


def chance(seen: Evaluation, share: float) -> float:
    """By how much a share of the rows scored moves by chance; nothing of other metrics, which are
    of any size."""
    rows = sum(len(e.inputs) for e in seen.tape.of("forward")
               if e.call == 0 and e.inputs is not None)  # fmt: skip
    inside = 0 <= share <= 1 and rows
    return ROUGH * math.sqrt(max(share * (1 - share), TINY) / rows) if inside else TINY


def _spread(session: Session, name: str) -> float:
    """Standard deviation of the metric among networks of random weights."""
    values = [redrawn(session, draw).first.get(name, math.nan) for draw in range(DRAWS)]
    return stdev(values) if all(map(math.isfinite, values)) else 0.0


def _after(session: Session, name: str, seed: int, way: Way, *, uphill: bool) -> tuple[float, bool]:
    """The metric after steps in one direction, and whether the loss that they return fell."""
    batches = session.epoch.batches
    with session.observe():
        torch.manual_seed(seed)
        for group in (g for o in session.optimizers for g in o.param_groups):
            group["maximize"] = group["maximize"] != uphill
            if way.faster != 1 and "lr" in group:
                group["lr"] = group["lr"] * way.faster
        losses = [as_float(session.setup.train_step(clone(batches[i % len(batches)])))
                  for i in range(way.steps)]  # fmt: skip
        value = as_metrics(session.setup.evaluate()).get(name, math.nan)
    quarter = way.steps // 4
    return value, fmean(losses[-quarter:]) < fmean(losses[:quarter])
