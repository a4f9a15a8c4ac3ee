"""03b.next-intervention: from buckets of mistakes to the one thing to do next."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch

from autograde.exercise import (
    Answer,
    AnswerError,
    Case,
    Draw,
    Exercise,
    Part,
    Wrong,
    as_number,
    seen,
)

ACTIONS = {
    "blur": "augment with blur",
    "rare class": "reweight or collect",
    "ambiguous label": "clean the labels",
    "background": "crop or mask",
    "threshold": "tune the threshold on validation",
}


def draw(source: Draw, part: str) -> Case:
    """A bucket for each mistake, no two buckets of one size, and how many examples there were."""
    order = torch.randperm(len(ACTIONS), generator=source.generator).tolist()
    names = [list(ACTIONS)[i] for i in order][: source.integer(3, 5)]
    counts = [3 + 2 * i + source.integer(0, 1) for i in range(len(names))]
    buckets = [name for name, count in zip(names, counts, strict=True) for _ in range(count)]
    mixed = torch.randperm(len(buckets), generator=source.generator).tolist()
    buckets = [buckets[i] for i in mixed]
    if part == "unsorted":
        buckets += ["?"] * (len(buckets) // 2 + 3)  # more than any bucket holds
    return {"buckets": buckets, "examples": len(buckets) + source.integer(100, 400)}


def run(function, case: Case, device: torch.device) -> Answer:
    """Bucket, gain in points, action."""
    returned = function(list(case["buckets"]), case["examples"], dict(ACTIONS))
    wanted = {"bucket", "gain", "action"}
    if not isinstance(returned, dict) or not wanted <= set(returned):
        raise AnswerError(
            "Return a dictionary with the keys 'bucket', 'gain' and 'action'; " + seen(returned)
        )
    return {
        "bucket": str(returned["bucket"]),
        "gain": as_number(returned["gain"], "the gain in points"),
        "action": str(returned["action"]),
    }


def _largest(buckets: list[str]) -> tuple[str, int]:
    return Counter(name for name in buckets if name != "?").most_common(1)[0]


def _answer(name: str, gain: float, actions: dict[str, str]) -> dict[str, Any]:
    return {"bucket": name, "gain": gain, "action": actions.get(name, "look again")}


def reference(buckets: list[str], num_examples: int, actions: dict[str, str]) -> dict[str, Any]:
    """The largest bucket that has a name; what mending all of it would give."""
    name, count = _largest(buckets)
    return _answer(name, 100 * count / num_examples, actions)


def share_of_mistakes(buckets, num_examples, actions):
    name, count = _largest(buckets)
    return _answer(name, 100 * count / len(buckets), actions)


def not_in_points(buckets, num_examples, actions):
    name, count = _largest(buckets)
    return _answer(name, count / num_examples, actions)


def first_in_the_list(buckets, num_examples, actions):
    name = next(name for name in buckets if name != "?")
    return _answer(name, 100 * buckets.count(name) / num_examples, actions)


def smallest_bucket(buckets, num_examples, actions):
    name, count = Counter(name for name in buckets if name != "?").most_common()[-1]
    return _answer(name, 100 * count / num_examples, actions)


def all_mistakes(buckets, num_examples, actions):
    name, _ = _largest(buckets)
    return _answer(name, 100 * len(buckets) / num_examples, actions)


def count_itself(buckets, num_examples, actions):
    name, count = _largest(buckets)
    return _answer(name, count, actions)


def unsorted_counts(buckets, num_examples, actions):
    name, count = Counter(buckets).most_common(1)[0]
    return _answer(name, 100 * count / num_examples, actions)


def bucket_as_action(buckets, num_examples, actions):
    name, count = _largest(buckets)
    return {"bucket": name, "gain": 100 * count / num_examples, "action": name}


def with_counter(buckets, num_examples, actions):
    counts = Counter(buckets)
    counts.pop("?", None)
    name = max(counts, key=counts.get)
    return {"bucket": name, "gain": counts[name] / num_examples * 100, "action": actions[name]}


def with_a_loop(buckets, num_examples, actions):
    best, most = None, -1
    for name in actions:
        count = sum(bucket == name for bucket in buckets)
        if count > most:
            best, most = name, count
    return {"action": actions[best], "bucket": best, "gain": 100.0 * most / num_examples}


def from_the_error_rate(buckets, num_examples, actions):
    named = [bucket for bucket in buckets if bucket in actions]
    name = sorted(set(named), key=named.count)[-1]
    error = len(buckets) / num_examples
    share = named.count(name) / len(buckets)
    return {"bucket": name, "gain": torch.tensor(100 * share * error), "action": actions[name]}


EXERCISE = Exercise(
    id="03b.next-intervention",
    title="from error buckets to the next intervention",
    source='Lecture 3, "Error analysis" and "Bucket to action"; ledger N24, T28, S19',
    minutes=10,
    signature="next_intervention(buckets, num_examples, actions)",
    parts=(
        Part("bucket", "the bucket to look at first", points=1, fields=("bucket",)),
        Part("gain", "the ceiling of the gain", points=1, fields=("gain",)),
        Part("action", "what to do about it", points=1, fields=("action",)),
        Part("unsorted", "mistakes that nobody has sorted yet", points=1, hidden=True),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={"bucket": "the bucket", "gain": "the gain", "action": "the action"},
    wrong=(
        Wrong(
            "bucket-as-action",
            bucket_as_action,
            "The bucket's name is no action. Look it up in `actions`.",
        ),
        Wrong(
            "smallest-bucket",
            smallest_bucket,
            "That is the smallest bucket, where there is least to win.",
        ),
        Wrong(
            "all-mistakes",
            all_mistakes,
            "That is what mending every mistake would give. One intervention mends its own bucket "
            "at most.",
        ),
        Wrong(
            "count-itself",
            count_itself,
            "That is the number of mistakes in the bucket. As points of accuracy it is 100 times "
            "its share of all examples.",
        ),
        Wrong(
            "share-of-mistakes",
            share_of_mistakes,
            "That is the bucket's share of the mistakes. Accuracy is counted over all examples: "
            "divide by num_examples.",
        ),
        Wrong(
            "not-in-points",
            not_in_points,
            "Right, as a share; the exercise asks for points: times 100.",
        ),
        Wrong(
            "first-in-the-list",
            first_in_the_list,
            "That is the bucket of the first mistake. Count before acting.",
        ),
        Wrong(
            "unsorted-counts",
            unsorted_counts,
            "'?' marks mistakes that nobody has sorted: they are no bucket, and no action mends "
            "them.",
        ),
    ),
    right=(with_counter, with_a_loop, from_the_error_rate),
)
