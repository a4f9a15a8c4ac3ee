"""03e.accuracy-interval: what a share of right answers says about the next examples."""

from autograde.exercise import Part, Wrong
from autograde.kinds import Number
from course.analysis.scores import wald_interval, wilson_interval


def ends(n, w, rule=wilson_interval):
    return {"low": rule(n - w, n).low, "high": rule(n - w, n).high}


def needed(n, w, h):
    """Examples for a half-width of h points at 95 %."""
    return {"needed": w / n * (1 - w / n) * (196 / h) ** 2}


EXERCISE = Number(
    id="03e.accuracy-interval", title="how sure is an accuracy?", minutes=8, difficulty=2,
    source='Lecture 3, "Loss and metric are not the same"', ledger=("T23", "F101"),
    read=("course.analysis.scores.wilson_interval",),
    hints=("The ends solve |p − q| = z·√(q(1 − q) / n) for q, where p is the observed accuracy.",
        "Their midpoint is pulled towards 1/2, as if two more answers were right and two more "
        "wrong.",
        "Ends: (p + z²/(2n) ± z·√(p(1−p)/n + z²/(4n²))) / (1 + z²/n). The last part: z²·p(1−p) / "
        "h²."),
    question="A model is wrong on {w} of {n} validation examples, and z is 1.96. First, give the "
    "ends of Wilson's 95 % interval for its accuracy, as shares. Then: how many examples would "
    "make the half-width z·√(p(1 − p) / n) equal to {h} / 100 ({h} points) at the observed "
    "accuracy p? You may round.",
    inputs={"n": (40, 90), "w": (3, 6), "h": [1.0, 1.5, 2.0]}, within=0.004,
    answer=lambda n, w, h: ends(n, w) | needed(n, w, h),
    parts=(Part("low", "the lower end", points=1), Part("high", "the upper end", points=1),
           Part("needed", "examples for that half-width", points=1)),
    wrong=(
        Wrong("normal-interval", lambda n, w, h: ends(n, w, wald_interval),
              "That is p ± z·√(p(1 − p) / n), which is too narrow near 1. Wilson's ends differ."),
        Wrong("normal-in-percent", lambda n, w, h: {
              k: 100 * v for k, v in ends(n, w, wald_interval).items()},
              "That is p ± z·√(p(1 − p) / n), in percent. Give Wilson's ends, as shares."),
        Wrong("normal-of-the-mistakes", lambda n, w, h: ends(n, n - w, wald_interval),
              "That is p ± z·√(p(1 − p) / n) for the share of mistakes. Give Wilson's ends, for "
              "the accuracy."),
        Wrong("ends-swapped", lambda n, w, h: dict(zip(("high", "low"), ends(n, w).values(),
                                                       strict=True)),
              "The two ends are swapped: the lower end is the smaller share."),
        Wrong("undivided", lambda n, w, h: {
              k: v * (1 + 1.96**2 / n) for k, v in ends(n, w).items()},
              "Those ends are 1 + z²/n times too large. Divide the whole numerator by that."),
        Wrong("one-sigma", lambda n, w, h: needed(n, w, 1.96 * h),
              "That leaves out z, as if it were 1 instead of 1.96."),
        Wrong("in-percent", lambda n, w, h: {k: 100 * v for k, v in ends(n, w).items()},
              "That is in percent. Shares lie between 0 and 1."),
        Wrong("points-as-shares", lambda n, w, h: needed(n, w, 100 * h),
              "That uses {h} as a share. {h} points are {h} hundredths."),
        Wrong("not-squared", lambda n, w, h: {"needed": needed(n, w, h)["needed"] ** 0.5},
              "Half the width takes four times as many examples: the count grows with the square."),
        Wrong("ratio-not-squared", lambda n, w, h: {
              "needed": (n * needed(n, w, h)["needed"]) ** 0.5},
              "That is {n} times the ratio of the half-widths. Half the width takes four times as "
              "many examples: square the ratio."),
        Wrong("full-width", lambda n, w, h: needed(n, w, h / 2),
              "That makes the whole interval {h} points wide. The question asks for the "
              "half-width."),
        Wrong("worst-case", lambda n, w, h: {"needed": (98 / h) ** 2},
              "That is for p = 1/2, where intervals are widest. Use the accuracy observed here."),
        Wrong("of-the-mistakes", lambda n, w, h: ends(n, n - w),
              "That is the interval for the share of mistakes, not for the "
              "accuracy.")))  # fmt: skip
