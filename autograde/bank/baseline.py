"""03b.baseline: how good the best answer is that ignores the input, on validation."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

import numpy as np
import torch

from autograde.bank.common_wrong import LOOKS, common
from autograde.bank.harness import Watch
from autograde.exercise import (
    Answer,
    Case,
    Draw,
    Exercise,
    Part,
    Wrong,
    as_index,
    as_number,
    kept,
    pair,
)


def draw(source: Draw, part: str) -> Case:
    """Training and validation targets whose most common classes differ; some have gaps.

    The most common class has no majority, and is the smallest of three first, then the middle one:
    so neither the median nor the smallest class is right by luck. In the third case validation
    lacks it.
    """
    order = source.shuffled(range(5))
    if source.index:  # one of them is no digit, and is the most common
        order = [source.integer(0, 9), *source.shuffled(range(10, 14))]
    if part == "gaps":
        order = [2 * label + 1 for label in order]
    low, middle, high = sorted(order[:3])
    most, second, third = (middle, high, low) if source.index else (low, middle, high)
    count = source.integer(7, 10)
    train = [most] * count + [second] * (count - 3) + [third] * 5
    val = [most] * (count - 5) * (source.index < 2) + [second] * count + [third]
    if source.index == 2:  # no class of validation is as high
        train = [most] * count + [high] * (count - 3) + [low] * 5
        val = [low] * count + [min(low, 1)]
    train = source.shuffled(train)
    if source.index == 0:  # the longest run is not the most common's
        train = [second, *[third] * 5, *_spread([most] * count, [second] * (count - 4))]
    if source.index == 1:  # sorted, and the first hundred do not hold it
        train = 8 * [third] * 5 + 8 * [second] * (count - 3) + 8 * [most] * count
    return {"train": torch.tensor(train), "val": torch.tensor(source.shuffled(val))}


def _spread(labels: list[int], between: list[int]) -> list[int]:
    """Two of the labels, one of those between, and so on."""
    pairs = [labels[i : i + 2] for i in range(0, len(labels), 2)]
    spread = [[*pair, *between[i : i + 1]] for i, pair in enumerate(pairs)]
    return [label for group in spread for label in group] + between[len(pairs) :]


def run(function, case: Case, device: torch.device) -> Answer:
    """The class that is always answered, and how often it is right."""
    train, val = case["train"].to(device), case["val"].to(device)
    watch = Watch(data={"train_targets": train, "val_targets": val})
    returned = kept(pair, function(train, val), "the class and the accuracy")
    label, accuracy = returned if isinstance(returned, tuple) else (None, None)
    both = returned if isinstance(returned, dict) else None
    return {
        "label": both or kept(as_index, label, "the class that is always answered"),
        "accuracy": both or kept(as_number, accuracy, "the accuracy"),
        "disturbed": watch.changed(),
    }


def reference(train_targets, val_targets) -> tuple[int, float]:
    """scikit-learn's DummyClassifier."""
    from sklearn.dummy import DummyClassifier

    train, val = train_targets.cpu().numpy(), val_targets.cpu().numpy()
    dummy = DummyClassifier(strategy="most_frequent").fit(np.zeros((len(train), 1)), train)
    rows = np.zeros((len(val), 1))
    return int(dummy.predict(rows)[0]), float(dummy.score(rows, val))


def from_validation(train_targets, val_targets):
    label = val_targets.bincount().argmax()
    return label, (val_targets == label).float().mean()


def from_both(train_targets, val_targets):
    label = torch.cat([train_targets, val_targets]).bincount().argmax()
    return label, (val_targets == label).float().mean()


def from_the_first(train_targets, val_targets):
    return with_bincount(train_targets[:64], val_targets)


def longest_run(train_targets, val_targets):
    runs = [(len(list(run)), label) for label, run in groupby(train_targets.tolist())]
    label = max(runs)[1]
    return label, (val_targets == label).float().mean()


def least_of_all(train_targets, val_targets):
    """A class that never occurs, where there is one."""
    label = train_targets.bincount().argmin()
    return label, (val_targets == label).float().mean()


def scored_on_training(train_targets, val_targets):
    label = train_targets.bincount().argmax()
    return label, (train_targets == label).float().mean()


def always_zero(train_targets, val_targets):
    return 0, (val_targets == 0).float().mean()


def count_in_a_dictionary(train_targets, val_targets):
    values, counts = (found.tolist() for found in val_targets.unique(return_counts=True))
    label = train_targets.bincount().argmax().item()
    return label, dict(zip(values, counts, strict=True))[label] / len(val_targets)


def counter_of_a_tensor(train_targets, val_targets):
    label = Counter(train_targets).most_common(1)[0][0]
    return label, (val_targets == label).float().mean()


def scored_on_both(train_targets, val_targets):
    label = train_targets.bincount().argmax()
    return label, (torch.cat([train_targets, val_targets]) == label).float().mean()


def error_rate(train_targets, val_targets):
    label = train_targets.bincount().argmax()
    return label, (val_targets != label).float().mean()


def count_of_validation(train_targets, val_targets):
    label = train_targets.bincount().argmax()
    return label, val_targets.bincount()[label] / len(val_targets)


def one_over_classes(train_targets, val_targets):
    return train_targets.bincount().argmax(), 1 / len(train_targets.unique())


def how_many_not_which(train_targets, val_targets):
    label = train_targets.bincount().max()
    return label, (val_targets == label).float().mean()


def count_for_label(train_targets, val_targets):
    return train_targets.bincount().max(), with_bincount(train_targets, val_targets)[1]


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


def ten_classes(train_targets, val_targets):
    label = max(range(10), key=lambda k: (train_targets == k).sum())
    return label, (val_targets == label).double().mean()


def first_label(train_targets, val_targets):
    label = train_targets[0]
    return label, (val_targets == label).double().mean()


def least_common(train_targets, val_targets):
    values, counts = train_targets.unique(return_counts=True)
    label = values[counts.argmin()]
    return label, (val_targets == label).double().mean()


def validations_own(train_targets, val_targets):
    return train_targets.mode().values, (val_targets == val_targets.mode().values).double().mean()


def in_percent(train_targets, val_targets):
    label = train_targets.bincount().argmax()
    return label, 100 * (val_targets == label).float().mean()


def hits_not_divided(train_targets, val_targets):
    label = train_targets.bincount().argmax()
    return label, (val_targets == label).sum()


def divided_by_training(train_targets, val_targets):
    label = train_targets.bincount().argmax()
    return label, (val_targets == label).sum() / len(train_targets)


def pair_swapped(train_targets, val_targets):
    label, accuracy = with_bincount(train_targets, val_targets)
    return accuracy, label


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
    source='Lecture 1, "The debug ladder", rung 2',
    ledger=("T21",),
    minutes=5,
    difficulty=1,
    read=("course.debug.climb",),
    hints=(
        "You get two data sets. Which one may you learn from, and which one do you measure on?",
        "Counting how often each class occurs is one call in torch, and so is finding the "
        "largest count.",
        "label = train_targets.bincount().argmax(); its accuracy is the mean of "
        "(val_targets == label) as floats.",
    ),
    signature="dumb_baseline(train_targets, val_targets)",
    parts=(
        Part("label", "the class that is always answered", points=1, fields=("label", "disturbed")),
        Part(
            "accuracy",
            "how often it is right on validation",
            points=1,
            cases=3,
            fields=("accuracy",),
        ),
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
            "The class is the most common one in validation, or in both sets together: then "
            "validation takes part in training, and the baseline looks better than it is. Choose "
            "the class on train_targets.",
        ),
        Wrong("from-validation", from_both),
        Wrong("from-the-first", from_the_first),
        Wrong("longest-run", longest_run),
        Wrong("least-of-all", least_of_all),
        Wrong(
            "how-many-not-which",
            how_many_not_which,
            "That is how often the most common class occurs, not which class it is: argmax() "
            "instead of max().",
        ),
        Wrong("how-many-not-which", count_for_label),
        Wrong(
            "largest-label",
            largest_label,
            "That is the largest label, not the most common one. Count first.",
        ),
        Wrong(
            "median-label",
            median_label,
            "That is the median of the labels. Labels are names and have no middle: count how "
            "often each occurs.",
        ),
        Wrong(
            "scored-on-training",
            scored_on_training,
            "The class is right, but its accuracy was measured on training. A model has to beat "
            "the accuracy on validation.",
        ),
        Wrong("always-zero", always_zero),
        Wrong(
            "count-of-validation",
            count_of_validation,
            "The class may be missing from validation, and then its count cannot be looked up "
            "there. (val_targets == label).sum() gives 0 in that case.",
            raises=r"^(IndexError: index \d+ is out of bounds|KeyError: \d+)",
            sure=True,
        ),
        Wrong(
            "count-of-validation",
            count_in_a_dictionary,
            raises=r"^(IndexError: index \d+ is out of bounds|KeyError: \d+)",
            sure=True,
        ),
        Wrong(
            "scored-on-both",
            scored_on_both,
            "The class is right, but its accuracy was measured on both sets together. A model has "
            "to beat the accuracy on validation.",
        ),
        Wrong(
            "error-rate",
            error_rate,
            "That is the fraction of validation that the class gets wrong. Return the fraction it "
            "gets right.",
        ),
        Wrong(
            "one-over-classes",
            one_over_classes,
            "1 / C is what random guessing gives. Classes are not equally common: count how often "
            "your class is right on validation.",
        ),
        Wrong(
            "in-percent",
            in_percent,
            "That is the accuracy in percent. Return the fraction, between 0 and 1.",
        ),
        Wrong(
            "position-not-label",
            position_not_label,
            "unique() lists the classes that occur: the position of the largest count is not a "
            "label once a class is missing. Take values[counts.argmax()].",
            sure=True,
        ),
        Wrong(
            "hits-not-divided",
            hits_not_divided,
            "That is the number of validation examples that the class gets right. Divide it by "
            "len(val_targets).",
        ),
        Wrong(
            "divided-by-training",
            divided_by_training,
            "The number of hits on validation was divided by the number of training examples. "
            "Divide it by len(val_targets).",
        ),
        Wrong("pair-swapped", pair_swapped),
        Wrong(
            "ten-classes",
            ten_classes,
            "Labels of 10 and above were not counted. A class can be any index: bincount() counts "
            "all of them up to the largest.",
            sure=True,
        ),
        Wrong(
            "first-label",
            first_label,
            "That is the first label of training, not the most common one. (A Counter over a "
            "tensor counts each entry separately: use .tolist().)",
        ),
        Wrong("first-label", counter_of_a_tensor),
        Wrong(
            "least-common",
            least_common,
            "That is the rarest class of training. Take the one that occurs most often.",
        ),
        Wrong(
            "validations-own",
            validations_own,
            "The class is right, but the accuracy is that of another class, the most common one in "
            "validation. Count how often your class is right there.",
        ),
        *common(with_bincount, *LOOKS, "returns-graph"),
    ),
    right=(with_bincount, with_mode, with_counter),
)
