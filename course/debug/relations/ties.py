"""Relation on scores of orders: scores that are all alike are not a perfect order."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from course.debug.probes.modes import close, evaluation_of
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, as_metrics
from course.debug.relations.direction import NOT, among
from course.state.nested import mapped, tensors_in

OF_RANKS = ("hit", "ndcg", "mrr", "recall@", "recall_at", "precision@", "top", "rank", "auc")
"""Words of scores that only the order of the outputs decides."""
CLOSER = 2.0**-10
"""Outputs are brought so close together: a power of two, which rounds nothing away."""
PERFECT = 0.98
"""Score of an order that is as good as perfect."""
IMPERFECT = 0.8
"""A score below which there is a better order than that of the outputs."""
LEAST_CANDIDATES = 5
"""Candidates of each row, among which a constant says nothing."""


def closer(session: Session) -> Iterator[Finding]:
    """A score of orders stays as it is if all outputs are multiplied by one small number.

    Where they are rounded first, they become ties; where ties are counted as hits, the model that
    tells nothing apart gets the perfect score.
    """
    seen = evaluation_of(session)
    names = [n for n in seen.first if among(OF_RANKS, n) and not among(NOT, n)]
    if not names:
        raise NotChecked("no score of an order in evaluate()")
    outputs = [e.output for e in seen.tape.of("output") if e.call == 0]
    if not outputs or any(o is None or o.dim() != 2 or o.shape[1] < LEAST_CANDIDATES
                          or not o.is_floating_point() for o in outputs):  # fmt: skip
        raise NotChecked("the model does not give a score for each of several candidates")
    near = _scored(session, CLOSER)
    for name in names:
        value, after = seen.first[name], near.get(name, math.nan)
        repeats = close(value, seen.second.get(name, math.nan))
        if repeats and 0 <= value < IMPERFECT and PERFECT <= after <= 1:
            yield Finding(
                "metric-wrong", "warning",
                f"{name} is {value:.4g}, but {after:.4g} if all outputs are made "
                f"{1 / CLOSER:.0f} times smaller, which leaves their order as it is: they are "
                "rounded before they are ranked, and ties count as hits. A model that scores "
                "everything alike looks perfect.",
                {name: value, "of_smaller_outputs": after, "factor": CLOSER},
                "rank = (scores > own).sum(1) + ((scores == own).sum(1) - 1) / 2  # no rounding",
            )  # fmt: skip
            return


def _scored(session: Session, factor: float) -> dict[str, float]:
    def shrink(_: nn.Module, args: tuple, output: Any) -> Any:
        first: Tensor | None = next(tensors_in(output), None)
        return mapped(lambda t: t * factor if t is first else t, output)

    with session.observe():
        session.model.train()
        handle = session.model.register_forward_hook(shrink)
        try:
            return as_metrics(session.setup.evaluate())
        except Exception as error:
            raise NotChecked(f"evaluate() raises {type(error).__name__} then") from error
        finally:
            handle.remove()
