"""Relation on scores of what is found for a query: outputs that say nothing find nothing.

The model's outputs in evaluate() are exchanged for random numbers. The nearest to each is then any
other, unless what is searched holds the query itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from course.debug.probes.modes import evaluation_of, scored_with
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.state.nested import mapped, num_examples

OF_THE_NEAREST = re.compile(
    r"(recall|hits?|precision|top|r|p)_?(@|at)_?1$|mean_average_precision|retriev|nearest|mrr"
)
"""Names of scores of what is found first, or of all that is found, in its order."""
DRAWS = 3
"""Draws of the outputs, each of which has to give a perfect score: by chance none does."""
LEAST_ROWS = 24
"""Rows of the validation data from which the nearest is seldom the right one by chance."""


def not_itself(session: Session) -> Iterator[Finding]:
    """A score of the nearest is not perfect if the model's outputs are random numbers."""
    seen = evaluation_of(session)
    names = [k for k, v in seen.first.items() if v == 1 and OF_THE_NEAREST.search(k.lower())
             and "train" not in k.lower()]  # fmt: skip
    rows = sum(num_examples(b) or 0 for b in session.val_epoch.batches)
    if not names or rows < LEAST_ROWS:
        raise NotChecked("no perfect score of what is nearest, or few rows")
    scores = [_with_others(session, draw) for draw in range(DRAWS)]
    alike = _with_others(session, None).get(names[0], 1)
    if all(s.get(names[0]) == 1 for s in scores) and alike < 1:  # else it reads no outputs
        yield Finding(
            "metric-wrong", "error",
            f"{names[0]} is 1, and still exactly 1 if all outputs of the model are random numbers, "
            f"in each of {DRAWS} draws for {rows} rows (if all are the same: {alike:.3g}). Each "
            "query is among what is searched, and finds itself.",
            {"score": seen.first[names[0]], "with_random_outputs": 1.0,
             "with_one_output_for_all": alike, "rows": rows},
            'similarity.fill_diagonal_(-float("inf"))  # a query is no answer to itself',
        )  # fmt: skip


def _with_others(session: Session, draw: int | None) -> dict[str, float]:
    """Scores of evaluate() with the model's outputs drawn at random, or all the same.

    Raises:
        NotChecked: It raises, or does not call the model.
    """
    own, calls = torch.Generator().manual_seed(draw or 0), []

    def drawn(t: Any) -> Any:
        if not isinstance(t, Tensor) or not t.is_floating_point():
            return t
        if draw is None:
            return torch.ones_like(t)
        return torch.randn(t.shape, generator=own).to(t)

    def instead(_: nn.Module, args: Any, output: Any) -> Any:
        calls.append(1)
        return mapped(drawn, output)

    scores = scored_with(session, instead)
    if not calls:
        raise NotChecked("evaluate() does not call the model")
    return scores
