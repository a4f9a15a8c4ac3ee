"""05.baselines: what two models without training score, as the bar for the project."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from autograde.bank.common_wrong import named
from autograde.bank.harness import Watch
from autograde.exercise import Answer, Case, Draw, Exercise, Part, Wrong, as_number, kept_entries


def draw(source: Draw, part: str) -> Case:
    """Clusters of unequal size around means of unequal length; the most common class differs.

    The lengths tell the nearest mean from the largest product; the sizes tell it from the nearest
    neighbour's majority; a sum of absolute differences gives another share. In `gaps`, and in the
    last case of `means`, two classes have no training image, and validation has images of the
    higher one: neither side's labels are positions, and a mean of 0 for them wins images.
    """
    while True:
        case = _drawn(source, part)
        x, y, u, v = _rows(case)
        if len(y.unique()) < case["num_classes"] and (
            zeros_for_gaps(case)["nearest_mean"] == _share(_nearest(x, y, u), v)
        ):
            continue
        if part == "gaps" or _share(_nearest(x, y, u), v) != _share(
            _nearest(x, y, u, absolute_differences), v
        ):
            return case


def _drawn(source: Draw, part: str) -> Case:
    classes = source.integer(4, 5) + 7 * (source.index % 2)
    height, width = source.integer(2, 3), source.integer(4, 5)
    gaps = part == "gaps" or (part == "means" and source.index == 3)
    gone = [source.integer(0, 1), source.integer(2, classes - 1)] if gaps else []
    present = source.shuffled([label for label in range(classes) if label not in gone])
    length = source.shuffled([1.0 + 0.5 * i for i in range(len(present))])
    means = {
        label: scale * source.normal(1, height, width)
        for label, scale in zip(present, length, strict=True)
    }
    counts = [8, 5, *[source.integer(3, 4) for _ in present[2:]]]
    train = [label for label, count in zip(present, counts, strict=True) for _ in range(count)]
    val = [present[0]] * 4 + [label for label in present[1:] for _ in range(source.integer(7, 9))]
    val += gone[1:]
    sides = {}
    for side, labels in (("train", train), ("val", val)):
        labels = source.shuffled(labels)
        inputs = [
            means.get(label, means[present[1]]) + source.normal(1, height, width, scale=3.2)
            for label in labels
        ]
        sides[side] = [torch.stack(inputs), torch.tensor(labels)]
    return {**sides, "num_classes": classes}


def run(function, case: Case, device: torch.device) -> Answer:
    """The two scores."""
    data = {side: tuple(part.to(device) for part in case[side]) for side in ("train", "val")}
    handed = {**data, "num_classes": case["num_classes"], "mean": 0.0, "std": 1.0}
    watch = Watch(data=[*data["train"], *data["val"], handed])
    returned = function(handed)
    wanted = {
        "majority": (as_number, "the accuracy of the most common class"),
        "nearest_mean": (as_number, "the accuracy of the nearest mean"),
    }
    return {**kept_entries(returned, wanted), "disturbed": watch.changed()}


def reference(data) -> dict[str, float]:
    """scikit-learn's DummyClassifier and NearestCentroid."""
    from sklearn.dummy import DummyClassifier
    from sklearn.neighbors import NearestCentroid

    (x, y), (u, v) = (
        (data[side][0].flatten(1).cpu().double().numpy(), data[side][1].cpu().numpy())
        for side in ("train", "val")
    )
    majority = DummyClassifier(strategy="most_frequent").fit(x, y)
    nearest = NearestCentroid().fit(x, y)
    return {"majority": float(majority.score(u, v)), "nearest_mean": float(nearest.score(u, v))}


def _rows(data: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    (x, y), (u, v) = data["train"], data["val"]
    return x.flatten(1), y, u.flatten(1), v


def _share(said: Tensor, targets: Tensor) -> float:
    return (said == targets).double().mean().item()


def _nearest(x: Tensor, y: Tensor, u: Tensor, how=torch.cdist) -> Tensor:
    names = y.unique()
    means = torch.stack([x[y == name].mean(dim=0) for name in names])
    return names[how(u, means).argmin(dim=1)]


def with_cdist(data):
    x, y, u, v = _rows(data)
    return {"majority": _share(y.mode().values, v), "nearest_mean": _share(_nearest(x, y, u), v)}


def as_a_linear_layer(data):
    """The nearest mean as what it is: scores w·x + b with w a mean and b minus half its square."""
    x, y, u, v = _rows(data)
    scores = torch.full((len(v), data["num_classes"]), -torch.inf, device=u.device)
    for name in y.unique().tolist():
        mean = x[y == name].mean(dim=0)
        scores[:, name] = u @ mean - mean.dot(mean) / 2
    label = torch.bincount(y, minlength=data["num_classes"]).argmax()
    return {"nearest_mean": (scores.argmax(dim=1) == v).float().mean().item(),
            "majority": (v == label).float().mean()}  # fmt: skip


def in_numpy(data):
    x, y, u, v = (part.cpu().numpy() for part in _rows(data))
    labels, counts = np.unique(y, return_counts=True)
    means = np.array([x[y == label].mean(axis=0) for label in labels])
    said = [labels[((row - means) ** 2).sum(axis=1).argmin()] for row in u]
    majority = labels[counts.argmax()]
    return {"majority": np.mean(v == majority), "nearest_mean": np.mean(np.array(said) == v)}


def spoiled(**wrong_for):
    """A right answer with other functions of (x, y, u, v) for one or both numbers."""

    def wrong(data):
        right, rows = with_cdist(data), _rows(data)
        return right | {name: function(*rows) for name, function in wrong_for.items()}

    return wrong


def stacked_with_gaps(data):
    x, y, u, v = _rows(data)
    means = torch.stack([x[y == c].mean(dim=0) for c in range(data["num_classes"])])
    return with_cdist(data) | {"nearest_mean": _share(torch.cdist(u, means).argmin(dim=1), v)}


def zeros_for_gaps(data):
    x, y, u, v = _rows(data)
    means = torch.zeros(data["num_classes"], x.shape[1], device=x.device)
    for name in y.unique().tolist():
        means[name] = x[y == name].mean(dim=0)
    return with_cdist(data) | {"nearest_mean": _share(torch.cdist(u, means).argmin(dim=1), v)}


def positions_for_labels(data):
    x, y, u, v = _rows(data)
    means = torch.stack([x[y == name].mean(dim=0) for name in y.unique()])
    return with_cdist(data) | {"nearest_mean": _share(torch.cdist(u, means).argmin(dim=1), v)}


def positions_in_validation(data):
    x, y, u, v = _rows(data)
    places = torch.cdist(u, torch.stack([
        x[y == c].mean(dim=0) if (y == c).any() else x.new_full(x.shape[1:], 1e9)
        for c in range(data["num_classes"])
    ])).argmin(dim=1)  # fmt: skip
    names = v.unique()
    said = names[places.clamp(max=len(names) - 1)]
    return with_cdist(data) | {"nearest_mean": _share(said, v)}


def flattened_in_place(data):
    data["train"] = data["train"][0].flatten(1), data["train"][1]
    return with_cdist(data)


def ten_classes(data):
    x, y, u, v = _rows(data)
    keep = y < 10
    return with_cdist(data) | {"nearest_mean": _share(_nearest(x[keep], y[keep], u), v)}


def in_percent(data):
    return {name: 100 * value for name, value in with_cdist(data).items()}


def keys_swapped(data):
    right = with_cdist(data)
    return {"majority": right["nearest_mean"], "nearest_mean": right["majority"]}


def largest_product(u, means):
    return -(u @ means.T)


def longest_way(u, means):
    return (u[:, None] - means).abs().amax(dim=2)


def absolute_differences(u, means):
    return torch.cdist(u, means, p=1)


def own_means(data):
    _, _, u, v = _rows(data)
    return with_cdist(data) | {"nearest_mean": _share(_nearest(u, v, u), v)}


WRONG = (
    ("majority-of-validation", spoiled(majority=lambda x, y, u, v: _share(v.mode().values, v)),
     "The most common class of validation was used. A baseline learns from training too: use the "
     "most common class there."),
    ("majority-on-training", spoiled(majority=lambda x, y, u, v: _share(y.mode().values, y)),
     "The majority baseline was scored on training. Score it on validation."),
    ("guessing", spoiled(majority=lambda x, y, u, v: 1 / len(y.unique())),
     "1 / C is random guessing. Always answer the most common class of training."),
    ("means-of-validation", own_means,
     "The means are those of the validation images, so the fit has seen validation. Compute them "
     "over training."),
    ("means-of-both-sides", spoiled(nearest_mean=lambda x, y, u, v: _share(
        _nearest(torch.cat([x, u]), torch.cat([y, v]), u), v)),
     "The means are those of training and validation images together, so the fit has seen "
     "validation. Compute them over training alone."),
    ("means-on-training", spoiled(nearest_mean=lambda x, y, u, v: _share(_nearest(x, y, x), y)),
     "The nearest mean was scored on training. Score it on validation."),
    ("nearest-image", spoiled(nearest_mean=lambda x, y, u, v: _share(
        y[torch.cdist(u, x).argmin(dim=1)], v)),
     "That is the label of the nearest training image. Use the nearest class mean: one point per "
     "class."),
    ("largest-product", spoiled(nearest_mean=lambda x, y, u, v: _share(
        _nearest(x, y, u, largest_product), v)),
     "The class with the largest product x·mean was chosen, which favours long means. Choose the "
     "smallest distance, with torch.cdist."),
    ("largest-distance", spoiled(nearest_mean=lambda x, y, u, v: _share(
        _nearest(x, y, u, lambda a, b: -torch.cdist(a, b)), v)), ""),
    ("absolute-differences", spoiled(nearest_mean=lambda x, y, u, v: _share(
        _nearest(x, y, u, absolute_differences), v)),
     "The distance is the sum of absolute differences. Use the Euclidean distance, the root of the "
     "sum of squares, which torch.cdist gives."),
    ("other-distance", spoiled(nearest_mean=lambda x, y, u, v: _share(
        _nearest(x, y, u, longest_way), v)), ""),
    ("median-not-mean", spoiled(nearest_mean=lambda x, y, u, v: _share(
        y.unique()[torch.cdist(u, torch.stack(
            [x[y == c].median(dim=0).values for c in y.unique()])).argmin(dim=1)], v)), ""),
    ("gaps-win", stacked_with_gaps,
     "A class without a training image has a mean of nan, and argmin() treats nan as the smallest. "
     "Use only the classes that occur: targets.unique()."),
    ("gaps-at-zero", zeros_for_gaps,
     "A class without a training image got the mean 0, so it wins images near 0. Use only the "
     "classes that occur."),
    ("positions-for-labels", positions_for_labels,
     "The position of the nearest mean was used as its label. unique() lists only the classes that "
     "occur, so once a class is missing the two differ. Use classes[position]."),
    ("positions-in-validation", positions_in_validation,
     "The label was looked up among those that occur in validation. A class may be missing there "
     "too: use the label that the mean has in training."),
    ("data-changed", flattened_in_place, ""),
    ("ten-classes", ten_classes, ""),
    ("in-percent", in_percent, "Those are percentages. Give shares, from 0 to 1."),
    ("keys-swapped", keys_swapped, "The two keys are swapped."),
    ("hits", spoiled(majority=lambda x, y, u, v: (v == y.mode().values).sum()), ""),
    ("returns-the-means", spoiled(nearest_mean=lambda x, y, u, v: x.mean(dim=0)), ""),
    ("nothing", lambda data: {}, ""),
)  # fmt: skip


EXERCISE = Exercise(
    id="05.baselines",
    title="the accuracy to beat",
    source='Lecture 1, "The debug ladder", rung 2',
    ledger=("T21", "X09"),
    minutes=10,
    difficulty=1,
    read=("course.debug.climb", "T21"),
    hints=(
        "Both baselines learn from training and are scored on validation. What does each of them "
        "learn?",
        "classes = targets.unique() lists them, x[y == name].mean(0) is the mean of one, and "
        "torch.cdist gives all distances at once.",
        "said = classes[torch.cdist(val_rows, means).argmin(1)]; its accuracy is the mean of "
        "said == val_targets as floats. Rows are inputs.flatten(1).",
    ),
    signature="baselines(data)",
    parts=(
        Part("majority", "the most common class", points=0.5, cases=3,
             fields=("majority", "disturbed")),
        Part("means", "the nearest class mean", points=1, cases=4, fields=("nearest_mean",)),
        Part("gaps", "classes missing from training", points=0.5, hidden=True),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={"majority": "the majority's accuracy", "nearest_mean": "the nearest mean's accuracy"},
    wrong=tuple(
        Wrong(name, named(name, function), message, sure=name in ("gaps-win", "in-percent"))
        for name, function, message in WRONG
    ),
    right=(with_cdist, as_a_linear_layer, in_numpy),
)  # fmt: skip
