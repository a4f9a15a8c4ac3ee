"""03f.buckets: a table of buckets from a sample of the mistakes, with ceilings and intervals."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import torch

from autograde.bank.common_wrong import common
from autograde.bank.harness import Watch
from autograde.exercise import (
    Answer,
    AnswerError,
    Case,
    Draw,
    Exercise,
    Part,
    Wrong,
    as_index,
    as_number,
    as_text,
    kept,
)

NAMES = ("blur", "rotation", "label", "rare class", "background", "two objects", "cut off", "dark")
KEYS = ("bucket", "count", "gain", "low", "high")
WIDE = 1e-3
"""Relative: 1.96 and the exact quantile of the normal are both right."""


def draw(source: Draw, part: str) -> Case:
    """A sample of the mistakes: three of its buckets are equally large, one holds one mistake.

    Of the equal ones, the second in the alphabet is met first, the first last. The sample is a part
    of the mistakes, but for the third case. `edges`: all in one bucket, then nothing looked at.
    """
    names = source.shuffled(NAMES)[: source.integer(5, 7)]
    names[1:4] = sorted(names[1:4])
    size = source.integer(5, 9)
    counts = [size + 3, size, size, size, 1, *(size - 2 - i for i, _ in enumerate(names[5:]))]
    sample = source.shuffled(
        [name for name, count in zip(names, counts, strict=True) for _ in range(count)]
    )
    for name in (names[3], names[2]):
        sample.remove(name)
        sample.insert(0, name)
    if part == "edges":
        sample = [names[0]] * size if source.index == 0 else []
    mistakes = len(sample) + (source.integer(10, 60) if source.index < 2 else 0)
    examples = mistakes + source.choice(range(150, 900))
    return {"sample": sample, "mistakes": mistakes, "examples": examples}


def run(function, case: Case, device: torch.device) -> Answer:
    """Names in their order; counts, gains and ends by name."""
    sample = list(case["sample"])
    watch = Watch(data={"sample": sample})
    returned = function(sample, case["mistakes"], case["examples"])
    read = {
        "names": lambda: [_name(row) for row in _rows(returned)],
        "count": lambda: _column(returned, "count", as_index, "a count"),
        "gain": lambda: _column(returned, "gain", as_number, "a gain in points"),
        "low": lambda: _column(returned, "low", as_number, "the lower end"),
        "high": lambda: _column(returned, "high", as_number, "the upper end"),
    }
    return {**{key: kept(one) for key, one in read.items()}, "disturbed": watch.changed()}


def _rows(returned: Any) -> list[dict[str, Any]]:
    if not isinstance(returned, (list, tuple)):
        kind = type(returned).__name__
        raise AnswerError(f"Return a list with a dictionary per bucket; yours is a {kind}.")
    for row in returned:
        if not isinstance(row, dict) or not set(KEYS) <= set(row):
            seen = f"the keys {list(row)}"[:60] if isinstance(row, dict) else type(row).__name__
            raise AnswerError(f"Each row is a dictionary with {', '.join(KEYS)}; one is {seen}.")
    return list(returned)


def _name(row: dict[str, Any]) -> str:
    return as_text(row["bucket"], "a bucket's name")


def _column(returned: Any, key: str, read: Any, what: str) -> dict[str, Any]:
    return {_name(row): read(row[key], what) for row in _rows(returned)}


def _table(sample, scale, ends) -> list[dict[str, Any]]:
    """Rows in the right order; `ends(count, n)` are those of the share, `scale` makes points."""
    counts = Counter(sample)
    rows = []
    for name in sorted(counts, key=lambda name: (-counts[name], name)):
        low, high = ends(counts[name], len(sample))
        gain = scale * counts[name] / len(sample)
        rows.append({"bucket": name, "count": counts[name], "gain": gain,
                     "low": scale * low, "high": scale * high})  # fmt: skip
    return rows


def _wilson(count, n, z=1.96):
    share, shrink = count / n, 1 + z**2 / n
    middle = (share + z**2 / (2 * n)) / shrink
    half = z * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2)) / shrink
    return middle - half, middle + half


def _exactly(count, n):
    from scipy.stats import binomtest

    return tuple(binomtest(count, n).proportion_ci(0.95, method="wilson"))


def reference(sample, num_mistakes, num_examples):
    """The ends of the share are scipy's."""
    return _table(sample, 100 * num_mistakes / num_examples, _exactly)


def plain(sample, num_mistakes, num_examples):
    return _table(sample, 100 * num_mistakes / num_examples, _wilson)


def _with_ends(ends):
    def wrong(sample, num_mistakes, num_examples):
        return _table(sample, 100 * num_mistakes / num_examples, ends)

    return wrong


def _scaled(scale):
    def wrong(sample, num_mistakes, num_examples):
        return _table(sample, scale(len(sample), num_mistakes, num_examples), _wilson)

    return wrong


def _row_by_row(change):
    def wrong(sample, num_mistakes, num_examples):
        table = plain(sample, num_mistakes, num_examples)
        return [{**row, **change(row, sample, num_mistakes, num_examples)} for row in table]

    return wrong


def _rearranged(change):
    def wrong(sample, num_mistakes, num_examples):
        return change(plain(sample, num_mistakes, num_examples), sample)

    return wrong


def _normal(count, n):
    half = 1.96 * math.sqrt(count / n * (1 - count / n) / n)
    return count / n - half, count / n + half


def _clipped(count, n):
    low, high = _normal(count, n)
    return max(low, 0.0), min(high, 1.0)


def exact(sample, num_mistakes, num_examples):
    from scipy.stats import binomtest

    return _table(sample, 100 * num_mistakes / num_examples,
                  lambda count, n: binomtest(count, n).proportion_ci())  # fmt: skip


def _wilson_like(middle, reach, shrink):
    """Wilson's ends with one of the three terms, of p and n, taken wrongly."""

    def ends(count, n):
        share = count / n
        half = reach(share, n) / shrink(n)
        return middle(share, n) / shrink(n) - half, middle(share, n) / shrink(n) + half

    return _with_ends(ends)


Z2 = 1.96**2


def _reach(p, n):
    return 1.96 * math.sqrt(p * (1 - p) / n + Z2 / (4 * n**2))


not_shrunk = _wilson_like(lambda p, n: p + Z2 / (2 * n), _reach, lambda n: 1)
middle_off = _wilson_like(lambda p, n: p + Z2 / n, _reach, lambda n: 1 + Z2 / n)
one_n = _wilson_like(
    lambda p, n: p + Z2 / (2 * n),
    lambda p, n: 1.96 * math.sqrt(p * (1 - p) / n + Z2 / (4 * n)),
    lambda n: 1 + Z2 / n,
)
times_n = _wilson_like(
    lambda p, n: p + Z2 / 2 * n,
    lambda p, n: 1.96 * math.sqrt(p * (1 - p) / n + Z2 / 4 * n**2),
    lambda n: 1 + Z2 / n,
)


def of_all_examples(sample, num_mistakes, num_examples):
    table = plain(sample, num_mistakes, num_examples)
    for row in table:
        row["low"], row["high"] = (100 * end for end in _wilson(row["count"], num_examples))
    return table


def mistakes_of_examples(sample, num_mistakes, num_examples):
    table = plain(sample, num_mistakes, num_examples)
    for row in table:
        count = row["count"] / len(sample) * num_mistakes
        row["low"], row["high"] = (100 * end for end in _wilson(count, num_examples))
    return table


def of_num_mistakes(sample, num_mistakes, num_examples):
    """Shares of all mistakes, though the sample alone was looked at."""
    return _table(sample, 100 * num_mistakes / num_examples, lambda count, n: _wilson(
        count, num_mistakes))  # fmt: skip


def _divided_by_all(row, sample, mistakes, examples):
    low, high = _wilson(row["count"], mistakes)
    points = 100 * mistakes / examples
    gain = points * row["count"] / mistakes
    return {"gain": gain, "low": points * low, "high": points * high}


def with_correction(sample, num_mistakes, num_examples):
    from scipy.stats import binomtest

    def ends(count, n):
        return binomtest(count, n).proportion_ci(method="wilsoncc")

    return _table(sample, 100 * num_mistakes / num_examples, ends)


def _reach_not_shrunk(count, n):
    middle, reach = (count / n + Z2 / (2 * n)) / (1 + Z2 / n), _reach(count / n, n)
    return middle - reach, middle + reach


def _root_of_all(count, n):
    middle = (count / n + Z2 / (2 * n)) / (1 + Z2 / n)
    reach = _reach(count / n, n) / math.sqrt(1 + Z2 / n)
    return middle - reach, middle + reach


def _around_the_share(count, n):
    reach = _reach(count / n, n) / (1 + Z2 / n)
    return count / n - reach, count / n + reach


def empty_is_none(sample, num_mistakes, num_examples):
    return plain(sample, num_mistakes, num_examples) or None


def _of_all_mistakes(sample, num_mistakes, num_examples):
    return _table(sample, 100 * num_mistakes / num_examples, lambda count, n: _wilson(
        count * num_mistakes / n, num_mistakes))  # fmt: skip


def _whole_of_all_mistakes(sample, num_mistakes, num_examples):
    return _table(sample, 100 * num_mistakes / num_examples, lambda count, n: _wilson(
        round(count * num_mistakes / n), num_mistakes))  # fmt: skip


share_of_sample = _scaled(lambda n, mistakes, examples: 100)
sample_is_all = _scaled(lambda n, mistakes, examples: 100 * n / examples)
not_in_points = _scaled(lambda n, mistakes, examples: mistakes / examples)
right_ones = _scaled(lambda n, mistakes, examples: 100 * (examples - mistakes) / examples)
over_the_right = _scaled(lambda n, mistakes, examples: 100 * mistakes / (examples - mistakes))
normal_interval = _with_ends(_normal)
normal_clipped = _with_ends(_clipped)
one_error = _with_ends(lambda count, n: _wilson(count, n, z=1.0))
ninety = _with_ends(lambda count, n: _wilson(count, n, z=1.645))
around_the_gain = _with_ends(
    lambda count, n: (2 * count / n - _wilson(count, n)[1], _wilson(count, n)[1])
)
only_the_gain_is_scaled = _row_by_row(lambda row, sample, mistakes, examples: {
    key: row[key] * examples / mistakes for key in ("low", "high")})  # fmt: skip
divided_by_all = _row_by_row(_divided_by_all)
reach_not_shrunk = _with_ends(_reach_not_shrunk)
root_of_all = _with_ends(_root_of_all)
around_the_share = _with_ends(_around_the_share)
ends_are_shares = _row_by_row(lambda row, sample, mistakes, examples: {
    key: row[key] * examples / mistakes / 100 for key in ("low", "high")})  # fmt: skip
counts_of_all = _row_by_row(lambda row, sample, mistakes, _: {
    "count": row["count"] * mistakes // len(sample)})  # fmt: skip
gain_of_the_sample = _row_by_row(lambda row, sample, mistakes, examples: {
    "gain": 100 * row["count"] / examples})  # fmt: skip
gain_is_the_share = _row_by_row(lambda row, sample, mistakes, examples: {
    "gain": 100 * row["count"] / len(sample)})  # fmt: skip
gain_in_the_middle = _row_by_row(lambda row, *_: {"gain": (row["low"] + row["high"]) / 2})
ends_swapped = _row_by_row(lambda row, *_: {"low": row["high"], "high": row["low"]})
rounded = _row_by_row(lambda row, *_: {k: round(row[k], 1) for k in ("gain", "low", "high")})
to_two_decimals = _row_by_row(
    lambda row, *_: {k: round(row[k], 2) for k in ("gain", "low", "high")}
)
share_for_count = _row_by_row(lambda row, sample, *_: {"count": row["count"] / len(sample)})
as_met = _rearranged(lambda rows, sample: sorted(rows, key=lambda r: sample.index(r["bucket"])))
by_name = _rearranged(lambda rows, sample: sorted(rows, key=lambda r: r["bucket"]))
smallest_first = _rearranged(lambda rows, sample: rows[::-1])
ties_as_met = _rearranged(lambda rows, sample: sorted(
    rows, key=lambda r: (-r["count"], sample.index(r["bucket"]))))  # fmt: skip
ties_backwards = _rearranged(
    lambda rows, sample: sorted(rows, key=lambda r: (r["count"], r["bucket"]), reverse=True)
)
ascending = _rearranged(lambda rows, sample: sorted(rows, key=lambda r: (r["count"], r["bucket"])))
largest_alone = _rearranged(lambda rows, sample: rows[:1])
without_singles = _rearranged(lambda rows, sample: [row for row in rows if row["count"] > 1])


def with_scipy(sample, num_mistakes, num_examples):
    from scipy import stats

    rows = []
    for name, count in sorted(Counter(sample).items(), key=lambda pair: (-pair[1], pair[0])):
        found = stats.binomtest(count, len(sample)).proportion_ci(method="wilson")
        points = 100 * num_mistakes / num_examples
        rows.append(dict(bucket=name, count=count, gain=points * count / len(sample),
                         low=points * found.low, high=points * found.high))  # fmt: skip
    return rows


def with_tensors(sample, num_mistakes, num_examples):
    if not sample:
        return []
    names = sorted(set(sample))
    counts = torch.tensor([sample.count(name) for name in names], dtype=torch.float64)
    n, z2 = len(sample), 1.96**2
    share = counts / n
    half = (z2 * (share * (1 - share) * n + z2 / 4)).sqrt() / (n + z2)
    middle = (counts + z2 / 2) / (n + z2)
    points = 100.0 * num_mistakes / num_examples
    table = [{"bucket": name, "count": counts[i].long(), "gain": points * share[i],
              "low": points * (middle[i] - half[i]), "high": points * (middle[i] + half[i])}
             for i, name in enumerate(names)]  # fmt: skip
    return sorted(table, key=lambda row: -int(row["count"]))


def by_its_roots(sample, num_mistakes, num_examples):
    """The shares whose own normal interval just reaches what was seen: roots of a quadratic."""
    import numpy as np

    rows, n = [], len(sample)
    while sample:
        name = min(set(sample), key=lambda one: (-sample.count(one), one))
        count = sample.count(name)
        p = count / n
        roots = np.roots([1 + 1.96**2 / n, -(2 * p + 1.96**2 / n), p * p]).real
        gain, low, high = (100 * num_mistakes / num_examples * x for x in (p, *sorted(roots)))
        rows.append({"high": high, "low": low, "gain": gain, "count": count, "bucket": name})
        sample = [other for other in sample if other != name]
    return rows


EXERCISE = Exercise(
    id="03f.buckets",
    title="a table of buckets, from a sample",
    source='Lecture 3, "Error analysis · categorize, then prioritize"',
    ledger=("N24", "S19", "T28"),
    minutes=20,
    difficulty=2,
    read=("N24", "course.analysis.errors"),
    hints=(
        "Three counts matter: the sample, all mistakes, all examples. Which of them gives a "
        "bucket's share, and which two turn that share into points?",
        "The sample tells you what share of the mistakes a bucket holds. The error rate of the "
        "whole validation set turns a share into points, and the ends of the interval are shares "
        "too.",
        "points = 100 * num_mistakes / num_examples multiplies share, low and high alike, and "
        "sorted(..., key=lambda name: (-counts[name], name)) gives the order.",
    ),
    signature="bucket_table(sample, num_mistakes, num_examples)",
    parts=(
        Part("order", "buckets in order, with counts; three are equally large", points=1,
             cases=3, fields=("names", "count", "disturbed")),
        Part("gain", "the ceiling of each bucket in points", points=1, cases=3, fields=("gain",)),
        Part("interval", "the interval of each ceiling", points=1, cases=3,
             fields=("low", "high")),
        Part("edges", "a sample of one bucket, and an empty one", points=1, hidden=True),
    ),
    reference=reference,
    draw=draw,
    run=run,
    tolerance={torch.float32: (WIDE, WIDE)},
    says={
        "names": "the buckets in the table's order",
        "count": "the count of",
        "gain": "the ceiling of",
        "low": "the lower end of",
        "high": "the upper end of",
    },
    wrong=(
        Wrong("share-of-sample", share_of_sample,
              "The ceilings and interval ends are shares of the mistakes, in percent. Points of "
              "accuracy are relative to all examples: multiply by the error rate."),
        Wrong("gain-is-the-share", gain_is_the_share,
              "The ceiling is a share of the sample, in percent. Points of accuracy are that share "
              "times the error rate."),
        Wrong("sample-is-all", sample_is_all,
              "That treats the sample as all of the mistakes. Mistakes outside the sample count "
              "too: multiply a bucket's share by num_mistakes / num_examples."),
        Wrong("gain-of-the-sample", gain_of_the_sample,
              "The ceiling counts only the sample's mistakes. The bucket has the same share of all "
              "num_mistakes."),
        Wrong("not-in-points", not_in_points,
              "These are right as shares of all examples, but points are 100 times that."),
        Wrong("right-ones", right_ones,
              "That multiplies the bucket's share by the accuracy. Only mistakes can be won back: "
              "multiply by the error rate."),
        Wrong("over-the-right", over_the_right,
              "The mistakes were divided by the number of correct examples. The error rate is "
              "num_mistakes / num_examples."),
        Wrong("normal-interval", normal_interval,
              "Those are the ends p ± 1.96 √(p(1 − p)/n), which are too narrow for small buckets. "
              "Use Wilson's interval."),
        Wrong("normal-clipped", normal_clipped,
              "Those are the ends p ± 1.96 √(p(1 − p)/n), cut off at 0 and 1. Use Wilson's "
              "interval."),
        Wrong("one-error", one_error,
              "Those are Wilson's ends for z = 1, about 68 %. For 95 % z is 1.96."),
        Wrong("ninety", ninety, "Those are Wilson's ends for 90 %. For 95 % z is 1.96."),
        Wrong("exact", exact,
              "Those are the ends of the exact interval (Clopper and Pearson), which is wider. Use "
              "Wilson's."),
        Wrong("not-shrunk", not_shrunk,
              "The ends are 1 + z²/n times too large. Divide both the midpoint and the half-width "
              "by that."),
        Wrong("middle", middle_off,
              "The midpoint is (p + z²/n) / (1 + z²/n). Add z²/2n to p, not z²/n."),
        Wrong("times-n", times_n,
              "Those are the ends with z²·n/2 and z²·n²/4: in Python a / 2 * n multiplies by n. "
              "Put 2 * n and 4 * n**2 in parentheses."),
        Wrong("of-all-examples", of_all_examples,
              "The ends are those of the count among all examples. Take Wilson's ends of the "
              "bucket's share of the sample; the error rate turns them into points."),
        Wrong("mistakes-of-examples", mistakes_of_examples,
              "The ends are those of a count of mistakes among all examples. What is uncertain is "
              "the share in the sample: take Wilson's ends of that, then convert them to points."),
        Wrong("gain-in-the-middle", gain_in_the_middle,
              "The gain is the midpoint of the interval. It should be the bucket's own share, in "
              "points, which lies nearer to one end."),
        Wrong("divided-by-all", divided_by_all,
              "The counts of the sample were divided by num_mistakes. Divide by len(sample): "
              "mistakes outside the sample are not in any bucket yet."),
        Wrong("of-num-mistakes", of_num_mistakes,
              "The ends are those of the sample's count among num_mistakes. The share is one of "
              "the sample, so n is len(sample)."),
        Wrong("with-correction", with_correction,
              "Those are Wilson's ends with a continuity correction, which are wider. Use the ends "
              "without it: method='wilson'."),
        Wrong("reach-not-shrunk", reach_not_shrunk,
              "The midpoint is right, but the half-width was not divided by 1 + z²/n."),
        Wrong("root-of-all", root_of_all,
              "The midpoint is right, but in the half-width 1 + z²/n was put under the root. Only "
              "the two terms of the numerator belong there."),
        Wrong("around-the-share", around_the_share,
              "The ends are centred on the bucket's own share. Wilson's are centred on (p + z²/2n) "
              "/ (1 + z²/n)."),
        Wrong("ends-are-shares", ends_are_shares,
              "The ends are shares of the mistakes, between 0 and 1. Convert them to points like "
              "the gain."),
        Wrong("counts-of-all", counts_of_all,
              'The counts are scaled up to all mistakes. "count" is how many of the sample are in '
              "the bucket."),
        Wrong("to-two-decimals", to_two_decimals,
              "Those are rounded to two decimals. Return them unrounded."),
        Wrong("ascending", ascending,
              "The counts increase from row to row. The largest comes first: sort by (-count, "
              "name)."),
        Wrong("one-n", one_n,
              "The interval has z²/4n under the root. It should be z²/4n²: n is squared."),
        Wrong("empty-is-none", empty_is_none),
        Wrong("around-the-gain", around_the_gain,
              "The upper ends are right, but the lower ends lie equally far below the share. "
              "Wilson's interval is not symmetric around the share."),
        Wrong("only-the-gain-is-scaled", only_the_gain_is_scaled,
              "The ends are shares of the mistakes, in percent. Convert them to points like the "
              "gain."),
        Wrong("of-all-mistakes", _of_all_mistakes,
              "The interval is the one for a sample of num_mistakes mistakes. Here n is the length "
              "of the sample."),
        Wrong("of-all-mistakes", _whole_of_all_mistakes),
        Wrong("ends-swapped", ends_swapped, "The two ends are swapped."),
        Wrong("rounded", rounded, "Those are rounded to one decimal. Return them unrounded."),
        Wrong("share-for-count", share_for_count),
        Wrong("as-met", as_met,
              "The buckets are in the order in which they occur in the sample. Sort them by "
              "count."),
        Wrong("by-name", by_name,
              "The buckets are in alphabetical order. The largest comes first; the alphabet only "
              "decides between equal counts."),
        Wrong("smallest-first", smallest_first, "The order is reversed: the largest bucket comes "
                                                "first."),
        Wrong("ties-as-met", ties_as_met,
              "The counts decrease as they should, but buckets with equal counts are in the order "
              "of the sample. Sort those by name: (-count, name)."),
        Wrong("ties-backwards", ties_backwards,
              "The counts decrease as they should, but buckets with equal counts are in reverse "
              "alphabetical order. reverse=True reverses the names too: sort by (-count, name)."),
        Wrong("largest-alone", largest_alone, "That is only the row of the largest bucket."),
        Wrong("without-singles", without_singles,
              "Buckets with a single mistake are missing. Each bucket of the sample has a row."),
        *common(plain, "returns-none", "returns-text", "changes-data"),
    ),
    right=(plain, with_scipy, with_tensors, by_its_roots),
)  # fmt: skip
