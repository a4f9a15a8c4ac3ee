"""S06: the bug detector."""

from __future__ import annotations

from typing import ClassVar

from course.widgets.base.widget import CourseWidget, widget
from course.widgets.detector.runs import BUGS
from course.widgets.detector.state import HEALTHY, MYSTERIES, Settings, frame, says
from course.widgets.detector.twin import draw


@widget(
    "detector",
    title="Bug detector: six switches, one log",
    source="Training-loop chapter, c5",
    ledger=("S06",),
    order=60,
)
class BugDetector(CourseWidget):
    """Switch bugs on, alone and together, and find those of a mystery run by its log."""

    settings_type = Settings
    frame_of, twin, says = staticmethod(frame), staticmethod(draw), staticmethod(says)
    tries = (
        "Switch on one bug at a time and look for the trace that shows it. Then choose a mystery, "
        "and set the switches until both runs are the same.",
        "Three of the six leave the loss looking fine: without train() it is even lower, kept "
        "graphs show in memory alone, and a leak in a validation far above unseen images.",
    )
    exported: ClassVar = {
        **{name: (False, True) for name in BUGS},
        "beside": (HEALTHY, *MYSTERIES),
    }
