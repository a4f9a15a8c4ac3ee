"""S18: the learning-rate finder."""

from __future__ import annotations

from typing import ClassVar

from course.widgets.base.widget import CourseWidget, widget
from course.widgets.finder.state import RATES, Settings, frame, says
from course.widgets.finder.twin import draw


@widget(
    "finder",
    title="Learning-rate finder: a sweep, and the truth next to it",
    source='Lecture 3, "Rung 5 · the learning-rate finder"',
    ledger=("S18",),
    order=320,
)
class RateFinder(CourseWidget):
    """Sweep the learning rate, read a rate off the curve, and train with it and with others."""

    settings_type = Settings
    frame_of, twin, says = staticmethod(frame), staticmethod(draw), staticmethod(says)
    tries = (
        "Set smoothing to 0 and try to find the minimum. Then take a rate a hundred times smaller, "
        "and one a hundred times larger. Choose Adam.",
        "Raw losses jump, and smoothing moves the minimum to the right. A decade below it the rate "
        "learns; a hundred times smaller it hardly moves, a hundred times larger the run is lost. "
        "Adam's curve lies far to the left of SGD's.",
    )
    exported: ClassVar = {
        "optimizer": ("SGD", "Adam"),
        "sweeps": (1, 3),
        "smoothing": (0.0, 0.5, 0.9, 0.98),
        "rate": RATES,
        "seed": (0, 1),
    }
