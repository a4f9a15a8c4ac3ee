"""03f.paired: two settings compared seed by seed, with Student's interval and a verdict."""

from __future__ import annotations

import math
import statistics
from typing import Any

import torch

from autograde.bank.common_wrong import common
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
from course.analysis.ablation import paired_interval

LEVELS = (0.9, 0.99, 0.95)
VERDICTS = ("better", "unclear", "worse", "unclear", "better", "worse")
"""What the cases of the verdict's part come to; higher is better in those of `HIGHER`."""
MANY = 125
"""Shared seeds, at least, in the last case of the interval's part: more than tables of t list. The
normal quantile is still 0.8 % smaller."""
HIGHER = (0, 1, 5)
"""So that of both verdicts one comes from an interval above 0 and one from an interval below."""


def draw(source: Draw, part: str) -> Case:
    """Scores by seed, in an order of its own for each of the two; the seeds' luck is shared.

    The mean difference is twice as far from 0 as the interval reaches, or 0.6 times as far. At a
    level of 0.99 and four seeds all differences are then on one side, and still all is unclear.
    `shared`: each of the two has seeds that the other lacks.
    """
    from scipy.stats import t

    count, level = source.integer(4, 7), LEVELS[source.index % len(LEVELS)]
    verdict = VERDICTS[(source.index + (part == "interval")) % len(VERDICTS)]
    if part == "verdict" and source.index == 1:
        count = 4
    if part == "interval" and source.index == 2:
        count = 2
    if part == "interval" and source.index == 3:
        count = source.integer(MANY, MANY + 20)
    higher = source.index in HIGHER if part == "verdict" else bool(source.index % 2)
    z = source.normal(count).double()
    z = (z - z.mean()) / z.std()
    spread = source.uniform(0.2, 0.6)
    reach = float(t.ppf((1 + level) / 2, count - 1)) * spread / math.sqrt(count)
    good = verdict == "better" or source.index == 1
    side = 1 if good == higher else -1
    mean = side * reach * (2.0 if verdict != "unclear" else 0.6)
    luck = 80 + 3 * source.normal(count).double()
    seeds = source.shuffled(range(max(40, 2 * count)))
    base = {seed: float(x) for seed, x in zip(seeds[:count], luck, strict=True)}
    other = {seed: float(x + mean + spread * d) for seed, x, d in
             zip(seeds[:count], luck, z, strict=True)}  # fmt: skip
    if part == "shared":
        base |= {seed: 80 + source.uniform(4, 9) for seed in seeds[count : count + 2]}
        other |= {seed: 80 - source.uniform(4, 9) for seed in seeds[count + 2 : count + 3]}
    return {"baseline": _mixed(source, base), "variant": _mixed(source, other), "level": level,
            "higher": higher}  # fmt: skip


def _mixed(source: Draw, scores: dict[int, float]) -> list[list[float]]:
    """Pairs of seed and score in an order of their own."""
    return [[seed, scores[seed]] for seed in source.shuffled(list(scores))]


def run(function, case: Case, device: torch.device) -> Answer:
    """Difference, ends, verdict."""
    baseline, variant = dict(case["baseline"]), dict(case["variant"])
    watch = Watch(data={"baseline": baseline, "variant": variant})
    returned = function(baseline, variant, case["level"], case["higher"])
    wanted = {
        "difference": (as_number, "the mean difference"),
        "low": (as_number, "the lower end"),
        "high": (as_number, "the upper end"),
        "verdict": (as_text, "the verdict"),
    }
    return {**kept_entries(returned, wanted), "disturbed": watch.changed()}


def _shared(baseline, variant) -> list[float]:
    return [variant[seed] - baseline[seed] for seed in baseline if seed in variant]


def _side(low, high, higher_is_better) -> str:
    low, high = (low, high) if higher_is_better else (-high, -low)
    return "better" if low > 0 else "worse" if high < 0 else "unclear"


def _said(difference, low, high, higher_is_better) -> dict[str, Any]:
    return {"difference": difference, "low": low, "high": high,
            "verdict": _side(low, high, higher_is_better)}  # fmt: skip


def reference(baseline, variant, level, higher_is_better):
    """scipy's paired t-test."""
    from scipy.stats import ttest_rel

    seeds = sorted(set(baseline) & set(variant))
    found = ttest_rel([variant[s] for s in seeds], [baseline[s] for s in seeds])
    low, high = found.confidence_interval(level)
    difference = statistics.fmean(_shared(baseline, variant))
    return _said(difference, float(low), float(high), higher_is_better)


def _quantile(level, freedom):
    from scipy.stats import t

    return float(t.ppf((1 + level) / 2, freedom))


def _wrong_reach(reach, middle=statistics.fmean):
    """Symmetric around the middle of the shared differences, with another reach."""

    def wrong(baseline, variant, level, higher_is_better):
        each = _shared(baseline, variant)
        half = reach(each, level)
        center = middle(each)
        return _said(center, center - half, center + half, higher_is_better)

    return wrong


def _error(each):
    return statistics.stdev(each) / math.sqrt(len(each))


plain = _wrong_reach(lambda d, level: _quantile(level, len(d) - 1) * _error(d))
normal_quantile = _wrong_reach(
    lambda d, level: statistics.NormalDist().inv_cdf((1 + level) / 2) * _error(d)
)
normal_from_30_on = _wrong_reach(
    lambda d, level: (
        _error(d)
        * (
            statistics.NormalDist().inv_cdf((1 + level) / 2)
            if len(d) >= 30
            else _quantile(level, len(d) - 1)
        )
    )
)
always_two = _wrong_reach(lambda d, level: 1.96 * _error(d))
always_95 = _wrong_reach(lambda d, level: _quantile(0.95, len(d) - 1) * _error(d))
one_sided = _wrong_reach(lambda d, level: _quantile(2 * level - 1, len(d) - 1) * _error(d))
no_root = _wrong_reach(lambda d, level: _quantile(level, len(d) - 1) * statistics.stdev(d))
over_n = _wrong_reach(lambda d, level: _quantile(level, len(d) - 1) * statistics.stdev(d) / len(d))
population = _wrong_reach(
    lambda d, level: _quantile(level, len(d) - 1) * statistics.pstdev(d) / math.sqrt(len(d))
)
n_degrees = _wrong_reach(lambda d, level: _quantile(level, len(d)) * _error(d))
one_error = _wrong_reach(lambda d, level: _error(d))
other_tail = _wrong_reach(lambda d, level: _quantile(1 - level, len(d) - 1) * _error(d))
ends_swapped_and_judged = _wrong_reach(lambda d, level: -_quantile(level, len(d) - 1) * _error(d))
around_the_median = _wrong_reach(
    lambda d, level: _quantile(level, len(d) - 1) * _error(d), statistics.median
)


def ends_swapped(baseline, variant, level, higher_is_better):
    said = ends_swapped_and_judged(baseline, variant, level, higher_is_better)
    return said | {"verdict": plain(baseline, variant, level, higher_is_better)["verdict"]}


def _as_two_groups(shared, **options):
    """Ends for two independent groups, of the shared seeds or of all that each has."""

    def wrong(baseline, variant, level, higher_is_better):
        from scipy.stats import ttest_ind

        seeds = [seed for seed in baseline if seed in variant]
        groups = ([variant[s] for s in seeds], [baseline[s] for s in seeds]) if shared else (
            list(variant.values()), list(baseline.values()))  # fmt: skip
        low, high = ttest_ind(*groups, **options).confidence_interval(level)
        difference = statistics.fmean(groups[0]) - statistics.fmean(groups[1])
        return _said(difference, float(low), float(high), higher_is_better)

    return wrong


own_seeds = _as_two_groups(shared=True)
welch = _as_two_groups(shared=True, equal_var=False)
means_of_all = _as_two_groups(shared=False)
welch_of_all = _as_two_groups(shared=False, equal_var=False)


def errors_of_all(baseline, variant, level, higher_is_better):
    """Each group has its own standard error, and their degrees of freedom are added."""
    groups = list(variant.values()), list(baseline.values())
    center = statistics.fmean(groups[0]) - statistics.fmean(groups[1])
    freedom = len(groups[0]) + len(groups[1]) - 2
    half = _quantile(level, freedom) * math.hypot(*map(_error, groups))
    return _said(center, center - half, center + half, higher_is_better)


def errors_of_all_around_the_pairs(baseline, variant, level, higher_is_better):
    """The same two errors, around the mean of the shared differences, with their number."""
    each = _shared(baseline, variant)
    spread = math.hypot(*map(statistics.stdev, (baseline.values(), variant.values())))
    half = _quantile(level, 2 * len(each) - 2) * spread / math.sqrt(len(each))
    center = statistics.fmean(each)
    return _said(center, center - half, center + half, higher_is_better)


def _renamed(baseline, variant):
    """Both with their places for seeds: pairs by position."""
    pairs = list(zip(baseline.values(), variant.values(), strict=False))
    return dict(enumerate(a for a, _ in pairs)), dict(enumerate(b for _, b in pairs))


def by_position(baseline, variant, level, higher_is_better):
    return plain(*_renamed(baseline, variant), level, higher_is_better)


def all_seeds_in_the_mean(baseline, variant, level, higher_is_better):
    said = plain(baseline, variant, level, higher_is_better)
    means = statistics.fmean(variant.values()), statistics.fmean(baseline.values())
    return said | {"difference": means[0] - means[1]}


def missing_as_zero(baseline, variant, level, higher_is_better):
    seeds = {**baseline, **variant}
    filled = [{seed: scores.get(seed, 0.0) for seed in seeds} for scores in (baseline, variant)]
    return plain(*filled, level, higher_is_better)


def by_sorted_place(baseline, variant, level, higher_is_better):
    ordered = [{seed: scores[seed] for seed in sorted(scores)} for scores in (baseline, variant)]
    return plain(*_renamed(*ordered), level, higher_is_better)


def n_of_the_baseline(baseline, variant, level, higher_is_better):
    each, n = _shared(baseline, variant), len(baseline)
    half = _quantile(level, n - 1) * statistics.stdev(each) / math.sqrt(n)
    center = statistics.fmean(each)
    return _said(center, center - half, center + half, higher_is_better)


def ends_turned(baseline, variant, level, higher_is_better):
    said = plain(baseline, variant, level, higher_is_better)
    turned = {"low": -said["high"], "high": -said["low"]}
    return said if higher_is_better else said | turned


def baseline_less_variant(baseline, variant, level, higher_is_better):
    said = plain(variant, baseline, level, higher_is_better)
    return said | {"verdict": plain(baseline, variant, level, higher_is_better)["verdict"]}


def all_turned_round(baseline, variant, level, higher_is_better):
    return plain(variant, baseline, level, higher_is_better)


def turned_where_lower_is_better(baseline, variant, level, higher_is_better):
    if higher_is_better:
        return plain(baseline, variant, level, True)
    return plain(variant, baseline, level, True)


def higher_always_better(baseline, variant, level, higher_is_better):
    return plain(baseline, variant, level, True)


def in_percent(baseline, variant, level, higher_is_better):
    percent = {s: 100 * variant[s] / baseline[s] for s in baseline if s in variant}
    return plain(dict.fromkeys(percent, 100.0), percent, level, higher_is_better)


def verdict_at_95(baseline, variant, level, higher_is_better):
    said = plain(baseline, variant, level, higher_is_better)
    return said | {"verdict": plain(baseline, variant, 0.95, higher_is_better)["verdict"]}


def difference_turned(baseline, variant, level, higher_is_better):
    said = plain(baseline, variant, level, higher_is_better)
    sign = 1 if higher_is_better else -1
    return said | {"difference": sign * said["difference"]}


def every_seed(baseline, variant, level, higher_is_better):
    return plain(baseline, {seed: variant[seed] for seed in baseline}, level, higher_is_better)


def _verdict(judge):
    def wrong(baseline, variant, level, higher_is_better):
        said = plain(baseline, variant, level, higher_is_better)
        sign = 1 if higher_is_better else -1
        each = [sign * d for d in _shared(baseline, variant)]
        return said | {"verdict": judge(each, said)}

    return wrong


sign_decides = _verdict(lambda d, said: "better" if statistics.fmean(d) > 0 else "worse")
majority = _verdict(
    lambda d, said: "better" if 2 * sum(x > 0 for x in d) > len(d) else "worse"
)  # fmt: skip
all_or_none = _verdict(lambda d, said: "better" if min(d) > 0 else "worse" if max(d) < 0
                       else "unclear")  # fmt: skip
always_unclear = _verdict(lambda d, said: "unclear")
other_words = _verdict(
    lambda d, said: {"better": "likely useful", "worse": "harmful"}.get(
        said["verdict"], "within noise")
)  # fmt: skip
not_better_is_worse = _verdict(
    lambda d, said: "better" if said["verdict"] == "better" else "worse"
)  # fmt: skip


def below_is_unclear(baseline, variant, level, higher_is_better):
    said = plain(baseline, variant, level, higher_is_better)
    word = "better" if higher_is_better else "worse"
    return said | {"verdict": word if said["low"] > 0 else "unclear"}


def relative(baseline, variant, level, higher_is_better):
    change = {s: variant[s] / baseline[s] - 1 for s in baseline if s in variant}
    return plain(dict.fromkeys(change, 0.0), change, level, higher_is_better)


def ends_from_zero(baseline, variant, level, higher_is_better):
    said = plain(baseline, variant, level, higher_is_better)
    half = said["high"] - said["difference"]
    return said | {"low": -half, "high": half}


def with_numpy(baseline, variant, level, higher_is_better):
    import numpy as np
    from scipy import stats

    d = np.array([variant[s] - baseline[s] for s in set(baseline) & set(variant)])
    low, high = stats.t.interval(level, len(d) - 1, loc=d.mean(), scale=stats.sem(d))
    sign = 1 if higher_is_better else -1
    side = "better" if min(sign * low, sign * high) > 0 else "unclear"
    side = "worse" if max(sign * low, sign * high) < 0 else side
    return dict(difference=d.mean(), low=low, high=high, verdict=side)


def with_tensors(baseline, variant, level, higher_is_better):
    each = torch.tensor(_shared(baseline, variant), dtype=torch.float64)
    reach = each.std() / len(each) ** 0.5 * _quantile(level, len(each) - 1)
    clear = each.mean().abs() > reach
    good = (each.mean() > 0) == higher_is_better
    verdict = ("better" if good else "worse") if clear else "unclear"
    return {"verdict": verdict, "difference": each.mean(), "low": each.mean() - reach,
            "high": each.mean() + reach}  # fmt: skip


def with_one_sample(baseline, variant, level, higher_is_better):
    from scipy.stats import ttest_1samp

    test = ttest_1samp(_shared(baseline, variant), 0)
    low, high = test.confidence_interval(confidence_level=level)
    verdict = "unclear"
    if test.pvalue < 1 - level:
        verdict = "better" if (test.statistic > 0) == higher_is_better else "worse"
    return {"difference": (low + high) / 2, "low": low, "high": high, "verdict": verdict}


EXERCISE = Exercise(
    id="03f.paired",
    title="better, worse or unclear",
    source='Lecture 3, "Ablation discipline"',
    ledger=("T27", "N23"),
    minutes=15,
    difficulty=2,
    read=("T27", "course.analysis.ablate"),
    hints=(
        "What luck do two runs with the same seed share, and how do you cancel it?",
        "Take one difference per shared seed, then their mean and standard deviation. Student's t "
        "depends on n − 1 and on the level that is passed in.",
        "reach = scipy.stats.t.ppf((1 + level) / 2, n - 1) * stdev(d) / n**0.5; the verdict "
        "follows from the side of 0 on which the whole interval lies, reversed if lower is better.",
    ),
    signature="compare(baseline, variant, level, higher_is_better)",
    parts=(
        Part("difference", "the mean difference", points=1, cases=3,
             fields=("difference", "disturbed")),
        Part("interval", "Student's interval, at any level", points=1, cases=4,
             fields=("low", "high")),
        Part("verdict", "better, worse or unclear, whether higher or lower is "
                        "better", points=1, cases=6,
             fields=("verdict",)),
        Part("shared", "seeds that only one of the two has", points=1, cases=3, hidden=True),
    ),
    reference=reference,
    draw=draw,
    run=run,
    by_hand=(paired_interval,),
    says={"difference": "the mean difference", "low": "the lower end", "high": "the upper end",
          "verdict": "the verdict"},
    wrong=(
        Wrong("baseline-less-variant", baseline_less_variant,
              "The difference and the ends have the wrong sign: subtract the baseline from the "
              "variant."),
        Wrong("all-turned-round", all_turned_round,
              "Everything is reversed, including the verdict: baseline and variant are swapped."),
        Wrong("turned-where-lower-is-better", turned_where_lower_is_better,
              "The verdict is right. But where lower is better, the difference and the ends have "
              "the wrong sign: they are always variant minus baseline.", sure=True),
        Wrong("own-seeds", own_seeds,
              "Those are the ends for two independent groups. Here each seed has two scores: first "
              "take the differences seed by seed."),
        Wrong("own-seeds", welch),
        Wrong("own-seeds", means_of_all),
        Wrong("own-seeds", welch_of_all),
        Wrong("own-seeds", errors_of_all),
        Wrong("own-seeds", errors_of_all_around_the_pairs),
        Wrong("ends-swapped", ends_swapped,
              "The lower end is above the upper one: they are swapped. The lower end is the mean "
              "minus t·s/√n.", sure=True),
        Wrong("ends-swapped", ends_swapped_and_judged, sure=True),
        Wrong("by-position", by_position,
              "The scores were paired by their position in the dictionaries. Pair them by seed: "
              "variant[seed] - baseline[seed]."),
        Wrong("normal-quantile", normal_quantile,
              "Those are the ends with the quantile of the normal distribution. With so few seeds, "
              "use Student's t, which is larger."),
        Wrong("normal-for-many", normal_from_30_on,
              "For many seeds, those are the ends with the quantile of the normal distribution. "
              "Student's t is still larger there: use it whatever the number of seeds.", sure=True),
        Wrong("always-two", always_two,
              "The ends are 1.96 standard errors away, whatever the level and the number of seeds. "
              "Student's t takes both: t.ppf((1 + level) / 2, n - 1)."),
        Wrong("always-95", always_95,
              "Those are the ends at 95 %. The level is an argument, and it varies."),
        Wrong("one-sided", one_sided,
              "Those are the ends with t.ppf(level). A share of 1 - level lies outside, counting "
              "both sides: t.ppf((1 + level) / 2)."),
        Wrong("no-root", no_root,
              "Those are the ends for a single difference. The mean of n varies √n times less."),
        Wrong("over-n", over_n,
              "The standard deviation was divided by n. The error of a mean falls with √n."),
        Wrong("population", population,
              "The standard deviation divides by n. For a sample, divide by n − 1: use "
              "statistics.stdev, or ddof=1."),
        Wrong("n-degrees", n_degrees,
              "Those are the ends with n degrees of freedom. The mean was estimated too, so use n "
              "− 1."),
        Wrong("one-error", one_error,
              "Those ends are one standard error from the mean. Student's t for the level is "
              "missing."),
        Wrong("around-the-median", around_the_median,
              "That is the median of the differences. Return their mean."),
        Wrong("below-is-unclear", below_is_unclear,
              "An interval that lies entirely below 0 was called unclear. It is as conclusive as "
              "one above 0."),
        Wrong("relative", relative,
              "The differences are relative to the baseline's scores. Use plain differences: "
              "variant minus baseline."),
        Wrong("ends-from-zero", ends_from_zero,
              "The ends are centred on 0. Centre them on the mean difference."),
        Wrong("higher-always-better", higher_always_better,
              "The difference and the ends are right. But the verdict treats higher as better in "
              "every case: look at higher_is_better."),
        Wrong("never-unclear", sign_decides,
              "The verdict was never 'unclear', even where the interval contains 0. The side that "
              "the mean or most seeds are on does not decide it."),
        Wrong("never-unclear", majority),
        Wrong("never-unclear", not_better_is_worse),
        Wrong("all-or-none", all_or_none),
        Wrong("always-unclear", always_unclear,
              "The verdict was 'unclear' in every case, even where the interval does not contain "
              "0."),
        Wrong("other-words", other_words),
        Wrong("all-seeds-in-the-mean", all_seeds_in_the_mean,
              "Where a seed is missing, the difference is between two means, each over all the "
              "seeds of its own setting. Use only the shared seeds."),
        Wrong("in-percent", in_percent,
              "The differences are percentages of the baseline's scores. Use plain differences: "
              "variant minus baseline."),
        Wrong("other-tail", other_tail,
              "Those are the ends with t.ppf(1 - level / 2). A share of 1 - level lies outside, "
              "half of it on each side: t.ppf((1 + level) / 2)."),
        Wrong("verdict-at-95", verdict_at_95),
        Wrong("difference-turned-where-lower-is-better", difference_turned),
        Wrong("every-seed-of-the-baseline", every_seed),
        Wrong("missing-as-zero", missing_as_zero,
              "Where only one of the two has a seed, the other's score was taken as 0. Leave out "
              "such seeds."),
        Wrong("by-sorted-place", by_sorted_place,
              "Scores were paired in the order of each dictionary's seeds. After a seed that one "
              "of them lacks, the two scores of a pair come from different seeds: pair by seed."),
        Wrong("n-of-the-baseline", n_of_the_baseline,
              "The interval uses the number of seeds in baseline as n. n is the number of shared "
              "seeds."),
        Wrong("ends-turned", ends_turned,
              "Where lower is better, the ends have the opposite sign but the difference does not. "
              "The ends always lie around the difference.", sure=True),
        *common(plain, "returns-none", "returns-text"),
    ),
    right=(plain, with_numpy, with_tensors, with_one_sample),
)  # fmt: skip
