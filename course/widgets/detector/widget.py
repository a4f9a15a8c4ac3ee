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
    """Switch bugs on, alone and together, and identify those of a mystery run from its log."""

    settings_type = Settings
    frame_of, twin, says = staticmethod(frame), staticmethod(draw), staticmethod(says)
    tries = (
        "Switch on one bug at a time, and look for the symptom that reveals it. Then choose a "
        "mystery, and set the switches until both runs are equal.",
        "With three of the six, the loss still looks fine: without train() it is even lower, kept "
        "graphs show only in memory, and a leak shows as a validation accuracy far above that on "
        "unseen images.",
    )
    exported: ClassVar = {
        **{name: (False, True) for name in BUGS},
        "beside": (HEALTHY, *MYSTERIES),
    }
