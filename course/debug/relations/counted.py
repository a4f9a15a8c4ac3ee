"""Relation on rows that end: where a batch says that a row has ended, the loss asks for no answer.

Outputs behind the end have no slope then, whatever the model reads there: also one that runs over
a row in both directions, whose outputs before the end change if the padding is cut off.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.thresholds import NEARLY_ALL
from course.debug.relations.ended import real_places
from course.debug.relations.joining import read_by_the_model
from course.debug.relations.program import program_of
from course.state.nested import tensors_in

LEAST_PLACES = 16
"""Places behind the ends of rows, which the loss does not count all by chance."""


def behind_the_end(session: Session) -> Iterator[Finding]:
    """Outputs in places that the batch calls padding have no slope in the loss.

    Asked only where the ids that the model reads hold one value there that stands nowhere before
    the end, and the targets hold one class there: neither says anything.
    """
    program = program_of(session)
    batch = program.batches[0]
    leaves = [t.detach().cpu() for t in tensors_in(batch)]
    read = read_by_the_model(session)
    tables = [(n, t) for n, t in enumerate(leaves)
              if t.dim() == 2 and t.shape[1] > 2 and not t.is_floating_point()]  # fmt: skip
    ends = [(x, real) for n, x in tables if n in read for real in real_places(leaves, x)
            if _is_blank(x, real)]  # fmt: skip
    answers = [t for n, t in tables if n not in read]
    step = program.first()
    if not ends or len(step.outputs) != 1 or len(step.slopes) != 1:
        raise NotChecked("a batch does not say where its ids end, or there is no single output")
    slope = step.slopes[0].cpu()
    for x, real in ends:
        told = [y for y in answers if y.shape == x.shape and len(y[~real].unique()) == 1
                and not bool(((y == 0) | (y == 1)).all())]  # fmt: skip
        if len(told) != 1 or slope.dim() != 3 or slope.shape[:2] != x.shape:
            continue
        counted = slope.abs().amax(2) > 0
        behind = float(counted[~real].double().mean())
        if min(behind, float(counted[real].double().mean())) > NEARLY_ALL:
            places, share = int((~real).sum()), float((~real).double().mean())
            value = int(told[0][~real][0])
            yield Finding(
                "padding-in-the-loss", "warning",
                f"The batch itself says where its rows end, but the loss counts {behind:.0%} of "
                f"the {places} places behind the ends ({share:.0%} of all), where each target is "
                f"{value} and each id is {int(x[~real][0])}: the model is trained to answer "
                f"{value} to padding, and loss and accuracy look better than they are.",
                {"places": places, "share_of_all": share, "counted": behind, "target": value},
                "F.cross_entropy(logits.transpose(1, 2), tags.masked_fill(~mask, -100))  # and\n"
                "hits = ((logits.argmax(-1) == tags) & mask).sum() / mask.sum()",
            )  # fmt: skip
            return


def _is_blank(x: Tensor, real: Tensor) -> bool:
    """Where rows have ended, ids are all the one number that stands nowhere else."""
    values = x[~real].unique()
    if len(values) != 1 or int((~real).sum()) < LEAST_PLACES:
        return False
    return not bool((x[real] == values[0]).any())
