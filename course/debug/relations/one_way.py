"""Relation on scores: no single score, for all that is scored, is as good as any can be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.thresholds import ZERO
from course.debug.relations.program import Program, program_of
from course.state.nested import mapped

BATCHES = 3
"""Batches in all of which the loss wants the same."""
FAR, FARTHER = 20.0, 40.0
"""Scores at which a sigmoid is 1 or 0 but for 2e-9, and hinges are past their margins."""
FREE = 0.01
"""Share of the loss, now and of scores of 0, below which nothing is left to learn."""
LEAST_ROWS = 8
"""Scores of a batch below which one of them may well suit all."""


def scores(session: Session) -> Iterator[Finding]:
    """A loss of scores does not pull all of them one way, to where nothing is left to pay.

    Scores tell what belongs together from what does not: something has to become lower as the rest
    becomes higher. Where one large number as the score of everything costs nothing, the pairs of a
    batch teach nothing. The same holds of vectors that are compared, if all of them are trained: a
    loss with a teacher or a cut on one side keeps them apart by other means.
    """
    program = program_of(session)
    if any(g.get("maximize") for o in session.optimizers for g in o.param_groups):
        raise NotChecked("an optimizer makes the loss larger")
    batches = program.batches[:BATCHES]
    seen = [_given(program, batch) for batch in batches]
    base, numbers = [loss for _, _, loss in seen], sum(t.numel() for t in seen[0][0])
    if all(one for _, one, _ in seen):
        ways = {float(s) for slopes, _, _ in seen for t in slopes for s in t.sign().unique()}
        ways -= {0.0}  # a hinge leaves some alone
        if len(ways) != 1:
            raise NotChecked("the loss pulls some scores up and others down")
        side, what = -ways.pop(), "score"
    elif all(len(slopes) > 1 and len({t.shape[-1] for t in slopes}) == 1 for slopes, _, _ in seen):
        side, what = 1.0, "vector"
    else:
        raise NotChecked("the model gives neither one score for each thing nor vectors to compare")
    none, far, farther = ([_cost(program, b, v) for b in batches]
                          for v in (0.0, side * FAR, side * FARTHER))  # fmt: skip
    least = [FREE * min(n, loss) for n, loss in zip(none, base, strict=True)]
    if all(0 <= d <= c <= m > ZERO for m, c, d in zip(least, far, farther, strict=True)):
        yield Finding(
            "wrong-formula", "warning",
            f"If the {what} of everything that the model gets is {side * FAR:g}, {len(batches)} "
            f"batches cost {far[0]:.3g} instead of {none[0]:.3g} for 0, and now {base[0]:.3g}: "
            f"giving everything the same {what} costs nothing. What does not belong together is "
            "treated like what does, and the batches teach nothing.",
            {"numbers": numbers, "loss": base[0], "cost_of_0": none[0], "cost_of_one": far[0]},
            "loss = -(F.logsigmoid(positive) + F.logsigmoid(-negative).sum(1)).mean()",
        )  # fmt: skip


def _given(program: Program, batch: Any) -> tuple[list[Tensor], bool, float]:
    """The loss's slopes in all that the model gives in a step, whether that is one number for each
    thing that it gets, and the loss.

    Raises:
        NotChecked: Some of it is not trained.
    """
    step = program.step(batch)
    given, found = step.outputs, step.slopes
    whole = [t for call in step.calls for t in call.tensors]
    if not given or any(not t.is_floating_point() or not t.dim() for t in given):
        raise NotChecked("the model does not give numbers for each row alone")
    if len(found) != len(given) or sum(map(len, given)) < LEAST_ROWS:
        raise NotChecked("not all that the model gives is trained, or too little")
    return found, all(_is_one_for_each(t, whole) for t in given), step.loss


def _is_one_for_each(scores: Tensor, given: list[Tensor]) -> bool:
    """[B] or [B, 1] for rows, or a number for each of the places [B, K] that it gets."""
    return scores.numel() == len(scores) or any(
        t.shape == scores.shape and not t.is_floating_point() for t in given
    )


def _cost(program: Program, batch: Any, value: float) -> float:
    """What a batch costs with one score for everything."""

    def turn(_: object, args: object, output: Any) -> Any:
        return mapped(lambda t: t * 0 + value if isinstance(t, Tensor) else t, output)

    return program.step(batch, prepare=lambda: program.model.register_forward_hook(turn)).loss
