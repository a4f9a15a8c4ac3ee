"""The plots of the class page, as SVG inside the page; each also says in words what it shows.

The colours stand for the page's own, which differ by light and dark.
"""

from __future__ import annotations

import io
import math
import re
from typing import Any

from autograde.classroom.statistics import ExerciseStatistics, median

INK, ACCENT, SOFT = "#010203", "#040506", "#070809"
"""What a plot is drawn with, and `_svg` exchanges for the page's colours."""


def score_words(scores: list[float], best: float) -> str:
    """Describe the distribution in a sentence."""
    if not scores:
        return "Nobody has a grade yet, so there is no distribution of scores."
    if len(scores) == 1:
        return f"One student has a grade: {scores[0]:g} of {best:g} points."
    if min(scores) == max(scores):
        return f"All {len(scores)} students have the same score: {scores[0]:g} of {best:g} points."
    mean = sum(scores) / len(scores)
    return (
        f"{len(scores)} students have a grade: from {min(scores):g} to {max(scores):g} of {best:g} "
        f"points; mean {mean:.1f}, median {median(scores):g}."
    )


def score_plot(scores: list[float], best: float) -> str:
    """Histogram of the students' points, as SVG; empty if a sentence says it all."""
    if len(scores) < 2 or best <= 0:
        return ""
    figure, axes = _figure(height=2.4)
    top = max(best, *scores)
    width = max(1, math.ceil(top / 25))  # whole points, so that each bar says which
    edges = [width * i - 0.5 for i in range(math.ceil((top + 1) / width) + 1)]
    heights, _, _ = axes.hist(scores, bins=edges, color=ACCENT, rwidth=0.85)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel(f"points of {best:g}")
    axes.set_ylabel("students")
    axes.yaxis.get_major_locator().set_params(integer=True)
    fullest = int(heights.argmax())
    low, high = math.ceil(edges[fullest]), math.floor(edges[fullest + 1])
    where = f"{low}" if low == high else f"{low} to {high}"
    return _svg(
        figure,
        "scores",
        f"Histogram of {len(scores)} scores. {score_words(scores, best)} The tallest bar: "
        f"{heights[fullest]:g} with about {where} points.",
    )


def exercise_plot(exercises: list[ExerciseStatistics]) -> str:
    """Difficulty and discrimination of each exercise, as SVG; empty if there is none."""
    shown = [exercise for exercise in exercises if exercise.difficulty is not None]
    if not shown:
        return ""
    figure, axes = _figure(height=0.9 + 0.42 * len(shown))
    places = range(len(shown))
    axes.barh([i - 0.18 for i in places], [e.difficulty for e in shown], 0.34, color=ACCENT)
    with_d = [
        (i + 0.18, e.discrimination) for i, e in enumerate(shown) if e.discrimination is not None
    ]
    axes.barh([y for y, _ in with_d], [d for _, d in with_d], 0.34, color=SOFT)
    axes.set_yticks(list(places), [exercise.name for exercise in shown])
    axes.invert_yaxis()
    axes.axvline(0, color=INK, linewidth=0.8)
    lowest = min([0.0, *(d for _, d in with_d)])
    axes.set_xlim(lowest - 0.05 if lowest < 0 else 0, 1.05)
    axes.set_xlabel("upper bar: p, share of points; lower bar: D, upper minus lower 27 %")
    words = "; ".join(
        f"{e.name}: p {e.difficulty:.2f}"
        + (f", D {e.discrimination:.2f}" if e.discrimination is not None else "")
        for e in shown
    )
    return _svg(figure, "exercises", f"Bars for each exercise. {words}. The table has the numbers.")


def _figure(height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, height), layout="constrained")
    axes = figure.add_subplot()
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(INK)
    axes.tick_params(colors=INK)
    axes.xaxis.label.set_color(INK)
    axes.yaxis.label.set_color(INK)
    return figure, axes


def _svg(figure: Any, name: str, words: str) -> str:
    """A figure as an SVG element that takes the page's colours and says in words what it shows."""
    import matplotlib
    from markupsafe import Markup, escape

    settings = {"svg.fonttype": "none", "svg.hashsalt": name, "text.parse_math": False}
    text = io.StringIO()
    with matplotlib.rc_context(settings):
        figure.savefig(text, format="svg", transparent=True)
    svg = text.getvalue()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", svg)
    for colour, variable in ((INK, "--ink"), (ACCENT, "--accent"), (SOFT, "--soft")):
        svg = svg.replace(colour, f"var({variable})")
    label = f'<svg role="img" aria-labelledby="{name}-words" '
    title = f'<title id="{name}-words">{escape(words)}</title>'
    return Markup(svg.replace("<svg ", label, 1).replace(">", f">{title}", 1))
