"""03b.baseline: what the best answer without looking is worth on validation."""

from __future__ import annotations

from collections import Counter

import numpy as np
import torch
from sklearn.dummy import DummyClassifier

from autograde.exercise import Answer, AnswerError, Case, Draw, Exercise, Part, Wrong, as_number

CLASSES = 5


def draw(source: Draw, part: str) -> Case:
    """Training and validation targets whose most common classes differ; one has gaps.

    The most common class has no majority, and is the smallest of three first, then the middle one:
    so neither the median nor the smallest class is right by luck.
    """
    order = torch.randperm(CLASSES, generator=source.generator).tolist()
    if part == "gaps":
        order = [label for label in order if label != 1]
    low, middle, high = sorted(order[:3])
    most, second, third = (middle, high, low) if source.index else (low, middle, high)
    count = source.integer(7, 10)
    train = [most] * count + [second] * (count - 3) + [third] * 5
    val = [most] * (count - 5) + [second] * count + [third] * 1
    return {"train": _shuffled(source, train), "val": _shuffled(source, val)}


def _shuffled(source: Draw, labels: list[int]) -> torch.Tensor:
    return torch.tensor(labels)[torch.randperm(len(labels), generator=source.generator)]


def run(function, case: Case, device: torch.device) -> Answer:
    """The class that is always answered, and how often it is right."""
    returned = function(case["train"].to(device), case["val"].to(device))
    if not isinstance(returned, (tuple, list)) or len(returned) != 2:
        raise AnswerError(
            "Return two things, the class and the accuracy; what came back was a "
            f"{type(returned).__name__}."
        )
    return {
        "label": as_number(returned[0], "the class that is always answered"),
        "accuracy": as_number(returned[1], "the accuracy"),
    }


def reference(train_targets, val_targets) -> tuple[int, float]:
    """scikit-learn's DummyClassifier."""
    train, val = train_targets.cpu().numpy(), val_targets.cpu().numpy()
    dummy = DummyClassifier(strategy="most_frequent").fit(np.zeros((len(train), 1)), train)
    rows = np.zeros((len(val), 1))
    return int(dummy.predict(rows)[0]), float(dummy.score(rows, val))


def from_validation(train_targets, val_targets):
    label = val_targets.bincount().argmax()
    return label, (val_targets == label).float().mean()


def scored_on_training(train_targets, val_targets):
    label = train_targets.bincount().argmax()
    return label, (train_targets == label).float().mean()


def one_over_classes(train_targets, val_targets):
    return train_targets.bincount().argmax(), 1 / len(train_targets.unique())


def how_many_not_which(train_targets, val_targets):
    label = train_targets.bincount().max()
    return label, (val_targets == label).float().mean()


def position_not_label(train_targets, val_targets):
    _, counts = train_targets.unique(return_counts=True)
    label = counts.argmax()
    return label, (val_targets == label).float().mean()


def median_label(train_targets, val_targets):
    label = train_targets.median()
    return label, (val_targets == label).float().mean()


def largest_label(train_targets, val_targets):
    label = train_targets.max()
    return label, (val_targets == label).float().mean()


def in_percent(train_targets, val_targets):
    label = train_targets.bincount().argmax()
    return label, 100 * (val_targets == label).float().mean()


def with_bincount(train_targets, val_targets):
    label = torch.bincount(train_targets).argmax().item()
    return label, (val_targets == label).double().mean().item()


def with_mode(train_targets, val_targets):
    label = train_targets.mode().values
    return label, val_targets.eq(label).sum() / len(val_targets)


def with_counter(train_targets, val_targets):
    label, _ = Counter(train_targets.tolist()).most_common(1)[0]
    answers = val_targets.tolist()
    return [label, answers.count(label) / len(answers)]


EXERCISE = Exercise(
    id="03b.baseline",
    title="the dumb baseline",
    source='Lecture 1, "The debug ladder", rung 2; ledger T21',
    minutes=5,
    signature="dumb_baseline(train_targets, val_targets)",
    parts=(
        Part("label", "the class that is always answered", points=1, fields=("label",)),
        Part("accuracy", "how often it is right on validation", points=1),
        Part("gaps", "classes that are not 0, 1, 2, ... without a gap", points=1, hidden=True),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={"label": "the class", "accuracy": "the accuracy"},
    wrong=(
        Wrong(
            "from-validation",
            from_validation,
            "The class was chosen on validation: then validation is part of training, and the "
            "baseline is better than any that could be had. Choose it on train_targets.",
        ),
        Wrong(
            "how-many-not-which",
            how_many_not_which,
            "That is how often the most common class comes, not which class it is: argmax() "
            "instead of max().",
        ),
        Wrong(
            "largest-label",
            largest_label,
            "That is the largest label, not the most common one. Count first.",
        ),
        Wrong(
            "median-label",
            median_label,
            "That is the median of the labels. Labels are names, and between two classes lies "
            "none: count how often each comes.",
        ),
        Wrong(
            "scored-on-training",
            scored_on_training,
            "The class is right; its accuracy was measured on training. The bar that a model has "
            "to take is the one on validation.",
        ),
        Wrong(
            "one-over-classes",
            one_over_classes,
            "1 / C is what guessing by dice gives. Classes are not equally common: count how often "
            "your class is right on validation.",
        ),
        Wrong(
            "in-percent",
            in_percent,
            "That is the accuracy in percent. Give the share, between 0 and 1.",
        ),
        Wrong(
            "position-not-label",
            position_not_label,
            "unique() lists the classes that occur: the position of the largest count is no label "
            "once a class is missing. Take values[counts.argmax()].",
        ),
    ),
    right=(with_bincount, with_mode, with_counter),
)
