"""03f.seeds: how many seeds an interval of a given width takes, in pairs and without."""

from math import ceil, floor, sqrt

from autograde.exercise import Part, Wrong
from autograde.kinds import Number

STUDENTS_T = {5: 2.7764, 6: 2.5706, 7: 2.4469, 8: 2.3646}
"""Its 97.5 % quantile by number of seeds."""


def counts(r, s, w, z=1.96):
    """Seeds for ± w, which is z standard errors, with pairs and without."""
    return {"pairs": ceil((z * s / w) ** 2), "apart": ceil(2 * (z * r / w) ** 2)}


EXERCISE = Number(
    id="03f.seeds", title="how many seeds", minutes=8, difficulty=2, ledger=("T27", "N23"),
    source='Lecture 3, "Ablation discipline"', read=("course.analysis.ablation.paired_interval",),
    hints=("The mean of n differences varies less than a single difference. By what factor?",
           "The half-width is 1.96 s/√n. Solve for n, and round so that the interval is narrow "
           "enough.",
           "⌈(1.96 s/w)²⌉. Without pairs, a difference varies √2 times as much as a single run."),
    question="Over seeds, the runs of one setting have a standard deviation of {r} points; the "
    "differences between two settings, seed by seed, have one of {s}. Use ± 1.96 standard errors "
    "of the mean difference, however few the seeds. What is the smallest number of seeds for which "
    "this ± is at most {w} points, with and without pairs? And how large is it with {k} seeds in "
    "pairs?",
    inputs={"r": [0.5, 0.6, 0.7, 0.8, 0.9], "s": [0.34, 0.38, 0.42, 0.47, 0.53],
            "w": [0.11, 0.13, 0.14, 0.16, 0.17], "k": [5, 6, 7, 8]},
    answer=lambda r, s, w, k: {**counts(r, s, w), "width": 1.96 * s / sqrt(k)},
    parts=(Part("pairs", "seeds, if both settings run with the same ones", points=1),
           Part("apart", "runs per setting, if each setting has its own seeds", points=1),
           Part("width", "the ± in points with {k} seeds, in pairs", points=1)),
    wrong=(
        Wrong("not-squared", lambda r, s, w, k: {
            "pairs": ceil(1.96 * s / w), "apart": ceil(1.96 * sqrt(2) * r / w)},
              "That would fit an error that falls with n. The error of a mean falls with √n, so "
              "square it."),
        Wrong("rounded-down", lambda r, s, w, k: {"pairs": floor((1.96 * s / w) ** 2)},
              "That is rounded down, so the interval is a little wider than ± {w}."),
        Wrong("one-error", lambda r, s, w, k: {**counts(r, s, w, 1), "width": s / sqrt(k)},
              "That uses one standard error, about 68 %. For 95 % use 1.96 of them."),
        Wrong("both-settings", lambda r, s, w, k: {"apart": 2 * counts(r, s, w)["apart"]},
              "That is the number of runs of both settings together. Give the runs per setting."),
        Wrong("no-root-of-two", lambda r, s, w, k: {"apart": ceil((1.96 * r / w) ** 2)},
              "Both settings vary, each by {r}, so their difference varies by √2 times {r}."),
        Wrong("other-scatter", lambda r, s, w, k: {
            "pairs": counts(s, r, w)["pairs"], "width": 1.96 * r / sqrt(k)},
              "That uses the standard deviation of single runs, {r}, not that of the differences, "
              "{s}."),
        Wrong("of-the-pairs", lambda r, s, w, k: {"apart": ceil(2 * (1.96 * s / w) ** 2)},
              "That uses the standard deviation of the differences, {s}. Without pairs, that of "
              "the runs counts: {r}."),
        Wrong("not-in-pairs", lambda r, s, w, k: {"width": 1.96 * r * sqrt(2 / k)},
              "That is the ± where each setting has its own seeds. In pairs, use {s}, the standard "
              "deviation of the differences."),
        Wrong("whole-width", lambda r, s, w, k: {
            **counts(r, s, w / 2), "width": 2 * 1.96 * s / sqrt(k)},
              "That is for the width from end to end. The ± is half of it."),
        Wrong("single-difference", lambda r, s, w, k: {"width": 1.96 * s},
              "That leaves out √n: the mean of {k} varies √{k} times less than one difference."),
        Wrong("divided-by-k", lambda r, s, w, k: {"width": 1.96 * s / k},
              "That divides by {k}. The error of a mean falls with √{k}."),
        Wrong("students-t", lambda r, s, w, k: {"width": STUDENTS_T[k] * s / sqrt(k)},
              "That is Student's t interval for {k} seeds. Use 1.96 standard errors here."),
    ),
)  # fmt: skip
