"""Learning-rate schedules, two at a time."""

from __future__ import annotations

from typing import ClassVar

from course.widgets.base.widget import CourseWidget, widget
from course.widgets.schedules.state import SCHEDULES, UNITS, Settings, frame, says
from course.widgets.schedules.twin import draw


@widget(
    "schedules",
    title="Two learning-rate schedules, update by update",
    source='Lecture 3, "Learning-rate schedules"; annotated-loop essay, operation 8',
    ledger=("C31", "F59", "F76"),
    order=220,
)
class TwoSchedules(CourseWidget):
    """Compare two schedules and their runs; step one of them in the wrong unit."""

    settings_type = Settings
    frame_of, twin, says = staticmethod(frame), staticmethod(draw), staticmethod(says)
    tries = (
        "Lower the highest rate to 0.03. Back at 0.3, give the length of the second in epochs but "
        "step it per update, and go through the shapes.",
        "Decay helps if the constant rate is too high to settle, and hurts if it is not. In the "
        "wrong unit, a cosine rises again, a step schedule falls to almost nothing, and one cycle "
        "raises an error.",
    )
    exported: ClassVar = {
        "first": tuple(SCHEDULES),
        "second": tuple(SCHEDULES),
        "unit": tuple(UNITS),
        "lr": (0.03, 0.3),
    }
