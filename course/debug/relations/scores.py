"""Relation on scores by name: each is what its formula gives of the outputs, and no known slip.

Only a value that is the slip's to four digits, and not the formula's, is said to be wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from course.debug.probes.modes import evaluation_of
from course.debug.probes.report import Finding
from course.debug.probes.session import Evaluation, NotChecked, Session, pair
from course.debug.probes.thresholds import TINY, YES

THE_SAME = 1e-4
"""Relative difference of two scores that are the same but for rounding."""
APART = 1e-2
"""The same of two that are told apart."""
LEAST_ANSWERS = 20
"""Answers from which two scores differ by more than one answer's share of them."""


def named(session: Session) -> Iterator[Finding]:
    """A score is what its name says of all outputs and targets."""
    seen = evaluation_of(session)
    outputs, targets = _met(session, seen)
    binary = bool(((targets == 0) | (targets == 1)).all()) and 0 < float(targets.mean()) < 1
    for name, value in seen.first.items():
        for word, (right, slips) in (OF_ANSWERS if binary else OF_NUMBERS).items():
            if word not in name.lower().replace("_", "").replace("-", ""):
                continue
            known = right(outputs, targets)
            for what, slip in slips.items():
                wrong = slip(outputs, targets)
                if _near(value, wrong, THE_SAME) and not _near(value, known, APART):
                    yield Finding(
                        "metric-wrong", "warning",
                        f"{name} = {value:.4g} is {what}; of the outputs and targets of this "
                        f"evaluation it should be {known:.4g}.",
                        {name: value, "recomputed": known, "answers": len(targets)},
                        "score(targets, outputs)  # targets first; scores and not hard answers",
                    )  # fmt: skip
                    return


def _met(session: Session, seen: Evaluation) -> tuple[Tensor, Tensor]:
    """Outputs and targets [N] of an evaluation that calls the model once for each batch.

    Raises:
        NotChecked: It does not, or answers are not single numbers.
    """
    outputs = [e.output for e in seen.tape.of("output") if e.call == 0]
    batches = session.val_epoch.batches
    if not session.val_epoch.whole or len(outputs) != len(batches) or any(
            o is None for o in outputs):  # fmt: skip
        raise NotChecked("evaluate() does not call the model once for each batch")
    targets = [pair(batch)[1] for batch in batches]
    if any(o.numel() != len(t) or t.numel() != len(t)
           for o, t in zip(outputs, targets, strict=True)):  # fmt: skip
        raise NotChecked("outputs and targets are not one number for each row")
    both = [torch.cat([t.flatten().double().cpu() for t in side]) for side in (outputs, targets)]
    if len(both[0]) < LEAST_ANSWERS:
        raise NotChecked("fewer than 20 answers")
    return both[0], both[1]


def _near(one: float, other: float, tolerance: float) -> bool:
    return abs(one - other) <= tolerance * max(1.0, abs(one), abs(other))


def _yes(outputs: Tensor) -> Tensor:
    shares = bool(((outputs >= 0) & (outputs <= 1)).all())
    return outputs > (YES if shares else 0.0)


def _auc(scores: Tensor, targets: Tensor) -> float:
    """Share of pairs of a yes and a no that are in their order; ties count half."""
    yes, no = scores[targets == 1], scores[targets == 0]
    above = (yes[:, None] > no[None]).double() + (yes[:, None] == no[None]).double() / 2
    return float(above.mean())


def _explained(outputs: Tensor, targets: Tensor) -> float:
    rest = (outputs - targets).pow(2).sum()
    return float(1 - rest / (targets - targets.mean()).pow(2).sum().clamp_min(TINY))


def _precision(outputs: Tensor, targets: Tensor) -> float:
    said = _yes(outputs)
    return float((said & (targets == 1)).sum()) / max(1, int(said.sum()))


def _recall(outputs: Tensor, targets: Tensor) -> float:
    return float((_yes(outputs) & (targets == 1)).sum()) / int((targets == 1).sum())


def _relative(outputs: Tensor, targets: Tensor) -> float:
    return float(((outputs - targets) / targets.abs().clamp_min(TINY)).abs().mean())


def _root(outputs: Tensor, targets: Tensor) -> float:
    return float((outputs - targets).pow(2).mean().sqrt())


Score = Callable[[Tensor, Tensor], float]
OF_ANSWERS: dict[str, tuple[Score, dict[str, Score]]] = {
    "auc": (_auc, {
        "that of hard answers, of which only one threshold is left":
            lambda o, t: _auc(_yes(o).double(), t),
        "one less what it should be: scores and answers are turned over":
            lambda o, t: 1 - _auc(o, t),
    }),
    "precision": (_precision, {"the recall: targets and answers are exchanged": _recall}),
    "recall": (_recall, {"the precision: targets and answers are exchanged": _precision}),
}  # fmt: skip
OF_NUMBERS: dict[str, tuple[Score, dict[str, Score]]] = {
    "r2": (_explained, {
        "with outputs and targets exchanged: it is relative to the outputs' spread":
            lambda o, t: _explained(t, o),
    }),
    "mape": (_relative, {"relative to the outputs": lambda o, t: _relative(t, o)}),
    "rmse": (_root, {"the mean of squares, without its root": lambda o, t: _root(o, t) ** 2}),
}  # fmt: skip
