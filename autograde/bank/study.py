"""03f.study: a small real study, from the question to a paragraph."""

import math

from autograde.kinds import Fact, Reason, Write

FREE = ("dropout", "smoothing", "longer", "filters")
"""Changes of `course.analysis.study.CHANGES` that the notebook does not study itself."""
HELPS = ("smoothing", "filters")
"""Those of them that help with nearly every seed; if all came out worse, the sign is turned."""
USUAL = {
    "dropout": (0.03, 0.46), "smoothing": (0.87, 0.40), "longer": (0.24, 0.25),
    "filters": (0.96, 0.46),
}  # fmt: skip
"""Mean and standard deviation in points of the differences over 150 seeds."""
RECORDED = {
    "dropout": (6, -2, 2, 6, -1, -1, -7, 15, 1, -24, 4, 4, -7, 0, -3,
        -4, 4, -8, 2, 13, 5, 8, 4, -1, -6, 3, 1, 3, -2, 1),
    "smoothing": (12, 7, 12, 10, 22, 16, 14, 19, 2, 1, 17, 8, 7, 13, 17,
        13, 14, 17, 11, 22, 15, 21, 9, 15, 10, 22, 8, 11, 4, 16),
    "longer": (4, 1, 4, 7, 2, -1, -3, 7, 5, 3, 3, 8, 2, 5, 1,
        3, 3, 3, 3, 9, 2, 3, 7, 0, 3, 9, 4, 9, 1, 6),
    "filters": (23, 4, 12, 22, 15, 15, 2, 18, 12, 9, 21, 12, 18, 13, 14,
        14, 30, 18, 7, 23, 23, 22, 20, 3, 14, 15, 12, 22, 15, 13),
}  # fmt: skip
"""Images by which each change was better than the baseline with seeds 0 to 29, as torch computes
them on one machine."""
UNLIKE = 1.0
"""Images by which differences may be off the recorded ones, on average over the seeds.

Measured with seeds 0 to 29: without vector instructions, and with noise of 1e-6 in every gradient,
no difference moved; with noise of 1e-7 in the first weights one of 120 did, by 3 images. Sorted
scores are further off in all but 2 of 616 windows of 6 to 12 seeds, and a variant whose seeds are
one ahead of the baseline's in all 588."""
FAR = 4
"""Standard errors from the usual mean that no honest study is: 1 in 16,000 would be."""
HUGE = 1e20
"""Above all seeds and differences; their squares are still finite."""
LEAST = 6
"""Seeds: with fewer, Student's t widens the interval by more than a third against 1.96."""
IMAGE = 100 / 1438
"""Points of one validation image of `load("digits", val_share=0.8)`."""
ROUNDED = 1e-4
"""How far a difference may be from a whole number of images: four decimals are enough. One image as
a share is seven times that, so no share passes for 0 images."""
NORMAL = 1.96
"""Standard errors to each end where Student's t is forgotten."""
NEAR = 0.02
"""Points by which an end of the interval may be off; ends are typed with two decimals."""

SEEDS_FIRST = "A difference belongs to its seed: give `seeds` first, one per difference."
LARGEST_SHARE = 0.1
"""Differences as shares stay below it: no change of this study moves accuracy by 10 points."""
OFF_CENTRE = 0.006
"""Points by which the middle may be off its mean: rounding each end to two decimals moves it by
half of one."""


def numbers(value, least):
    """Numbers, none of them huge, in a list of at least so many; None if it is something else."""
    if not isinstance(value, list) or len(value) < least:
        return None
    fit = all(type(v) in (int, float) and abs(v) < HUGE for v in value)
    return [float(v) for v in value] if fit else None


def students_interval(differences):
    """Ends of Student's 95 % interval of the mean."""
    from course.analysis.ablation import paired_interval

    return paired_interval(differences, 0.95)


def known_change(facts):
    """One of those that are free."""
    return "" if facts["change"] in FREE else f"Choose one of {', '.join(FREE)}, by its name."


def seeds_of_pairs(facts):
    """Whole numbers, each once, and one for each difference."""
    found = numbers(facts["seeds"], LEAST)
    if found is None:
        return f"Give a list of at least {LEAST} whole numbers, e.g. [0, 1, 2, 3, 4, 5]."
    if not all(map(float.is_integer, found)):
        return "A seed is a whole number."
    if len(set(found)) < len(found):
        return "A seed occurs twice. It gives the same two scores again, and so nothing new."
    differences = facts["differences"]
    if isinstance(differences, list) and len(differences) != len(found):
        return f"These are {len(found)} seeds, but {len(differences)} differences."
    return ""


def in_images(facts):
    """A difference per seed, in points, of accuracies over the 1,438 images."""
    found = numbers(facts["differences"], LEAST)
    if found is None:
        return f"Give a list of at least {LEAST} finite numbers, one per seed, in points."
    shares = all(
        abs(value) < LARGEST_SHARE and whole(100 * value, 100 * ROUNDED) for value in found
    )
    if shares and not all(map(whole, found)):
        return "These are shares of the 1,438 images. Give points: 100 times each of them."
    for place, value in enumerate(found, start=1):
        if not whole(value):
            return (
                f"Number {place}, {value:g}, is not a difference of two accuracies over 1,438 "
                f"images: those are multiples of {IMAGE:.4f} points. Was it rounded? Give all "
                "digits."
            )
    if len(set(found)) == 1:
        return "All differences are equal: did both runs of a pair get the same settings?"
    if facts["change"] in HELPS and max(found) < 0:
        return (
            f"All are negative, but {facts['change']} helps with nearly every seed. Are they "
            "variant minus baseline?"
        )
    if max(map(abs, found)) > 100:
        return "One difference is more than 100 points; accuracies run from 0 to 100."
    seeds = numbers(facts["seeds"], len(found))
    if seeds is None or seeds_of_pairs(facts):
        return SEEDS_FIRST
    if facts["change"] not in FREE:
        return ""
    return _of_other_runs(facts["change"], seeds, found) or _unusual(facts["change"], found)


def whole(value, off=ROUNDED):
    """Whether a difference in points is one of a whole number of images."""
    return abs(value - IMAGE * round(value / IMAGE)) <= off


def _of_other_runs(change, seeds, found):
    """How these differ from the recorded differences of the same seeds, if by more than rounding.

    Seeds that were not recorded are not compared.
    """
    images = {int(seed): round(value / IMAGE) for seed, value in zip(seeds, found, strict=True)}
    images = {seed: count for seed, count in images.items() if 0 <= seed < len(RECORDED["dropout"])}

    def off(name, sign=1):
        return [abs(sign * count - RECORDED[name][seed]) for seed, count in images.items()]

    def far(off):
        return sum(off) > UNLIKE * max(len(off), LEAST)

    if not far(off(change)):
        return ""
    if not far(off(change, sign=-1)):
        return "These look like baseline minus variant. Give variant minus baseline."
    for other in FREE:
        if not any(off(other)):
            return (
                f"These equal the differences of {other} for those seeds. Give those of {change}."
            )
    seed, count = max(images.items(), key=lambda one: abs(one[1] - RECORDED[change][one[0]]))
    return (
        f"When we ran seed {seed}, {change} made a difference of {RECORDED[change][seed]} images; "
        f"yours is {count} ({IMAGE * count:.2f} points), and over your seeds you differ from us by "
        f"{sum(off(change)) / len(images):.1f} images on average. Is each difference "
        "points(data, seed, **CHANGES[change]) - points(data, seed), one seed in both, in the "
        "order of `seeds`? Sorting either list breaks the pairs."
    )


def _unusual(change, found):
    """What is wrong with a mean that the change does not have; nothing is said of other lists."""
    (usual, scatter), mean = USUAL[change], math.fsum(found) / len(found)
    if abs(mean - usual) <= FAR * scatter / math.sqrt(len(found)):
        return ""
    return (
        f"Their mean is {mean:.3g} points, which {len(found)} seeds practically never give for "
        f"{change}. Are these the differences of that change, variant minus baseline?"
    )


def from_the_differences(facts, refused=in_images, undecided=SEEDS_FIRST):
    """Student's interval of their mean; its width is judged once they are not refused.

    Args:
        facts: All facts, as given.
        refused: What is wrong with the differences.
        undecided: What `refused` says where another fact is missing, and not a difference wrong.
    """
    found, ends = numbers(facts["differences"], LEAST), numbers(facts["interval"], 2)
    if ends is None or len(ends) != 2 or ends[0] > ends[1]:
        return "Give two numbers, the lower end first: [-0.2, 0.5]."
    if found is None:
        return "The interval belongs to the differences: give those first."
    low, high = students_interval(found)
    if abs(ends[0] - low) <= NEAR and abs(ends[1] - high) <= NEAR:
        return ""
    return _apart_from(found, ends, (high - low) / 2, waits=refused(facts) not in ("", undecided))


def _apart_from(found, ends, half, *, waits):
    """What an interval is, of which Student's half width is `half`: its middle, or its width."""
    from scipy.stats import t

    wrong = "That is not the 95 % Student's t interval of the differences you gave: "
    mean, middle = math.fsum(found) / len(found), (ends[0] + ends[1]) / 2
    if abs(middle - mean) > OFF_CENTRE:
        return f"{wrong}it is centred on {middle:.3f}, but their mean is {mean:.3f}."
    if waits:
        return f"{wrong}its width does not fit them. Correct the differences first."
    quantile = float(t.ppf(0.975, len(found) - 1))
    if half <= NEAR:
        return f"{wrong}its half-width should be {half:.3g}."
    errors = (ends[1] - ends[0]) / 2 / half * quantile
    n, own = len(found), (ends[1] - ends[0]) / 2
    if abs(own - half * math.sqrt((n - 1) / n)) <= min(NEAR, abs(own - half * NORMAL / quantile)):
        return (
            f"{wrong}it is as wide as if the deviation were over n. Use n - 1, as "
            "statistics.stdev(differences) does."
        )
    return (
        f"{wrong}each end is {errors:.2f} standard errors of the mean away from it, and for "
        f"{len(found)} seeds Student's t says {quantile:.2f}."
        + _named_width(errors, half / quantile, n)
    )


def _named_width(errors, error, n):
    """The mistake that gives so many standard errors, if just one does and ends are as typed."""
    from scipy.stats import t

    quantile = t.ppf(0.975, n - 1)
    known = {
        math.sqrt(n) * quantile: " Was the deviation divided by √n?",
        t.ppf(0.95, n - 1): f" {t.ppf(0.95, n - 1):.2f} belongs to a 90 % interval.",
        t.ppf(0.975, n): f" {t.ppf(0.975, n):.2f} belongs to n degrees of freedom; use n - 1.",
        NORMAL: f" {NORMAL} belongs to a normal distribution.",
    }
    close = [text for width, text in known.items() if abs(errors - width) < OFF_CENTRE / error]
    return close[0] if len(close) == 1 else ""


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
    "seeds before you see a score. Give the differences in points, unrounded, variant minus "
    "baseline, in the order of your seeds. Name your seeds: a reader may run some of them again.",
    facts=(
        Fact("change", "the name of the change", 0.25, known_change),
        Fact("seeds", "the seeds, a list of whole numbers, each once", 0.25, seeds_of_pairs),
        Fact("differences", "points, variant minus baseline, one per seed, in the order of `seeds`",
             1, in_images),
        Fact("interval", "95 % Student's t interval of their mean: [low, high]", 1,
             from_the_differences),
        Fact("verdict", "better, worse or unclear at 95 %", 0.5, follows),
    ),
    example={
        "change": "smoothing", "seeds": [0, 1, 2, 3, 4, 5, 6, 7],
        "differences": [0.8345, 0.4868, 0.8345, 0.6954, 1.5299, 1.1127, 0.9736, 1.3213],
        "interval": [0.69, 1.26], "verdict": "better",
    },
    text=Reason(
        points=4, ask="Write a paragraph that a reviewer would accept: question, change, what was "
        "held fixed, which seeds, difference with interval, a limit. Five sentences.",
        rubric=(
            (1, "question and decision rule come before the result"),
            (1, "one change, same seeds, all else fixed; a seed run again agrees"),
            (1, "difference with unit, interval, seeds, sensible digits; the verdict follows"),
            (1, "a limit: one data set, one rate, several changes tried, validation seen before"),
        ),
        solution="Does label smoothing of 0.1 help a small network on few images? Before the first "
        "run we chose seeds 0 to 7 and a 95 % interval. Network, split, rate and epochs were "
        "held fixed. Accuracy on 1,438 images rose by 1.0 points (0.7 to 1.3). It helps here; one "
        "data set and one rate were tried.",
    ),
)  # fmt: skip
