"""03f.study: a small real study, from the question to a paragraph."""

import math

from autograde.kinds import Fact, Reason, Write

FREE = ("dropout", "smoothing", "longer", "filters")
"""Changes of `course.analysis.study.CHANGES` that the notebook does not study itself."""
HELPS = ("smoothing", "filters")
"""Those of them that helped with every seed tried; if all came out worse, the sign is turned."""
LEAST = 6
"""Seeds: with fewer, Student's t widens the interval by more than a third against 1.96."""
IMAGE = 100 / 1438
"""Points of one validation image of `load("digits", val_share=0.8)`."""
ROUNDED = 0.006
"""How far a difference may be from a whole number of images: two decimals are enough."""
NEAR = 0.02
"""Points by which an end of the interval may be off; ends are typed with two decimals."""


def numbers(value, least):
    """Finite numbers in a list of at least so many; None if it is something else."""
    if not isinstance(value, list) or len(value) < least:
        return None
    fit = all(type(v) in (int, float) and math.isfinite(v) for v in value)
    return [float(v) for v in value] if fit else None


def students_interval(differences):
    """Ends of Student's 95 % interval of the mean."""
    from course.analysis.ablation import paired_interval

    return paired_interval(differences, 0.95)


def known_change(facts):
    """One of those that are free."""
    return "" if facts["change"] in FREE else f"Choose one of {', '.join(FREE)}, by its name."


def in_images(facts):
    """A difference per seed, in points, of accuracies over the 1,438 images."""
    found = numbers(facts["differences"], LEAST)
    if found is None:
        return f"Give a list of at least {LEAST} finite numbers, one per seed, in points."
    for place, value in enumerate(found, start=1):
        if abs(value - IMAGE * round(value / IMAGE)) > ROUNDED:
            return (
                f"Number {place}, {value:g}, is not a difference of two accuracies over 1,438 "
                f"images: those are multiples of {IMAGE:.4f} points. Was it rounded, or is it a "
                "share?"
            )
    if len(set(found)) == 1:
        return "All differences are equal: did both runs of a pair get the same settings?"
    if facts["change"] in HELPS and max(found) < 0:
        return (
            f"All are negative, but {facts['change']} helped with every seed tried here. Are "
            "they variant minus baseline?"
        )
    if max(map(abs, found)) > 100:
        return "One difference is more than 100 points; accuracies run from 0 to 100."
    return ""


def from_the_differences(facts):
    """Student's interval of their mean."""
    found, ends = numbers(facts["differences"], LEAST), numbers(facts["interval"], 2)
    if ends is None or len(ends) != 2 or ends[0] > ends[1]:
        return "Give two numbers, the lower end first: [-0.2, 0.5]."
    if found is None:
        return "The interval belongs to the differences: give those first."
    low, high = students_interval(found)
    if abs(ends[0] - low) <= NEAR and abs(ends[1] - high) <= NEAR:
        return ""
    return _apart_from(found, ends, (high - low) / 2)


def _apart_from(found, ends, half):
    """What an interval is, of which Student's half width is `half`: its middle, or its width."""
    from scipy.stats import t

    wrong = "That is not the 95 % Student's t interval of the differences you gave: "
    mean, middle = math.fsum(found) / len(found), (ends[0] + ends[1]) / 2
    if abs(middle - mean) > NEAR:
        return f"{wrong}its midpoint is {middle:.3g}, but their mean is {mean:.3g}."
    quantile = float(t.ppf(0.975, len(found) - 1))
    if half <= NEAR:
        return f"{wrong}its half-width should be {half:.3g}."
    errors = (ends[1] - ends[0]) / 2 / half * quantile
    return (
        f"{wrong}each end is {errors:.2f} standard errors of the mean away from it, and for "
        f"{len(found)} seeds Student's t says {quantile:.2f}."
    )


def follows(facts):
    """What the interval says."""
    ends = numbers(facts["interval"], 2)
    if facts["verdict"] not in ("better", "worse", "unclear"):
        return "Give one of better, worse or unclear."
    if ends is None or len(ends) != 2:
        return "The verdict follows from the interval: give that first."
    said = "better" if ends[0] > 0 else "worse" if ends[1] < 0 else "unclear"
    if facts["verdict"] == said:
        return ""
    where = "holds 0" if said == "unclear" else "lies on one side of 0"
    return f"Your interval {where}, which does not match '{facts['verdict']}'."


EXERCISE = Write(
    id="03f.study", title="from a question to a paragraph",
    source='Lecture 3, "Ablation discipline"', ledger=("T27", "N23", "X02"),
    minutes=30, difficulty=3, read=("course.analysis.ablate", "T27"),
    hints=(
        "Before the first run, write down the question and what would count as an answer.",
        "points(data, seed, **CHANGES[name]) minus points(data, seed), for seeds 0, 1, 2 ...",
        "paired_interval(differences, 0.95) gives the interval; the side of 0 it lies on gives the "
        "verdict.",
    ),
    question="Study one change of the baseline on the 1,438 validation images, over at least six "
    "seeds: `dropout` (0.3), `smoothing` (0.1), `longer` (30 epochs) or `filters` (a convolution "
    "with 16 filters comes first). Choose the change and the number of "
    "seeds before you see a score. Give the differences unrounded, variant minus baseline.",
    facts=(
        Fact("change", "the name of the change", 0.5, known_change),
        Fact("differences", "points, variant minus baseline, one per seed", 1, in_images),
        Fact("interval", "95 % Student's t interval of their mean: [low, high]", 1,
             from_the_differences),
        Fact("verdict", "better, worse or unclear at 95 %", 0.5, follows),
    ),
    example={
        "change": "smoothing",
        "differences": [0.8345, 0.4868, 0.8345, 0.6954, 1.5299, 1.1127, 0.9736, 1.3213],
        "interval": [0.69, 1.26], "verdict": "better",
    },
    text=Reason(
        points=4, ask="Write a paragraph that a reviewer would accept: question, change, what was "
        "held fixed, seeds, difference with interval, what it does not show. Five sentences.",
        rubric=(
            (1, "question and decision rule come before the result"),
            (1, "one change; split, data, epochs, seeds held fixed"),
            (1, "difference with unit, interval, seeds, sensible digits; the verdict follows"),
            (1, "a limit: one data set, one rate, several changes tried, validation seen before"),
        ),
        solution="Does label smoothing of 0.1 help a small network on few images? Before the first "
        "run we chose eight seeds and a 95 % interval. Network, split, rate, epochs and seeds were "
        "held fixed. Accuracy on 1,438 images rose by 1.0 points (0.7 to 1.3). It helps here; one "
        "data set and one rate were tried.",
    ),
)  # fmt: skip
