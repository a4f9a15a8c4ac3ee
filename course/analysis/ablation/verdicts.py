"""The effect of a change: its difference for each seed, the interval, and the verdict.

Seeds are paired: a change is judged by how far it moves the metric *with the same seed*, which
removes the luck that both runs share.

Source: Lecture 3, "Ablation"; ledger N23, T27.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from course.analysis.ablation.files import AblationRun
from course.analysis.ablation.plan import Settings, parts_of

LEVEL = 0.95
"""Joint confidence of all intervals of a table."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One variant against the baseline."""

    name: str
    change: str
    """Settings that differ from the baseline's."""
    values: dict[int, float | None]
    """The metric by seed; None if the run diverged."""
    mean: float | None
    differences: dict[int, float]
    """Variant minus baseline, by seed."""
    difference: float | None = None
    """The mean difference."""
    interval: tuple[float, float] | None = None
    """The interval that holds for all rows jointly, with the table's confidence."""
    interval_alone: tuple[float, float] | None = None
    """The interval if this were the only variant."""
    verdict: str = "baseline"
    """`likely useful`, `within noise`, `harmful` or `undecided`."""
    note: str = ""


def row_of(
    name: str,
    change: Settings,
    runs: Sequence[AblationRun],
    reference: Mapping[int, float | None],
    mode: str,
    num_variants: int,
) -> Row:
    values = {run.seed: run.value for run in sorted(runs, key=lambda run: run.seed)}
    differences = {
        seed: value - reference[seed]
        for seed, value in values.items()
        if value is not None and reference.get(seed) is not None
    }
    row = Row(
        name=name,
        change=", ".join(f"{key} = {value}" for key, value in change.items()),
        values=values,
        mean=mean_of(values),
        differences=differences,
        difference=statistics.fmean(differences.values()) if differences else None,
    )
    if len(differences) < 2:
        return _judged(row, reference, mode)
    each = list(differences.values())
    return _judged(
        Row(
            **{
                **vars(row),
                "interval": paired_interval(each, 1 - (1 - LEVEL) / num_variants),
                "interval_alone": paired_interval(each, LEVEL),
            }
        ),
        reference,
        mode,
    )


def paired_interval(differences: Sequence[float], level: float) -> tuple[float, float]:
    """Student's confidence interval of a mean difference.

    Args:
        differences: One per seed, at least 2.
        level: Confidence, e.g. 0.95.

    Raises:
        ValueError: Fewer than two differences, a difference that is not finite, or an invalid
        level.

    >>> low, high = paired_interval([1.0, 2.0, 3.0], 0.95)
    >>> round(low, 3), round(high, 3)  # 2 ± 4.303 · 1 / √3
    (-0.484, 4.484)
    """
    from scipy.stats import t

    if len(differences) < 2 or not all(map(math.isfinite, differences)):
        raise ValueError(
            f"differences = {list(differences)}: an interval needs at least 2, all of them finite."
        )
    if not 0 < level < 1:
        raise ValueError(f"level = {level}: expected a confidence between 0 and 1, e.g. 0.95.")
    mean, count = statistics.fmean(differences), len(differences)
    error = statistics.stdev(differences) / math.sqrt(count)
    if error == 0:
        return mean, mean
    low, high = t.interval(level, count - 1, loc=mean, scale=error)
    return float(low), float(high)


def _judged(row: Row, reference: Mapping[int, float | None], mode: str) -> Row:
    verdict, note = _verdict(row, reference, mode)
    return Row(**{**vars(row), "verdict": verdict, "note": note})


def _verdict(row: Row, reference: Mapping[int, float | None], mode: str) -> tuple[str, str]:
    lost = [seed for seed, value in row.values.items() if value is None]
    if any(value is None for value in reference.values()):
        return "undecided", "the baseline itself diverged; fix it first."
    if lost:
        return "harmful", f"diverged with {len(lost)} of {len(row.values)} seeds ({lost})."
    if row.interval is None:
        return "undecided", (
            f"only {len(row.differences)} pair of runs; an interval needs at least 2, better 3."
        )
    if len(set(row.differences.values())) == 1 and row.difference != 0:
        return "undecided", (
            "the change is identical for every seed, so there is no noise to compare it with. "
            "Does build use the seed? If so, the metric is too coarse: use more validation "
            "examples and more seeds."
        )
    sign = 1 if mode == "max" else -1
    verdict = _side(row.interval, sign)
    alone = _side(row.interval_alone, sign)
    if verdict == "within noise" and alone != verdict:
        return verdict, (
            f"on its own it would count as {alone}; among this many variants that may be luck. "
            "Repeat it with more seeds."
        )
    return verdict, ""


def _side(interval: tuple[float, float], sign: int) -> str:
    low, high = sorted(sign * bound for bound in interval)
    return "likely useful" if low > 0 else "harmful" if high < 0 else "within noise"


def notes_on(
    runs: Sequence[AblationRun], rows: Sequence[Row], changes: Mapping[str, Settings]
) -> Iterator[str]:
    variants = rows[1:]
    if len(variants) > 1:
        alone = 1 - (1 - LEVEL) / len(variants)
        yield (
            f"{len(variants)} variants: each interval has a confidence of {alone:.1%}, so that all "
            f"of them hold jointly with {LEVEL:.0%} (Bonferroni); the verdicts are based on these."
        )
    finite = [value for value in rows[0].values.values() if value is not None]
    if len(finite) > 1 and len(set(finite)) == 1:
        yield "The baseline gave the same result with every seed: does build use the seed?"
    for name in changes:
        yield from _interaction(name, rows, changes)
    if len({json.dumps(run.code, sort_keys=True) for run in runs}) > 1:
        yield "The code changed between the runs: a difference may come from the code."
    if len({json.dumps(run.versions, sort_keys=True) for run in runs}) > 1:
        yield "Library versions changed between the runs."


def _interaction(name: str, rows: Sequence[Row], changes: Mapping[str, Settings]) -> Iterator[str]:
    """The gain of a combination beyond the sum of its parts."""
    by_name = {row.name: row for row in rows}
    parts = [by_name.get(part) for part in parts_of(name, changes)]
    whole = by_name.get(name)
    if parts and whole and None not in parts:
        numbers = [row.difference for row in (whole, *parts)]
        if None not in numbers:
            beyond = numbers[0] - sum(numbers[1:])
            yield f"{name}: {beyond:+.4g} beyond the sum of its parts (interaction)."


def mean_of(values: Mapping[int, float | None]) -> float | None:
    finite = [value for value in values.values() if value is not None]
    return statistics.fmean(finite) if finite else None
