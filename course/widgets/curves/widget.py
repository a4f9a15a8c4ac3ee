"""S15: what does this curve say?"""

from __future__ import annotations

from typing import ClassVar

from course.widgets.base.widget import CourseWidget, widget
from course.widgets.curves.state import NOBODY, RUNS, Settings, frame, says
from course.widgets.curves.twin import draw


@widget(
    "curves",
    title="What does this curve say?",
    source='Lecture 3, "Training curves · the diagnostic language"',
    ledger=("S15",),
    order=310,
)
class TrainingCurves(CourseWidget):
    """Read recorded runs epoch by epoch, one alone or two on the same axes."""

    settings_type = Settings
    frame_of, twin, says = staticmethod(frame), staticmethod(draw), staticmethod(says)
    player, pace = "epochs", 400
    slow = ("runs",)
    tries = (
        "Untick the reading, play run 3 and name its state; then tick it. Do the same with run 4, "
        "and compare run 2 with run 5.",
        "Run 3 is best long before its end, which the training loss alone does not show. Run 4's "
        "validation loss jumps because it is measured on 16 images: the interval of its accuracy "
        "is wide. In run 5 the training loss jumps, for one epoch.",
    )
    exported: ClassVar = {
        "run": tuple(RUNS),
        "other": (NOBODY, "run 2", "run 5"),
        "epochs": (1, 4, 6, 8, 12, 16, 18, 20, 24, 30, 36, 45),
        "patience": (0, 5),
        "reading": (True, False),
    }
