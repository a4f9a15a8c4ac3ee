"""03b.next-intervention: from buckets of mistakes to the one thing to do next."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import Any

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
    as_number,
    as_text,
    kept_entries,
)

ACTIONS = {
    "blur": "augment with blur",
    "rare class": "reweight or collect",
    "ambiguous label": "clean the labels",
    "background": "crop or mask",
    "threshold": "tune the threshold on validation",
    "rotation": "augment with rotations",
}
ODD = {1: "mislabelled?", 2: "Night"}
"""Names of the largest bucket in some cases: letters and signs belong to a name."""


def draw(source: Draw, part: str) -> Case:
    """A bucket for each mistake, no two of one size, and how many examples there were.

    The names that are first and last in the alphabet have neither the largest nor the smallest
    bucket. What helps differs from case to case, and is known for more buckets than occur.
    """
    names = source.shuffled(list(ACTIONS))
    kinds = names[: source.integer(4, 5)]
    low, high = min(kinds), max(kinds)
    others = [name for name in kinds if name not in (low, high)]
    kinds = [others[0], *source.shuffled([low, high]), *others[1:]]
    if part == "bucket":
        kinds[-1] = ODD.get(source.index, kinds[-1])
    counts = [3 + 2 * i + source.choice((0, 1)) for i in range(len(kinds))]
    buckets = [name for name, count in zip(kinds, counts, strict=True) for _ in range(count)]
    if part == "gain" and source.index == 1:  # more than any bucket holds
        buckets += ["?"] * (len(buckets) // 2 + 3)
    if part == "unsorted":  # more than any bucket holds, twice; then second, and fewest
        buckets += ["?"] * (len(buckets) // 2 + 3, len(buckets) + 3, counts[-1] - 1, 1)[
            source.index
        ]
    buckets = source.shuffled(buckets)
    if part == "bucket" and source.index == 0:  # the longest run is not the largest bucket's
        largest, second = ([b for b in buckets if b == name] for name in (kinds[-1], kinds[-2]))
        rest = [b for b in buckets if b not in (kinds[-1], kinds[-2])]
        buckets = second + [b for two in zip(largest, rest, strict=False) for b in two]
        buckets += largest[len(rest) :] + rest[len(largest) :]
    weeks = source.integer(1, 9)
    return {
        "buckets": buckets,
        "examples": len(buckets) + source.choice(range(100, 400)),
        "actions": {
            name: f"{ACTIONS.get(name, 'look at more of them')} ({weeks} days)"
            for name in source.shuffled([*names, *ODD.values()])
        },
    }


def run(function, case: Case, device: torch.device) -> Answer:
    """Bucket, gain in points, action."""
    buckets, actions = list(case["buckets"]), dict(case["actions"])
    watch = Watch(data={"buckets": buckets, "actions": actions})
    returned = function(buckets, case["examples"], actions)
    wanted = {
        "bucket": (as_text, "the bucket"),
        "gain": (as_number, "the gain in points"),
        "action": (as_text, "the action"),
    }
    return {**kept_entries(returned, wanted), "disturbed": watch.changed()}


def _largest(buckets: list[str]) -> tuple[str, int]:
    return Counter(name for name in buckets if name != "?").most_common(1)[0]


def _answer(name: str, gain: float, actions: dict[str, str]) -> dict[str, Any]:
    return {"bucket": name, "gain": gain, "action": actions.get(name, "look again")}


def reference(buckets: list[str], num_examples: int, actions: dict[str, str]) -> dict[str, Any]:
    """The largest bucket that has a name; what fixing all of it would give."""
    name, count = _largest(buckets)
    return _answer(name, 100 * count / num_examples, actions)


def share_of_mistakes(buckets, num_examples, actions):
    name, count = _largest(buckets)
    return _answer(name, 100 * count / len(buckets), actions)


def share_of_the_sorted(buckets, num_examples, actions):
    return share_of_mistakes([name for name in buckets if name != "?"], num_examples, actions)


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


def unknown_added(buckets, num_examples, actions):
    name, count = _largest(buckets)
    return _answer(name, 100 * (count + buckets.count("?")) / num_examples, actions)


def looks_first(buckets, num_examples, actions):
    if 2 * buckets.count("?") > len(buckets):
        return _answer("?", 100 * buckets.count("?") / num_examples, {"?": "look at them"})
    name, count = _largest(buckets)
    return _answer(name, 100 * count / num_examples, actions)


def all_sorted_mistakes(buckets, num_examples, actions):
    return all_mistakes([name for name in buckets if name != "?"], num_examples, actions)


def count_itself(buckets, num_examples, actions):
    name, count = _largest(buckets)
    return _answer(name, count, actions)


def unsorted_counts(buckets, num_examples, actions):
    name, count = Counter(buckets).most_common(1)[0]
    return _answer(name, 100 * count / num_examples, actions)


def unsorted_looked_up(buckets, num_examples, actions):
    name, count = Counter(buckets).most_common(1)[0]
    return {"bucket": name, "gain": 100 * count / num_examples, "action": actions[name]}


def the_second(buckets, num_examples, actions):
    ranked = Counter(buckets).most_common()
    name, count = ranked["?" in buckets]
    return _answer(name, 100 * count / num_examples, actions)


def always_the_second(buckets, num_examples, actions):
    name, count = Counter(buckets).most_common(2)[1]
    return _answer(name, 100 * count / num_examples, actions)


def new_accuracy(buckets, num_examples, actions):
    name, count = _largest(buckets)
    return _answer(name, 100 * (num_examples - len(buckets) + count) / num_examples, actions)


def longest_run(buckets, num_examples, actions):
    runs = [(len(list(run)), name) for name, run in groupby(b for b in buckets if b != "?")]
    count, name = max(runs)
    return _answer(name, 100 * count / num_examples, actions)


def mistakes_added(buckets, num_examples, actions):
    return reference(buckets, num_examples + len(buckets), actions)


def bucket_as_action(buckets, num_examples, actions):
    name, count = _largest(buckets)
    return {"bucket": name, "gain": 100 * count / num_examples, "action": name}


def last_in_the_alphabet(buckets, num_examples, actions):
    name = max(name for name in buckets if name != "?")
    return _answer(name, 100 * buckets.count(name) / num_examples, actions)


def rounded(buckets, num_examples, actions):
    name, count = _largest(buckets)
    return _answer(name, round(100 * count / num_examples), actions)


def rounded_to_a_tenth(buckets, num_examples, actions):
    name, count = _largest(buckets)
    return _answer(name, round(100 * count / num_examples, 1), actions)


def without_the_unknown(buckets, num_examples, actions):
    name, count = _largest(buckets)
    return _answer(name, 100 * count / (num_examples - buckets.count("?")), actions)


def unknown_shared_out(buckets, num_examples, actions):
    name, count = _largest(buckets)
    known = len(buckets) - buckets.count("?")
    return _answer(name, 100 * count / known * len(buckets) / num_examples, actions)


def unknown_removed(buckets, num_examples, actions):
    while "?" in buckets:
        buckets.remove("?")
    return share_of_all(buckets, num_examples, actions)


def share_of_all(buckets, num_examples, actions):
    name, count = _largest(buckets)
    return _answer(name, 100 * count / num_examples, actions)


def in_small_letters(buckets, num_examples, actions):
    return share_of_all([name.lower() for name in buckets], num_examples, actions)


def questions_left_out(buckets, num_examples, actions):
    return share_of_all([name for name in buckets if "?" not in name], num_examples, actions)


def of_the_right_ones(buckets, num_examples, actions):
    return share_of_all(buckets, num_examples - len(buckets), actions)


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
    source='Lecture 3, "Error analysis" and "Bucket to action"',
    ledger=("N24", "T28", "S19"),
    minutes=10,
    difficulty=1,
    read=("N24",),
    hints=(
        "Three answers, one after the other: which bucket, how much, what to do.",
        "The gain is counted in points of accuracy, so compare the bucket with everything "
        "that was evaluated.",
        "Leave out '?', count the rest, take the most common name; gain = 100 * its count / "
        "num_examples; look up the action under that name in `actions`.",
    ),
    signature="next_intervention(buckets, num_examples, actions)",
    parts=(
        Part(
            "bucket",
            "the bucket to look at first",
            points=1,
            cases=3,
            fields=("bucket", "disturbed"),
        ),
        Part("gain", "the most it can gain, with and without '?'", points=1, fields=("gain",)),
        Part("action", "what to do about it", points=1, cases=3, fields=("action",)),
        Part(
            "unsorted",
            "mistakes that nobody has sorted yet",
            points=1,
            cases=4,
            fields=("bucket", "gain", "disturbed"),
            hidden=True,
        ),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={"bucket": "the bucket", "gain": "the gain", "action": "the action"},
    wrong=(
        Wrong(
            "bucket-as-action",
            bucket_as_action,
            "The bucket's name is not an action. Look it up in `actions`.",
        ),
        Wrong(
            "smallest-bucket",
            smallest_bucket,
            "That is the smallest bucket, where there is least to gain.",
        ),
        Wrong(
            "all-mistakes",
            all_mistakes,
            "That is what fixing every bucket would gain. One intervention fixes at most its own "
            "bucket.",
        ),
        Wrong("all-mistakes", all_sorted_mistakes),
        Wrong("looks-first", looks_first),
        Wrong(
            "unknown-added",
            unknown_added,
            "The '?' mistakes were counted as if they were in the largest bucket. Nobody has "
            "looked at them: count only what is in it.",
            sure=True,
        ),
        Wrong(
            "count-itself",
            count_itself,
            "That is the number of mistakes in the bucket. In points of accuracy, the gain is 100 "
            "times the bucket's share of all examples.",
        ),
        Wrong(
            "share-of-mistakes",
            share_of_mistakes,
            "That is the bucket's share of the mistakes. Accuracy is counted over all examples: "
            "divide by num_examples.",
        ),
        Wrong("share-of-mistakes", share_of_the_sorted),
        Wrong(
            "not-in-points",
            not_in_points,
            "That is right as a fraction, but the exercise asks for points: multiply by 100.",
        ),
        Wrong(
            "first-in-the-list",
            first_in_the_list,
            "That is the bucket of the first mistake. Count before acting.",
        ),
        Wrong(
            "unsorted-counts",
            unsorted_counts,
            "'?' marks mistakes that nobody has sorted: they are not a bucket, and no action fixes "
            "them.",
        ),
        Wrong("unsorted-counts", unsorted_looked_up, raises=r"^KeyError: '\?'", sure=True),
        Wrong(
            "last-in-the-alphabet",
            last_in_the_alphabet,
            "That is the bucket whose name is last in the alphabet. Compare how often each occurs: "
            "max() of a Counter compares the names, unless you pass key=counts.get.",
        ),
        Wrong(
            "rounded",
            rounded,
            "That is the gain, rounded. Return it unrounded.",
        ),
        Wrong("rounded", rounded_to_a_tenth),
        Wrong(
            "without-the-unknown",
            without_the_unknown,
            "The gain is right if every mistake was looked at, but otherwise the '?' were left out "
            "of the examples. Accuracy counts all examples: divide by num_examples.",
            sure=True,
        ),
        Wrong(
            "unknown-shared-out",
            unknown_shared_out,
            "The '?' mistakes were shared out among the buckets. Nobody has looked at them: count "
            "only what is in the bucket.",
            sure=True,
        ),
        Wrong("unknown-removed", unknown_removed),
        Wrong("in-small-letters", in_small_letters),
        Wrong(
            "questions-left-out",
            questions_left_out,
            "A bucket whose name contains a question mark was left out. Only the name `?` means "
            "that nobody has looked: compare the whole name.",
            sure=True,
        ),
        Wrong(
            "of-the-right-ones",
            of_the_right_ones,
            "The count was divided by the number of correct predictions. Accuracy is over all "
            "examples: divide by num_examples.",
        ),
        Wrong("the-second", the_second),
        Wrong(
            "always-the-second",
            always_the_second,
            "That is the second most common name, as if '?' always came first. Leave '?' out, then "
            "take the most common.",
        ),
        Wrong(
            "new-accuracy",
            new_accuracy,
            "That is the accuracy after fixing the bucket. The gain is only what is added to the "
            "accuracy: 100 times the bucket's share of all examples.",
        ),
        Wrong("longest-run", longest_run),
        Wrong(
            "mistakes-added",
            mistakes_added,
            "The mistakes were added to num_examples, which already counts all examples, right and "
            "wrong.",
        ),
        *common(with_counter, *LOOKS),
    ),
    right=(with_counter, with_a_loop, from_the_error_rate),
)
