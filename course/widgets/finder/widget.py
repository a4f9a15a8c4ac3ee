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
        "Set the weight of the past to 0 and try to find the minimum. Then choose a rate a hundred "
        "times smaller, and one a hundred times larger. Then choose Adam.",
        "Raw losses jump, and smoothing shifts the minimum to the right. A decade below it the "
        "network learns; at a rate a hundred times smaller the loss hardly moves, and at one a "
        "hundred times larger the run diverges. Adam's curve is far to the left of SGD's.",
    )
    exported: ClassVar = {
        "optimizer": ("SGD", "Adam"),
        "sweeps": (1, 3),
        "smoothing": (0.0, 0.5, 0.9, 0.98),
        "rate": RATES,
        "seed": (0, 1),
    }
