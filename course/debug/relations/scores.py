"""Relations on named scores: each is what its formula gives for the outputs, not a known slip.

A value is reported as wrong only if it equals that of a known slip to four digits, and not that of
the formula.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from course.debug.probes.modes import evaluation_of
from course.debug.probes.report import Finding
from course.debug.probes.rescored import redrawn
from course.debug.probes.session import Evaluation, NotChecked, Session, pair
from course.debug.probes.thresholds import TINY, YES
from course.debug.relations.noise import COMPARED
from course.debug.relations.program import program_of
from course.state.nested import tensors_in

THE_SAME = 1e-4
"""Relative difference of two scores that are the same but for rounding."""
APART = 1e-2
"""The same of two that are told apart."""
DRAWS = 2
"""Random networks that are scored, too."""
LEAST_SCALED = 4
"""Targets of a batch from which one factor and one shift fit all of them by no chance."""
OF_A_PART = re.compile(r"@|_at_|top|average|mean_|pr_|prc|(recall|precision)s?_?\d")
"""Names of scores of the first few of an order, or of all its places: no formula here gives them,
and one that is 0 or 1 may be another's by chance."""
LEAST_ANSWERS = 20
"""Answers from which two scores differ by more than one answer's share of them."""


def named(session: Session) -> Iterator[Finding]:
    """A score is what its name says, over all outputs and targets.

    Tried with random weights too: an untrained model may give the same answer everywhere.
    """
    seen = evaluation_of(session)
    found = list(_slips(session, seen))
    words = {**OF_ANSWERS, **OF_NUMBERS}
    if not found and any(word in _plain(name) for name in seen.first for word in words):
        draws = (list(_slips(session, redrawn(session, draw))) for draw in range(DRAWS))
        found = next(filter(None, draws), [])
    yield from found[:1]


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _slips(session: Session, seen: Evaluation) -> Iterator[Finding]:
    """Scores of one evaluation that are a slip's."""
    outputs, targets = _met(session, seen)
    binary = bool(((targets == 0) | (targets == 1)).all()) and 0 < float(targets.mean()) < 1
    for name, value in seen.first.items():
        for word, (right, slips) in (OF_ANSWERS if binary else OF_NUMBERS).items():
            if word not in _plain(name) or OF_A_PART.search(name.lower()):
                continue
            known = right(outputs, targets)
            for what, slip in slips.items():
                wrong = slip(outputs, targets)
                if _near(value, wrong, THE_SAME) and not _near(value, known, APART):
                    yield Finding(
                        "metric-wrong", "warning",
                        f"{name} = {value:.4g} is {what}; for the outputs and targets of this "
                        f"evaluation it should be {known:.4g}.",
                        {name: value, "recomputed": known, "answers": len(targets)},
                        "score(targets, outputs)  # targets first; scores, not hard predictions",
                    )  # fmt: skip


def of_boxes(session: Session) -> Iterator[Finding]:
    """An overlap of boxes given as centres and sizes does not read them as corners."""
    seen = evaluation_of(session)
    overlaps = {name: value for name, value in seen.first.items() if "iou" in name.lower()}
    if not overlaps:
        raise NotChecked("no score is called iou")
    outputs, targets = (torch.cat([t.double().cpu() for t in side])
                        for side in _of_all_batches(session, seen))  # fmt: skip
    if outputs.shape != targets.shape or targets.shape[1:] != (4,) or len(targets) < LEAST_ANSWERS:
        raise NotChecked("outputs and targets are not one box per row")
    sizes = targets[:, 2:] - targets[:, :2]
    if bool((sizes > 0).all()) or bool((targets[:, 2:] <= 0).any()):
        raise NotChecked("the targets may be corners")
    right = _overlap(_corners(outputs), _corners(targets))
    for name, value in overlaps.items():
        wrong = [_overlap(outputs, targets, least) for least in (0.0, None)]
        if any(_near(value, w, THE_SAME) for w in wrong) and not _near(value, right, APART):
            share = float((sizes <= 0).any(1).double().mean())
            yield Finding(
                "metric-wrong", "warning",
                f"{name} = {value:.4g} reads the boxes as corners, but then {share:.0%} of the "
                "targets would end before they begin: as centres and sizes they overlap by "
                f"{right:.4g}.",
                {name: value, "of_centres_and_sizes": right, "boxes": len(targets)},
                "boxes = torch.cat([b[:, :2] - b[:, 2:] / 2, b[:, :2] + b[:, 2:] / 2], 1)",
            )  # fmt: skip
            return


def of_labels(session: Session) -> Iterator[Finding]:
    """Scores of labels of which each is yes or no are not taken at 0.5 of their logits."""
    seen = evaluation_of(session)
    if not any(word in _plain(name) for name in seen.first for word in OF_YES):
        raise NotChecked("no score is called recall, precision or f1")
    if not any(e.name == "bce_with_logits" and e.graph for e in session.loop.tape.of("loss")):
        raise NotChecked("outputs are not known to be logits")
    yield from _thresholds(session, seen)
    for draw in range(DRAWS):
        yield from _thresholds(session, redrawn(session, draw))


def _thresholds(session: Session, seen: Evaluation) -> Iterator[Finding]:
    outputs, targets = (torch.cat([t.double().cpu() for t in side])
                        for side in _of_all_batches(session, seen))  # fmt: skip
    if outputs.numel() != targets.numel() or not bool(((targets == 0) | (targets == 1)).all()):
        raise NotChecked("outputs and targets are not one yes or no for each label")
    outputs = outputs.reshape(targets.shape)
    for name, value in seen.first.items():
        word = next((w for w in OF_YES if w in _plain(name)), None)
        if word is None or outputs.numel() < LEAST_ANSWERS or OF_A_PART.search(name.lower()):
            continue
        right, wrong = (_averages(word, outputs > limit, targets > YES) for limit in (0.0, YES))
        taken = any(_near(value, w, THE_SAME) for w in wrong)
        if taken and not any(_near(value, r, APART) for r in right):
            yield Finding(
                "metric-wrong", "warning",
                f"{name} = {value:.4g} is that of logits above 0.5, which is for probabilities; "
                f"of logits above 0 it is {right[0]:.4g}.",
                {name: value, "recomputed": right[0], "answers": targets.numel()},
                "predicted = logits > 0  # or torch.sigmoid(logits) > 0.5",
            )  # fmt: skip
            return


def _averages(word: str, said: Tensor, true: Tensor) -> list[float]:
    """A score over all answers, by label and by row."""
    said, true = (t.reshape(len(t), -1) for t in (said, true))
    counts = [torch.stack([(said & true).sum(d), (said & ~true).sum(d), (~said & true).sum(d)])
              .double() for d in ((0, 1), 0, 1)]  # fmt: skip
    return [float(OF_YES[word](*c).mean()) for c in counts]


def in_units(session: Session) -> Iterator[Finding]:
    """Outputs that are trained on scaled targets are scored in the same unit as the targets."""
    seen = evaluation_of(session)
    words = [w for w in OF_ERRORS if any(w in _plain(name) for name in seen.first)]
    if not words:
        raise NotChecked("no score is called mse, rmse or mae")
    factor, shift = _scaled_targets(session)
    both = [[t.double().cpu() for t in side] for side in _of_all_batches(session, seen)]
    if any(a.numel() != b.numel() for a, b in zip(*both, strict=True)):
        raise NotChecked("outputs and targets are not of one size")
    outputs, targets = (torch.cat([t.flatten() for t in side]) for side in both)
    for name, value in seen.first.items():
        word = next((w for w in words if w in _plain(name)), None)
        if word is None or "train" in _plain(name):
            continue
        plain, back, scaled = (
            OF_ERRORS[word](o, t) for o, t in (
                (outputs, targets), ((outputs - shift) / factor, targets),
                (outputs, factor * targets + shift),
            )
        )  # fmt: skip
        close = abs(value - plain) <= THE_SAME * abs(plain)
        if close and min(abs(value - back), abs(value - scaled)) > APART * abs(value):
            yield Finding(
                "metric-wrong", "warning",
                f"{name} = {value:.4g} compares outputs with targets of another unit: the loss "
                f"trains them on {factor:.4g} times the target {shift:+.4g}. In the targets' unit "
                f"it is {back:.4g}.",
                {name: value, "in_the_targets_unit": back, "factor": factor, "shift": shift},
                "predicted = outputs * std + mean  # before they are compared with raw targets",
            )  # fmt: skip
            return


def _scaled_targets(session: Session) -> tuple[float, float]:
    """What the targets of a batch are multiplied with, and what is added, before the outputs are
    compared with them.

    Raises:
        NotChecked: Nothing, or the model gives other outputs in eval mode.
    """
    program = program_of(session)
    mode = Compared()
    step = program.step(program.batches[0], within=mode)
    outputs = [e.output for e in step.tape.of("output") if e.graph]
    if len(outputs) != 1 or len(step.calls) != 1 or outputs[0] is None:
        raise NotChecked("a step does not call the model once")
    for target in tensors_in(program.batches[0]):
        for given, met in mode.learned:
            if given.numel() != outputs[0].numel() or not torch.equal(
                given.flatten(), outputs[0].flatten()
            ):
                continue
            if (law := affine(target, met)) is not None:
                again = program.replay(step.calls[0])
                if len(again) == 1 and torch.allclose(again[0], outputs[0], rtol=1e-3, atol=1e-5):
                    return law
    raise NotChecked("outputs are not compared with scaled targets of the batch")


def affine(one: Tensor, other: Tensor) -> tuple[float, float] | None:
    """Factor and shift that make the other of one number by number, if they change it."""
    if one.numel() != other.numel() or not one.is_floating_point() or one.numel() < LEAST_SCALED:
        return None
    a, b = (t.detach().double().flatten().cpu() for t in (one, other))
    if float(a.std()) < TINY or float(b.std()) < TINY:
        return None
    factor = float(((a - a.mean()) * (b - b.mean())).mean() / a.var(correction=0))
    shift = float(b.mean()) - factor * float(a.mean())
    off = float((factor * a + shift - b).abs().max())
    changes = abs(factor - 1) > APART or abs(shift) > APART * float(a.std())
    return (factor, shift) if off < THE_SAME * float(b.std()) and changes else None


class Compared(TorchFunctionMode):
    """Pairs of tensors that are compared by a difference or a distance."""

    def __init__(self) -> None:
        super().__init__()
        self.pairs: list[tuple[Tensor, Tensor]] = []
        """Two of one shape, as they were given."""
        self.learned: list[tuple[Tensor, Tensor]] = []
        """Outputs with a gradient, and the fixed numbers that they are compared with."""

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None):
        if function in COMPARED:
            two = [a for a in args[:2] if isinstance(a, Tensor)]
            moving, fixed = (
                [a.detach() for a in two if a.requires_grad is r] for r in (True, False)
            )
            if len(moving) == len(fixed) == 1:
                self.learned.append((moving[0], fixed[0]))
            if len(two) == 2 and two[0].shape == two[1].shape:
                self.pairs.append((two[0].detach(), two[1].detach()))
        return function(*args, **(kwargs or {}))


def _corners(boxes: Tensor) -> Tensor:
    """Boxes [N, 4] of centres and sizes by their corners."""
    return torch.cat([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], 1)


def _overlap(one: Tensor, other: Tensor, least: float | None = 0.0) -> float:
    """Mean intersection over union of boxes [N, 4] by their corners; a side is at least `least`."""
    sides = torch.minimum(one[:, 2:], other[:, 2:]) - torch.maximum(one[:, :2], other[:, :2])
    both = sides.clamp_min(0).prod(1)
    areas = [(b[:, 2:] - b[:, :2]).clamp(min=least).prod(1) if least is not None
             else (b[:, 2:] - b[:, :2]).prod(1) for b in (one, other)]  # fmt: skip
    return float((both / (areas[0] + areas[1] - both + TINY)).mean())


def _of_all_batches(session: Session, seen: Evaluation) -> tuple[list[Tensor], list[Tensor]]:
    """Outputs and targets of each batch, of an evaluation that may go through them several times.

    Raises:
        NotChecked: It does not call the model once for each batch in each pass.
    """
    outputs = [e.output for e in seen.tape.of("output") if e.call == 0]
    batches = session.val_epoch.batches
    whole = session.val_epoch.whole and bool(batches) and len(outputs) >= len(batches)
    if not whole or len(outputs) % len(batches) or any(o is None for o in outputs):
        raise NotChecked("evaluate() does not call the model once for each batch")
    first = outputs[: len(batches)]
    for place, output in enumerate(outputs):
        if not torch.equal(output, first[place % len(batches)]):
            raise NotChecked("the model does not give the same outputs for the same batch")
    return first, [pair(batch)[1] for batch in batches]


def _met(session: Session, seen: Evaluation) -> tuple[Tensor, Tensor]:
    """Outputs and targets [N] of an evaluation, each a single number.

    Raises:
        NotChecked: They are not.
    """
    outputs, targets = _of_all_batches(session, seen)
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


def _share(part: Tensor, whole: Tensor) -> Tensor:
    return part / whole.clamp_min(1)


OF_YES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "recall": lambda hits, false, missed: _share(hits, hits + missed),
    "precision": lambda hits, false, missed: _share(hits, hits + false),
    "f1": lambda hits, false, missed: _share(2 * hits, 2 * hits + false + missed),
}
"""Of how many were rightly said, wrongly said, and missed."""
Score = Callable[[Tensor, Tensor], float]
OF_ANSWERS: dict[str, tuple[Score, dict[str, Score]]] = {
    "auc": (_auc, {
        "that of hard predictions, which leave only one threshold":
            lambda o, t: _auc(_yes(o).double(), t),
        "one minus what it should be: scores or targets are inverted":
            lambda o, t: 1 - _auc(o, t),
    }),
    "precision": (_precision, {"the recall: targets and predictions are swapped": _recall}),
    "recall": (_recall, {"the precision: targets and predictions are swapped": _precision}),
}  # fmt: skip
OF_NUMBERS: dict[str, tuple[Score, dict[str, Score]]] = {
    "r2": (_explained, {
        "computed with outputs and targets swapped: it is relative to the outputs' spread":
            lambda o, t: _explained(t, o),
    }),
    "mape": (_relative, {"relative to the outputs": lambda o, t: _relative(t, o)}),
    "rmse": (_root, {"the mean of squares, without the root": lambda o, t: _root(o, t) ** 2}),
}  # fmt: skip
OF_ERRORS: dict[str, Score] = {
    "rmse": _root,
    "mse": lambda o, t: _root(o, t) ** 2,
    "mae": lambda o, t: float((o - t).abs().mean()),
}
"""Errors that have the unit of the targets, or its square."""
