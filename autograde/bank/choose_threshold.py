"""03e.threshold: the threshold with the highest recall at a required precision."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from autograde.bank.common_wrong import LOOKS, common
from autograde.bank.harness import Watch
from autograde.exercise import Answer, Case, Draw, Exercise, Part, Wrong, as_number, kept, pair

LEAST = {"edge": ((6, 8), (9, 10), (7, 10), (9, 10))}
"""Required precisions, for one that is met exactly; 0.7 and 0.9 become less in float32."""
NEVER, JUST = 1, 5e-4
"""The case in which none is precise enough, and by how little: to two decimals one is."""


def draw(source: Draw, part: str) -> Case:
    """Scores whose order of right and wrong holds what the part asks about.

    Precision is high at first, falls below what is required and comes back, then stays below; in a
    third case it never falls, and the best F1 comes early. With
    `even` a negative follows on the last good threshold and leaves precision high enough; with
    `ties` the examples that would do share their score with others that spoil it.
    """
    least = source.uniform(0.6, 0.8)
    if part in LEAST:
        hits, said = LEAST[part][source.index]
        least = hits / said if source.index != NEVER else 2 / 3 + JUST
    usual = {2: _slow, 3: _everybody, 4: _top_alone}.get(source.index, _dip)
    groups = {"ties": _tied, "edge": _edge}.get(part, usual)(source, least, part == "even")
    labels = [label for group in groups for label in group]
    spread = [source.uniform(0.3, 1.0) for _ in groups]
    total, at, scores = sum(spread) + 1.0, 0.0, []
    for group, gap in zip(groups, spread, strict=True):
        at += gap
        scores += [1 - at / total] * len(group)
    scores = [8 * score - 4 if source.index == 1 else score for score in scores]
    order = source.shuffled(range(len(labels)))
    if part == "even":
        _in_turn(order, _equals(labels, least), reverse=source.index % 2 == 1)
    if part == "ties":  # of equal scores the right ones stand first, or last
        _in_turn_of(order, scores, labels, reverse=source.index % 2 == 0)
    return {
        "scores": torch.tensor(scores, dtype=torch.float64)[order],
        "targets": torch.tensor(labels)[order],
        "least": least,
        "dtype": "float64" if source.index == 1 else "float32",
    }


def _equals(labels: list[int], least: float) -> list[int]:
    """Positions, by falling score, of the thresholds that are precise enough and find the most."""
    said = [labels[: at + 1] for at in range(len(labels))]
    found = [sum(one) if _precision(one) >= least else -1 for one in said]
    return [at for at, hits in enumerate(found) if hits == max(found)]


def _in_turn(order: list[int], equal: list[int], *, reverse: bool) -> None:
    """Let equal thresholds come highest first, or last: an answer may keep the first or last."""
    places = sorted(order.index(at) for at in equal)
    for place, at in zip(places, sorted(equal, reverse=reverse), strict=True):
        order[place] = at


def _in_turn_of(order: list[int], scores: list[float], labels: list[int], *, reverse: bool) -> None:
    """Let examples of one score come by their label."""
    for score in set(scores):
        places = [place for place, at in enumerate(order) if scores[at] == score]
        alike = sorted((order[place] for place in places), key=labels.__getitem__, reverse=reverse)
        for place, at in zip(places, alike, strict=True):
            order[place] = at


def _everybody(source: Draw, least: float, _even: bool) -> list[list[int]]:
    """Precise enough again at the lowest score, at which everybody is called."""
    labels = [1, 1, 0, 0, 1]
    while _precision(labels) < least:
        labels.append(1)
    return [[label] for label in labels]


def _top_alone(source: Draw, _least: float, _even: bool) -> list[list[int]]:
    """Precise enough at the highest score, and nowhere else."""
    return [[label] for label in [1, 0, 0, 1, 0, 1, 0, *[0] * source.integer(1, 3)]]


def _dip(source: Draw, least: float, even: bool) -> list[list[int]]:
    """Labels by falling score: good, bad, good again, and bad to the end.

    The most precise threshold is not the last one before the fall: one error stands between.
    """
    few = next(num for num in (2, 3, 4) if num / (num + 1) >= least)
    labels = [*[1] * few, 0, *[1] * source.integer(1, 2)]
    while _precision(labels) >= least:
        labels.append(0)
    while _precision(labels) < least:
        labels.append(1)
    while even and _precision([*labels, 0]) < least:
        labels.append(1)
    while _precision([*labels, 0, 1]) >= least or len(labels) < 7:
        labels.append(0)
    return [[label] for label in [*labels, 0, 1, *[0] * source.integer(2, 4)]]


def _slow(source: Draw, least: float, _even: bool) -> list[list[int]]:
    """One more positive after two errors: precise enough, at a lower F1 than before them.

    Before the errors recall is as high as precision has to be, so that the two are told apart.
    """
    few = next(num for num in range(4, 10) if num / (num + 2) >= least)
    labels = [1] * few + [0, 0, 1]
    while _precision([*labels, 0, 1]) >= least:
        labels.append(0)
    return [[label] for label in [*labels, 0, 1, *[0] * source.integer(1, 3)]]


def _tied(source: Draw, least: float, _even: bool) -> list[list[int]]:
    """After the good ones a positive whose score two negatives or more share."""
    groups = [[1] for _ in range(source.integer(2, 3))]
    tied = [1, 0]
    while _precision([1] * len(groups) + tied) >= least:
        tied.append(0)
    return [*groups, tied, [0], [1], [0], *[[0]] * source.integer(1, 3)]


def _edge(source: Draw, least: float, _even: bool) -> list[list[int]]:
    """Precision met at the top and, exactly, once more; in the second case by none."""
    if source.index == NEVER:
        labels = [0, 1, 1, 0, 1, 0, *[0] * source.integer(0, 2)]
    else:
        hits, said = LEAST["edge"][source.index]
        labels = [1, *[0] * (said - hits), *[1] * (hits - 1), 0, 0, 1, 0]
    return [[label] for label in labels]


def _precision(labels: list[int]) -> float:
    return sum(labels) / len(labels)


def run(function, case: Case, device: torch.device) -> Answer:
    """Threshold and recall."""
    scores = case["scores"].to(device, getattr(torch, case["dtype"]))
    targets = case["targets"].to(device)
    watch = Watch(data={"scores": scores, "targets": targets})
    tried = scores.tolist()  # before the call, which may change them
    returned = kept(pair, function(scores, targets, case["least"]), "the threshold and its recall")
    threshold, recall = (returned, returned) if isinstance(returned, dict) else returned
    if not isinstance(returned, dict):
        threshold = kept(as_number, threshold, "the threshold")
        recall = kept(as_number, recall, "the recall")
    return {
        "tried": threshold if isinstance(threshold, dict) else _tried(threshold, tried),
        "threshold": threshold,
        "recall": recall,
        "disturbed": watch.changed(),
    }


def _tried(threshold: float, scores: list[float]) -> str:
    """Whether a threshold is a score, in words; none has to be, where none is precise enough.

    Strictly: a grid or a rounded score comes near one by chance, and may cut it off.
    """
    is_one = math.isinf(threshold) or any(
        math.isclose(threshold, score, rel_tol=1e-6, abs_tol=1e-7) for score in scores
    )
    return "one of the scores" if is_one else "none of them"


def reference(scores: Tensor, targets: Tensor, least_precision: float) -> tuple[float, float]:
    """scikit-learn's curve; of the points that are precise enough the best, from above."""
    from sklearn.metrics import precision_recall_curve

    precision, recall, thresholds = precision_recall_curve(targets.cpu(), scores.cpu())
    good = precision[:-1] >= least_precision
    if not good.any():
        return math.inf, 0.0
    best = recall[:-1][good].max()
    return float(thresholds[good & (recall[:-1] == best)].max()), float(best)


def _points(scores, targets):
    """(threshold, precision, recall) from the highest score down."""
    scores, targets = scores.tolist(), targets.tolist()
    for threshold in sorted(set(scores), reverse=True):
        said = [t for s, t in zip(scores, targets, strict=True) if s >= threshold]
        yield threshold, sum(said) / len(said), sum(said) / sum(targets)


def _best(points, key, good):
    found = [point for point in points if good(point)]
    if not found:
        return math.inf, 0.0
    best = max(found, key=key)
    return best[0], best[2]


def stops_at_the_first(scores, targets, least_precision):
    best = (math.inf, 0.0)
    for threshold, precision, recall in _points(scores, targets):
        if precision < least_precision:
            break
        best = threshold, recall
    return best


def lowest_that_fits(scores, targets, least_precision):
    return _best(_points(scores, targets), lambda p: -p[0], lambda p: p[1] >= least_precision)


def first_of_the_curve(scores, targets, least_precision):
    """From the lowest score up, the first that is precise enough; the lowest of all if none is."""
    points = list(_points(scores, targets))[::-1]
    found = next((point for point in points if point[1] >= least_precision), points[0])
    return found[0], found[2]


def said_below(scores, targets, least_precision):
    return _best(_points_below(scores, targets), lambda p: p[2], lambda p: p[1] >= least_precision)


def _points_below(scores, targets):
    for threshold in scores.unique().tolist():
        said = scores <= threshold
        hits = targets[said].sum()
        yield threshold, (hits / said.sum()).item(), (hits / targets.sum()).item()


def nearest_precision(scores, targets, least_precision):
    return _best(_points(scores, targets), lambda p: -abs(p[1] - least_precision), lambda p: True)


def most_precise(scores, targets, least_precision):
    return _best(_points(scores, targets), lambda p: p[1:], lambda p: p[1] >= least_precision)


def strictly_more(scores, targets, least_precision):
    return _best(_points(scores, targets), lambda p: (p[2], p[0]), lambda p: p[1] > least_precision)


def to_two_decimals(scores, targets, least_precision):
    return _best(
        _points(scores, targets),
        lambda p: (p[2], p[0]),
        lambda p: round(p[1], 2) >= least_precision,
    )


def above_a_half(scores, targets, least_precision):
    points = [p for p in _points(scores, targets) if p[0] >= 0.5]
    return _best(points, lambda p: (p[2], p[0]), lambda p: p[1] >= least_precision)


def without_the_lowest(scores, targets, least_precision):
    points = list(_points(scores, targets))[:-1]
    return _best(points, lambda p: (p[2], p[0]), lambda p: p[1] >= least_precision)


def without_the_highest(scores, targets, least_precision):
    points = list(_points(scores, targets))[1:]
    return _best(points, lambda p: (p[2], p[0]), lambda p: p[1] >= least_precision)


def highest_that_fits(scores, targets, least_precision):
    return _best(_points(scores, targets), lambda p: p[0], lambda p: p[1] >= least_precision)


def read_from_float32(scores, targets, least_precision):
    return _best(_points(scores, targets), lambda p: (p[2], p[0]),
                 lambda p: torch.tensor(p[1]).item() >= least_precision)  # fmt: skip


def best_f1_of_those(scores, targets, least_precision):
    return _best(_points(scores, targets), lambda p: p[1] * p[2] / (p[1] + p[2] + 1e-12),
                 lambda p: p[1] >= least_precision)  # fmt: skip


def stops_before_the_fall(scores, targets, least_precision):
    """As `stops_at_the_first`, and of equal recalls the highest."""
    best = (math.inf, 0.0)
    for threshold, precision, recall in _points(scores, targets):
        if precision < least_precision:
            break
        best = (threshold, recall) if recall > best[1] else best
    return best


def recall_required(scores, targets, least_precision):
    return _best(_points(scores, targets), lambda p: p[1:], lambda p: p[2] >= least_precision)


def best_f1(scores, targets, least_precision):
    return _best(_points(scores, targets), lambda p: p[1] * p[2] / (p[1] + p[2] + 1e-12),
                 lambda p: True)  # fmt: skip


def accuracy_required(scores, targets, least_precision):
    def good(point):
        return ((scores >= point[0]) == targets.bool()).double().mean() >= least_precision

    return _best(_points(scores, targets), lambda p: (p[2], p[0]), good)


def one_half(scores, targets, least_precision):
    said = scores >= 0.5
    return 0.5, (targets[said].sum() / targets.sum()).item()


def ties_split(scores, targets, least_precision):
    order = torch.argsort(scores, descending=True, stable=True)
    order = order[torch.argsort(scores[order] - 1e-6 * targets[order].ne(1), descending=True)]
    hits = targets[order].double().cumsum(0)
    precision = hits / torch.arange(1, len(hits) + 1, device=hits.device)
    good = (precision >= least_precision).nonzero().flatten()
    if not len(good):
        return math.inf, 0.0
    at = good[hits[good].argmax()]
    return scores[order][at].item(), (hits[at] / hits[-1]).item()


def ties_as_sorted(scores, targets, least_precision):
    """Running sums, cut between equal scores in the order in which they happen to be sorted."""
    order = torch.argsort(scores, descending=True, stable=True)
    hits = targets[order].double().cumsum(0)
    said = torch.arange(1, len(hits) + 1, device=hits.device)
    found = torch.where(hits / said >= least_precision, hits, -1.0)
    at = int(found.argmax())
    if found[at] < 0:
        return math.inf, 0.0
    return scores[order][at].item(), (hits[at] / hits[-1]).item()


def ties_as_numpy_sorts(scores, targets, least_precision):
    """As `ties_as_sorted`, in NumPy's order of equal scores, which is not stable."""
    order = torch.as_tensor((-scores.cpu().numpy()).argsort(), device=scores.device)
    best, hits = (math.inf, 0.0), 0
    for said, at in enumerate(order.tolist(), start=1):
        hits += targets[at].item()
        recall = hits / targets.sum().item()
        if hits / said >= least_precision and recall > best[1]:
            best = scores[at].item(), recall
    return best


def said_above_or_nobody(scores, targets, least_precision):
    """As `said_above`; a threshold that calls nobody counts as precise."""
    threshold, recall = said_above(scores, targets, least_precision)
    return (scores.max().item(), 0.0) if math.isinf(threshold) else (threshold, recall)


def said_above(scores, targets, least_precision):
    """Says yes where the score is above the threshold."""
    best = (math.inf, 0.0)
    for threshold in sorted(set(scores.tolist()), reverse=True):
        said = scores > threshold
        if said.any() and targets[said].double().mean() >= least_precision:
            recall = (targets[said].sum() / targets.sum()).item()
            best = (threshold, recall) if recall > best[1] else best
    return best


def on_a_grid(scores, targets, least_precision, steps=100):
    best = (math.inf, 0.0)
    for step in range(steps, -1, -1):
        said = scores >= step / steps
        if said.any() and targets[said].double().mean() >= least_precision:
            recall = (targets[said].sum() / targets.sum()).item()
            best = (step / steps, recall) if recall > best[1] else best
    return best


def rounded(scores, targets, least_precision):
    threshold, recall = walks_down(scores, targets, least_precision)
    return round(threshold, 3), recall


def on_a_finer_grid(scores, targets, least_precision):
    return on_a_grid(scores, targets, least_precision, steps=1000)


def precision_for_recall(scores, targets, least_precision):
    threshold, _ = walks_down(scores, targets, least_precision)
    said = scores >= threshold
    return threshold, targets[said].double().mean().item() if said.any() else 0.0


def share_said(scores, targets, least_precision):
    threshold, _ = walks_down(scores, targets, least_precision)
    return threshold, (scores >= threshold).double().mean().item()


def hits_over_all(scores, targets, least_precision):
    threshold, recall = walks_down(scores, targets, least_precision)
    return threshold, recall * targets.double().mean().item()


def none_is_the_top(scores, targets, least_precision):
    threshold, recall = walks_down(scores, targets, least_precision)
    return (scores.max().item(), 0.0) if math.isinf(threshold) else (threshold, recall)


def none_is_one(scores, targets, least_precision):
    threshold, recall = walks_down(scores, targets, least_precision)
    return (1.0, 0.0) if math.isinf(threshold) else (threshold, recall)


def none_raises(scores, targets, least_precision):
    found = [p for p in _points(scores, targets) if p[1] >= least_precision]
    best = max(found, key=lambda p: (p[2], p[0]))
    return best[0], best[2]


def halfway(scores, targets, least_precision):
    threshold, recall = walks_down(scores, targets, least_precision)
    below = scores[scores < threshold]
    return (threshold + below.max().item()) / 2 if len(below) else threshold, recall


def recall_first(scores, targets, least_precision):
    return walks_down(scores, targets, least_precision)[::-1]


def walks_down(scores, targets, least_precision):
    best = (math.inf, 0.0)
    for threshold, precision, recall in _points(scores, targets):
        if precision >= least_precision and recall > best[1]:
            best = threshold, recall
    return best


def with_masks(scores, targets, least_precision):
    positives = targets.sum()
    best_threshold, best_hits = float("inf"), 0
    for threshold in scores.unique().flip(0):
        said = scores >= threshold
        hits = (targets[said] == 1).sum()
        if hits.double() / said.sum() >= least_precision and hits > best_hits:
            best_threshold, best_hits = threshold.item(), hits
    return best_threshold, best_hits / positives


def all_at_once(scores, targets, least_precision):
    thresholds = scores.unique()
    said = scores[None] >= thresholds[:, None]
    hits = (said & targets.bool()).sum(1)
    good = hits.double() / said.sum(1) >= least_precision
    if not good.any():
        return torch.tensor(math.inf), torch.tensor(0.0)
    hits = torch.where(good, hits, -1)
    at = (hits == hits.max()).nonzero().flatten()[-1]
    return thresholds[at], hits[at] / targets.sum()


EXERCISE = Exercise(
    id="03e.threshold",
    title="a threshold for a required precision",
    source='Lecture 3, "Loss and metric are not the same" and "From bucket to action"',
    ledger=("T23", "T28"),
    minutes=15,
    difficulty=2,
    read=("course.analysis.tune_threshold",),
    hints=(
        "Only the scores themselves are worth trying: between two neighbouring scores no "
        "prediction changes.",
        "Try all of them. As the threshold falls, precision may drop below the requirement and "
        "recover further down.",
        "For each distinct score: said = scores >= score; precision = share of positives among "
        "said; recall = positives said / all positives. Keep the best recall, from the top down.",
    ),
    signature="choose_threshold(scores, targets, least_precision)",
    parts=(
        Part("threshold", "the threshold with the highest recall", points=2, cases=5,
             fields=("tried", "threshold", "disturbed")),
        Part("recall", "its recall", points=1, cases=3, fields=("recall",)),
        Part("even", "several thresholds with the same recall", points=1,
             fields=("tried", "threshold")),
        Part("ties", "examples that share a score", points=1, cases=3,
             fields=("tried", "threshold")),
        Part("edge", "a precision that is met exactly, and one that is never met", points=1,
             cases=4, hidden=True, fields=("threshold", "recall", "disturbed")),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={"tried": "the threshold", "threshold": "the threshold", "recall": "the recall"},
    wrong=(
        Wrong(
            "stops-at-the-first",
            stops_at_the_first,
            "The search stopped at the first score that was not precise enough. Precision recovers "
            "further down, so keep going.",
        ),
        Wrong("stops-at-the-first", stops_before_the_fall),
        Wrong(
            "read-from-float32",
            read_from_float32,
            "A precision of exactly 0.7 or 0.9 was refused, and one of 0.75 was not: in float32, "
            ".item() of 0.7 is 0.69999999. Divide Python numbers, or use .double().",
        ),
        Wrong(
            "best-f1-of-those",
            best_f1_of_those,
            "Of the thresholds that are precise enough, the one with the best F1 was chosen. "
            "Choose the one with the highest recall.",
        ),
        Wrong(
            "lowest-that-fits",
            lowest_that_fits,
            "The lowest score that is precise enough was chosen. If several have the highest "
            "recall, choose the highest of them.",
        ),
        Wrong("lowest-that-fits", first_of_the_curve),
        Wrong("said-below", said_below),
        Wrong("nearest-precision", nearest_precision),
        Wrong(
            "most-precise",
            most_precise,
            "The most precise threshold was chosen. Any precision of at least least_precision is "
            "enough: of those thresholds, choose the one with the highest recall.",
        ),
        Wrong(
            "strictly-more",
            strictly_more,
            "A precision of exactly least_precision was refused. It is enough, so compare with >=.",
        ),
        Wrong("to-two-decimals", to_two_decimals),
        Wrong(
            "highest-that-fits",
            highest_that_fits,
            "The highest threshold that is precise enough was chosen. Recall is higher further "
            "down: of the thresholds that are precise enough, choose the one with the highest "
            "recall.",
        ),
        Wrong(
            "above-a-half",
            above_a_half,
            "Scores below 0.5 were not tried. Try all of them: they may be logits.",
        ),
        Wrong(
            "without-the-lowest",
            without_the_lowest,
            "The lowest score was not tried. At that threshold every example is predicted as 1.",
            sure=True,
        ),
        Wrong(
            "without-the-highest",
            without_the_highest,
            "The highest score was not tried. At that threshold one example is predicted as 1.",
            sure=True,
        ),
        Wrong(
            "recall-required",
            recall_required,
            "The requirement was applied to recall, and precision was made as high as possible. It "
            "is the other way round.",
        ),
        Wrong(
            "best-f1",
            best_f1,
            "That is the threshold with the best F1, whatever its precision. Only those with "
            "precision >= least_precision may be chosen.",
        ),
        Wrong("accuracy-required", accuracy_required),
        Wrong("one-half", one_half, "The threshold is always 0.5. It depends on the scores."),
        Wrong(
            "ties-split",
            ties_split,
            "Precision was counted partway through a group of equal scores. At any threshold, "
            "either all examples with the same score are predicted as 1, or none.",
        ),
        Wrong("ties-split", ties_as_sorted),
        Wrong("ties-split", ties_as_numpy_sorts),
        Wrong(
            "said-above",
            said_above,
            "The answer matches `score > threshold`. A score equal to the threshold is predicted "
            "as 1: use >=.",
        ),
        Wrong("said-above", said_above_or_nobody),
        Wrong(
            "not-a-score",
            on_a_grid,
            "The threshold is not one of the scores. Between two neighbouring scores no "
            "prediction changes: try the scores themselves, and return one of them.",
        ),
        Wrong("not-a-score", on_a_finer_grid),
        Wrong("not-a-score", rounded),
        Wrong(
            "precision-for-recall",
            precision_for_recall,
            "The threshold is right, but the second number is the precision there. Recall divides "
            "by the number of positives.",
        ),
        Wrong(
            "share-said",
            share_said,
            "The threshold is right, but the second number is the share of examples predicted as "
            "1. Recall is the share of positives that are found.",
        ),
        Wrong(
            "hits-over-all",
            hits_over_all,
            "The threshold is right, but the hits were divided by the number of examples. Recall "
            "divides by the number of positives.",
        ),
        Wrong("none-is-the-top", none_is_the_top),
        Wrong("none-is-one", none_is_one),
        Wrong("none-raises", none_raises),
        Wrong("not-a-score", halfway),
        Wrong("recall-first", recall_first, "The two numbers are swapped: the threshold comes "
                                            "first."),
        *common(walks_down, *LOOKS),
    ),
    right=(walks_down, with_masks, all_at_once),
)  # fmt: skip
