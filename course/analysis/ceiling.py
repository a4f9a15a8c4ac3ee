"""Ceiling analysis: make one stage of a pipeline perfect, and see how much the whole would gain.

    stages = [Stage("detector", detect, true_crop), Stage("classifier", classify, true_digit), ...]
    print(ceiling_analysis(stages, examples, score))

Work on the stage with the highest ceiling. Single gains need not add up to the gain of all: if two
stages fail on the same example, fixing one gains nothing; and an oracle in a later stage hides the
errors of earlier ones. So each stage is also replaced together with all those before it. The
lecture's own figures are in `course.worked.compute("N25")`; `digits_pipeline` is a pipeline that
runs.

Source: Lecture 3, figure "Ceiling analysis"; ledger N25, S20.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from course.analysis.scores import Interval, bootstrap
from course.analysis.tables import as_csv
from course.whole import check_seed, whole_number

Score = Callable[[Any, Any], float]
"""Takes the pipeline's output and the example: 1 if right, 0 if wrong, or in between."""


@dataclass(frozen=True)
class Stage:
    """One stage of a pipeline."""

    name: str
    run: Callable[[Any], Any]
    """Takes the output of the stage before; the first stage gets the example's input."""
    oracle: Callable[[Any, Any], Any]
    """Takes the same value and the example; returns what a perfect stage would. A last stage is
    perfect only within what it can know (a spell-checker knows words, not images)."""


@dataclass(frozen=True)
class StageRow:
    """One stage replaced by its oracle."""

    name: str
    score: float
    """Points (0 to 100) of the whole if only this stage is perfect."""
    gain: Interval
    """Points above the baseline, with a paired bootstrap interval."""
    step_gain: float
    """Points that it adds if all stages before it are already perfect."""


@dataclass(frozen=True)
class CeilingResult:
    """How much each stage could gain."""

    baseline: float
    """Points of the unchanged pipeline."""
    all_perfect: float
    """Points with every stage replaced."""
    stages: tuple[StageRow, ...]
    num_examples: int

    @property
    def interaction(self) -> float:
        """The gain of all stages together minus the sum of the single gains."""
        return self.all_perfect - self.baseline - sum(row.gain.value for row in self.stages)

    @property
    def best(self) -> StageRow:
        """The stage with the highest ceiling."""
        return max(self.stages, key=lambda row: row.gain.value)

    @property
    def advice(self) -> str:
        """Where to work, and whether the numbers support it."""
        best = self.best
        rivals = [r for r in self.stages if r is not best and r.gain.high >= best.gain.low]
        if best.gain.low <= 0:
            return (
                f"on {self.num_examples} examples no stage gains anything for certain: measure on "
                "more"
            )
        along = max(self.stages, key=lambda row: row.step_gain)
        if along.step_gain > best.step_gain:
            return (
                f"{best.name} has the largest single gain ({best.gain.value:+.1f}), but its oracle "
                f"hides errors of earlier stages; stage by stage, most is lost in {along.name} "
                f"({along.step_gain:+.1f}): work there first"
            )
        if rivals:
            return (
                f"{best.name} looks best; {', '.join(r.name for r in rivals)} may be just as good: "
                "measure on more examples, or choose the cheapest"
            )
        return (
            f"work on {best.name}: it can gain at most {best.gain.value:.1f} points, certainly the "
            "most of all stages"
        )

    def plot(self) -> Any:
        """A Figure with a bar for each single gain."""
        from course.plots.errors import plot_ceiling

        return plot_ceiling(self)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "baseline": self.baseline, "all_perfect": self.all_perfect,
            "interaction": self.interaction, "num_examples": self.num_examples,
            "advice": self.advice, "stages": self._plain_rows(),
        }  # fmt: skip

    def to_csv(self) -> str:
        """One line per stage, with a header."""
        rows = self._plain_rows()
        return as_csv(list(rows[0]), rows)

    def _plain_rows(self) -> list[dict[str, Any]]:
        return [
            {
                "stage": row.name, "score": row.score, "gain": row.gain.value,
                "gain_low": row.gain.low, "gain_high": row.gain.high, "step_gain": row.step_gain,
            }
            for row in self.stages
        ]  # fmt: skip

    def __str__(self) -> str:
        width = max(5, *(len(row.name) for row in self.stages))
        lines = [
            f"now {self.baseline:.1f}, all perfect {self.all_perfect:.1f}, on {self.num_examples} "
            "examples",
            f"  {'stage':<{width}}  alone perfect  points won (interval)    after those before",
        ]
        for row in self.stages:
            gain = f"{row.gain.value:+.1f} [{row.gain.low:+.1f}, {row.gain.high:+.1f}]"
            lines.append(
                f"  {row.name:<{width}}  {row.score:13.1f}  {gain:<23}  {row.step_gain:+.1f}"
            )
        return "\n".join(
            [*lines, f"  interaction {self.interaction:+.1f} points", f"  {self.advice}"]
        )

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(row.name)}</td><td>{row.score:.1f}</td><td>{row.gain.value:+.1f} "
            f"[{row.gain.low:+.1f}, {row.gain.high:+.1f}]</td><td>{row.step_gain:+.1f}</td></tr>"
            for row in self.stages
        )
        return (
            f"<p>now {self.baseline:.1f}, all perfect {self.all_perfect:.1f}</p><table><thead><tr>"
            "<th>stage</th><th>alone perfect</th><th>points won</th><th>after those before</th>"
            f"</tr></thead><tbody>{rows}</tbody></table><p>interaction {self.interaction:+.1f} "
            f"points. {escape(self.advice)}</p>"
        )


def ceiling_analysis(
    stages: Sequence[Stage],
    examples: Sequence[tuple[Any, Any]],
    score: Score,
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> CeilingResult:
    """Replace each stage by its oracle, alone and together with all those before it.

    Args:
        stages: In the order in which they run.
        examples: Pairs (input, truth); the truth holds whatever oracles and score need.
        score: A function of output and truth, from 0 to 1.
        resamples: Of the paired bootstrap.
        seed: Of its draws.

    Raises:
        ValueError: No stages, two with the same name, fewer than two examples, or a score outside 0
        to 1.

    Source: Lecture 3, figure "Ceiling analysis"; ledger N25, S20.
    """
    if not all(isinstance(stage, Stage) for stage in stages):
        raise ValueError(
            "stages holds something that is not a Stage: give Stage(name, run, oracle) for each."
        )
    examples = list(examples)
    for place, example in enumerate(examples):
        if not isinstance(example, (tuple, list)) or len(example) != 2:
            raise ValueError(
                f"example {place} is a {type(example).__name__}: expected a pair (input, truth)."
            )
    resamples, seed = whole_number("resamples", resamples, 1), check_seed(seed)
    names = [stage.name for stage in stages]
    if not names or len(set(names)) < len(names):
        raise ValueError(
            f"stages {names}: at least one is needed, and each needs a different name."
        )
    if len(examples) < 2:
        raise ValueError(
            f"{len(examples)} examples: a score with an interval needs at least 2; it is useful "
            "from about 100."
        )

    def points(perfect: set[str]) -> np.ndarray:
        return _points(stages, examples, score, perfect)

    baseline = points(set())
    before = baseline
    rows = []
    for place, stage in enumerate(stages):
        alone = points({stage.name})
        so_far = alone if place == 0 else points(set(names[: place + 1]))
        gain = bootstrap(
            _mean_difference, alone, baseline, vectorized=True, resamples=resamples, seed=seed
        )
        rows.append(
            StageRow(stage.name, float(alone.mean()), gain, float(so_far.mean() - before.mean()))
        )
        before = so_far
    return CeilingResult(float(baseline.mean()), float(before.mean()), tuple(rows), len(examples))


def _points(
    stages: Sequence[Stage], examples: Sequence[tuple[Any, Any]], score: Score, perfect: set[str]
) -> np.ndarray:
    """Points [N] of each example, with the named stages replaced."""
    found = []
    for value, truth in examples:
        for stage in stages:
            value = stage.oracle(value, truth) if stage.name in perfect else stage.run(value)
        given = score(value, truth)
        try:
            found.append(float(given))
        except (TypeError, ValueError, RuntimeError) as error:
            raise ValueError(
                f"score gives {given!r}: expected a number from 0 (wrong) to 1 (right) for each "
                "example."
            ) from error
    points = np.array(found)
    if not ((points >= 0) & (points <= 1)).all():  # also if one is nan
        raise ValueError(
            f"score gives {points[~((points >= 0) & (points <= 1))][0]:g}: expected a number from "
            "0 (wrong) to 1 (right) for each example."
        )
    return 100 * points


def points_with(
    stages: Sequence[Stage], examples: Sequence[tuple[Any, Any]], score: Score, perfect: set[str]
) -> float:
    """Points of the whole (0 to 100) with the named stages replaced by their oracles.

    Args:
        stages: In the order in which they run.
        examples: Pairs (input, truth).
        score: A function of output and truth, from 0 to 1.
        perfect: Names of the stages to replace; none: the unchanged pipeline.
    """
    return float(_points(stages, examples, score, perfect).mean())


def _mean_difference(alone: np.ndarray, baseline: np.ndarray, axis: int = -1) -> np.ndarray:
    return alone.mean(axis=axis) - baseline.mean(axis=axis)


# -- a pipeline that runs: find the digit, name it, correct the code ---------------------------

CANVAS, SIZE, LENGTH = 14, 8, 3
"""Width of a strip, width of a digit, digits per code."""


@dataclass(frozen=True)
class Code:
    """The truth about one example of `digits_pipeline`."""

    offsets: tuple[int, ...]
    """Column at which each digit begins in its strip."""
    digits: tuple[int, ...]
    strips: np.ndarray
    """[3, 8, 14] the original images."""


def digits_pipeline(
    *, num_codes: int = 200, num_known: int = 60, noise: float = 1.0, seed: int = 0
) -> CeilingResult:
    """Ceilings of a reader for three-digit codes, made from scikit-learn's digits.

    Args:
        num_codes: Codes to read.
        num_known: Codes that exist.
        noise: Standard deviation of the noise; ink ranges from 0 to 16.
        seed: Of codes, places and noise.

    Raises:
        ValueError: A count or the noise is out of range.

    Source: after Lecture 3, figure "Ceiling analysis" (detector, classifier, spell-correct); N25.
    """
    return ceiling_analysis(
        *digits_stages(num_codes=num_codes, num_known=num_known, noise=noise, seed=seed)
    )


def digits_stages(
    *,
    num_codes: int = 200,
    num_known: int = 60,
    noise: float = 1.0,
    num_train: int = 200,
    seed: int = 0,
) -> tuple[list[Stage], list[tuple[np.ndarray, Code]], Score]:
    """The reader's stages, its codes, and its score.

    Each digit is somewhere in a noisy strip. The detector cuts out the 8 columns with the most ink,
    the classifier (logistic regression) names the digit, and the corrector replaces an unknown code
    by the known one that differs in the fewest digits. A perfect corrector fixes one wrong digit
    and no more: it sees digits, not images.

    Args:
        num_codes, num_known, noise, seed: As for `digits_pipeline`.
        num_train: Images that the classifier learns from, cleanly cropped; the codes are made of
            the others.

    Raises:
        ValueError: A count or the noise is out of range.
    """
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression

    num_codes = whole_number("num_codes", num_codes, 2)
    num_known = whole_number("num_known", num_known, 1, 10**LENGTH)
    num_train = whole_number("num_train", num_train, 20, 1_500)
    rng = np.random.default_rng(check_seed(seed))
    if not isinstance(noise, (int, float)) or not 0 <= noise < math.inf:
        raise ValueError(f"noise = {noise!r}: expected a standard deviation, 0 or more.")
    bunch = load_digits()
    order = rng.permutation(len(bunch.target))
    train, test = order[:num_train], order[num_train:]
    classifier = LogisticRegression(max_iter=300).fit(bunch.data[train], bunch.target[train])
    numbers = rng.choice(10**LENGTH, size=num_known, replace=False)
    known = np.array([[n // 10**place % 10 for place in range(LENGTH)] for n in numbers])
    by_class = [test[bunch.target[test] == digit] for digit in range(10)]
    examples = []
    for code in known[rng.integers(num_known, size=num_codes)]:
        images = [bunch.images[rng.choice(by_class[digit])] for digit in code]
        truth = _strips(images, tuple(code.tolist()), noise, rng)
        examples.append((truth.strips, truth))
    return _reader(classifier, known), examples, lambda said, truth: float(said == truth.digits)


def _reader(classifier: Any, known: np.ndarray) -> list[Stage]:
    def detect(strips: np.ndarray) -> np.ndarray:
        return _cut(strips, [_most_ink(strip) for strip in strips])

    def classify(crops: np.ndarray) -> tuple[int, ...]:
        return tuple(classifier.predict(crops.reshape(LENGTH, -1)).tolist())

    def correct(digits: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(known[(known != digits).sum(axis=1).argmin()].tolist())

    def correct_perfectly(digits: tuple[int, ...], truth: Code) -> tuple[int, ...]:
        wrong = sum(a != b for a, b in zip(digits, truth.digits, strict=True))
        return truth.digits if wrong <= 1 else digits

    return [
        Stage("detector", detect, lambda _, truth: _cut(truth.strips, truth.offsets)),
        Stage("classifier", classify, lambda _, truth: truth.digits),
        Stage("corrector", correct, correct_perfectly),
    ]


def _strips(
    images: list[np.ndarray], digits: tuple[int, ...], noise: float, rng: np.random.Generator
) -> Code:
    strips = rng.normal(0, noise, size=(LENGTH, SIZE, CANVAS))
    offsets = tuple(rng.integers(CANVAS - SIZE + 1, size=LENGTH).tolist())
    for strip, image, offset in zip(strips, images, offsets, strict=True):
        strip[:, offset : offset + SIZE] += image
    return Code(offsets, digits, strips)


def _most_ink(strip: np.ndarray) -> int:
    ink = [strip[:, i : i + SIZE].sum() for i in range(CANVAS - SIZE + 1)]
    return int(np.argmax(ink))


def _cut(strips: np.ndarray, offsets: Sequence[int]) -> np.ndarray:
    return np.stack([s[:, i : i + SIZE] for s, i in zip(strips, offsets, strict=True)])
