"""05.ablation: one change of the project, measured over seeds and put into a paragraph."""

from functools import partial

from autograde.bank.study import HUGE, LEAST, ROUNDED, follows, from_the_differences, numbers
from autograde.kinds import Fact, Reason, Write
from autograde.kinds.value import brief
from autograde.reported import quoted

FEWEST_IMAGES = 50
"""Below it one image is two points, and no ablation of a working project shows anything."""
MOST_GAIN = 50
"""Points: no change lifts a baseline that works by more with every seed."""
IMAGES_FIRST = "The differences depend on the number of images: give that first."

MOST_NAMED = 3
"""Settings whose names a message shows."""


def settings(facts, key):
    """A dictionary of two settings or more; None if it is something else."""
    found = facts[key]
    return found if isinstance(found, dict) and len(found) > 1 else None


def of_the_baseline(facts):
    """All of its settings by name."""
    if settings(facts, "baseline") is None:
        return "Give a dictionary of all settings of the baseline, at least two."
    return ""


def named(settings):
    """The first of these names, as the student's words."""
    more = [f"{len(settings) - MOST_NAMED} more"] * (len(settings) > MOST_NAMED)
    return ", ".join([*(quoted(brief(name)) for name in settings[:MOST_NAMED]), *more])


def one_change(facts):
    """The same settings, of which exactly one has another value."""
    before, after = settings(facts, "baseline"), settings(facts, "variant")
    if before is None or after is None:
        return "Give two dictionaries, baseline and variant, with at least two settings each."
    if set(before) != set(after):
        names = named(sorted(set(before) ^ set(after)))
        return f"Only one of the two runs has the setting {names}. Give every setting in both."
    changed = [name for name in before if before[name] != after[name]]
    if not changed:
        return "Both runs have the same settings: nothing was changed."
    if len(changed) > 1:
        return (
            f"{len(changed)} settings differ ({named(changed)}): the difference cannot "
            "be attributed to any one of them."
        )
    if "seed" in str(changed[0]).lower():
        return f"The change is {named(changed)}: seeds are what every setting is tried over."
    return ""


def enough(facts):
    """The number of validation images."""
    found = facts["images"]
    if isinstance(found, bool) or not isinstance(found, int) or not 1 <= found < HUGE:
        return "Give a whole number: how many images validation has."
    if found < FEWEST_IMAGES:
        return f"With {found} images, one image is {100 / found:.1f} points: validate on more."
    return ""


def in_images(facts):
    """A difference per seed, in points, of accuracies over that many images."""
    found = numbers(facts["differences"], LEAST)
    if found is None:
        return f"Give a list of at least {LEAST} finite numbers, one per seed, in points."
    if enough(facts):
        return IMAGES_FIRST
    image = 100 / facts["images"]
    for place, value in enumerate(found, start=1):
        if abs(value) > 100:
            return "One difference is more than 100 points; accuracies run from 0 to 100."
        if abs(value - image * round(value / image)) > ROUNDED:
            return (
                f"Number {place}, {value:g}, is not a difference of two accuracies over "
                f"{facts['images']} images: those are multiples of {image:.4f} points. Was it "
                "rounded, or is it a share?"
            )
    if min(found) > MOST_GAIN:
        return (
            f"All are above {MOST_GAIN} points, as accuracies are. A difference is the variant's "
            "accuracy minus the baseline's."
        )
    if len(set(found)) == 1:
        return "All differences are equal: did both runs of a pair get the same settings?"
    return ""


EXERCISE = Write(
    id="05.ablation", title="one ablation, in a paragraph",
    source='Lecture 3, "Ablation discipline"', ledger=("X09", "T27", "N23"),
    minutes=25, difficulty=3, read=("course.analysis.ablate", "T27"),
    hints=(
        "Write down the question, the change, the seeds and the rule for the verdict before the "
        "first run.",
        "Make one run per seed for each of the two settings, on the project's split; then "
        "subtract.",
        "score(**variant, seed=s) - score(**baseline, seed=s) for at least six seeds, then "
        "paired_interval(differences, 0.95).",
    ),
    question="Change one setting of your project and measure the effect on its validation images, "
    "over at least six seeds. Give the differences unrounded, in points, variant minus baseline.",
    facts=(
        Fact("baseline", "all settings of the baseline: a dictionary", 0.5, of_the_baseline),
        Fact("variant", "all settings of the variant: exactly one value differs", 1, one_change),
        Fact("images", "number of validation images", 0.5, enough),
        Fact("differences", "points, variant minus baseline, one per seed", 1, in_images),
        Fact("interval", "95 % Student's t interval of their mean: [low, high]", 0.5,
             partial(from_the_differences, refused=in_images, undecided=IMAGES_FIRST)),
        Fact("verdict", "better, worse or unclear at 95 %", 0.5, follows),
    ),
    example={
        "baseline": {"lr": 0.01, "hidden": 64}, "variant": {"lr": 0.01, "hidden": 128},
        "images": 400, "differences": [0.5, 0.25, 1.0, 0.0, 0.75, 0.5],
        "interval": [0.13, 0.87], "verdict": "better",
    },
    text=Reason(
        points=3, ask="Write the paragraph of the report: question and rule, the one change, what "
        "was held fixed, the difference with its interval, what it does not show. Five sentences.",
        rubric=(
            (1, "question and rule come before the result; change and what is fixed are stated"),
            (1, "difference with unit, interval, seeds; the verdict follows"),
            (1, "a limit of this study: data, range of settings, validation seen before"),
        ),
        solution="Does a wider hidden layer help here? Beforehand we chose six seeds and a 95 % "
        "interval. Split, rate, epochs and seeds stayed the same; 64 units became 128. Accuracy on "
        "400 validation images rose by 0.5 points (0.13 to 0.87): better. Only one data set and "
        "one rate were tried, and the rate had been chosen on validation.",
    ),
)  # fmt: skip
