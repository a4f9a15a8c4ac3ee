"""Error analysis: an ablation, mistakes counted by bucket, and a ceiling for each stage."""

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import chain, repeat

from course.worked.registry import worked
from course.worked.step import Step


def _exact(value: float) -> Fraction:
    """The decimal as printed: 84.1 is 841/10, not its nearest double."""
    return Fraction(str(value))


@worked(
    "N23",
    title="An ablation of two changes",
    tells="interaction",
    perturb={"both": 85.0},
)
def ablation(
    baseline: float = 82.0, augmented: float = 84.1, bigger: float = 82.4, both: float = 84.0
) -> Iterator[Step]:
    """The gain of each change alone, of both, of one given the other, and their interaction."""
    base, aug, big, two = (_exact(v) for v in (baseline, augmented, bigger, both))
    yield Step("augmentation", float(aug - base), formula=f"{augmented} − {baseline}")
    yield Step("bigger model", float(big - base), formula=f"{bigger} − {baseline}")
    yield Step("both", float(two - base), formula=f"{both} − {baseline}")
    yield Step(
        "bigger model, given augmentation", float(two - aug), formula=f"{both} − {augmented}"
    )
    interaction = (two - base) - (aug - base) - (big - base)
    parts = " − ".join(f"{float(gain - base):g}" for gain in (two, aug, big))
    yield Step("interaction", float(interaction), formula=parts)


BUCKETS = (
    ("stroke variability", 32),
    ("4↔9 confusion", 28),
    ("rotation", 18),
    ("label noise", 14),
    ("blur", 8),
)


@worked(
    "N24",
    title="A hundred mistakes in five buckets",
    perturb={"accuracy": 90.0},
    reconstructed=(
        "Only the figure's title is left; the counts are from the figure in an earlier public "
        "version and may have changed since."
    ),
    figure="error_buckets",
)
def error_buckets(
    buckets: tuple[tuple[str, int], ...] = BUCKETS, accuracy: float = 82.0
) -> Iterator[Step]:
    """The most that each bucket could gain, and the uncertainty of its share."""
    total = sum(count for _, count in buckets)
    yield Step("mistakes sorted", total, rebuilt=100, formula="Σ counts")
    gains = ceiling_gains(buckets, accuracy)
    yield Step("most points to gain", gains, formula="(100 − accuracy) · share")
    two = buckets[0][1] + buckets[2][1]
    yield Step("first and third bucket, mistakes", two)
    product = f"{100 - accuracy:g} · {two / total:.2f}"
    yield Step("first and third bucket, points", gains[0] + gains[2], formula=product)
    share = buckets[0][1] / total
    half_width = 100 * 1.96 * math.sqrt(share * (1 - share) / total)
    yield Step("first bucket: 95 % half-width", half_width, formula="1.96 √(p (1 − p) / n)")


def ceiling_gains(buckets: tuple[tuple[str, int], ...], accuracy: float) -> list[float]:
    """Points of accuracy to gain if all mistakes in a bucket were fixed, for each bucket."""
    total = sum(count for _, count in buckets)
    return [float((100 - _exact(accuracy)) * count / total) for _, count in buckets]


STAGES = (("detector", 83.0), ("character classifier", 91.0), ("spell-correct", 83.0))


@worked(
    "N25",
    title="The ceiling of each stage",
    perturb={"baseline": 81.0},
    reconstructed=(
        "Only the figure's title is left; the numbers are from the figure in an earlier public "
        "version and may have changed since."
    ),
    figure="ceiling",
)
def ceiling_analysis(
    stages: tuple[tuple[str, float], ...] = STAGES, baseline: float = 82.0, all_true: float = 100.0
) -> Iterator[Step]:
    """Accuracy with one stage replaced by the truth, and the gain that no single stage explains."""
    gains = [_exact(accuracy) - _exact(baseline) for _, accuracy in stages]
    known_gains = chain((1.0, 9.0, 1.0), repeat(None))
    for (name, _), gain, known in zip(stages, gains, known_gains, strict=False):
        yield Step(f"{name} perfect", float(gain), rebuilt=known, formula="accuracy − baseline")
    together = _exact(all_true) - _exact(baseline)
    added = " + ".join(f"{float(gain):g}" for gain in gains)
    yield Step("sum of the single gains", float(sum(gains)), formula=added)
    yield Step(
        "gain if all are replaced at once", float(together), formula=f"{all_true:g} − {baseline:g}"
    )
    rest = f"{float(together):g} − {float(sum(gains)):g}"
    yield Step("interaction", float(together - sum(gains)), formula=rest)
