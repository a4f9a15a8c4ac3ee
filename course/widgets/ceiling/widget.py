"""S20: ceiling analysis of a pipeline that runs."""

from __future__ import annotations

from typing import ClassVar

from course.widgets.base.widget import CourseWidget, widget
from course.widgets.ceiling.state import Settings, frame, says
from course.widgets.ceiling.twin import draw


@widget(
    "ceiling",
    title="Ceiling analysis: replace a stage by the truth",
    source="Lecture 3, ceiling analysis for pipelines",
    ledger=("S20", "N25"),
    order=330,
)
class CeilingBoard(CourseWidget):
    """Replace stages of a code reader by the truth, alone and together."""

    settings_type = Settings
    frame_of, twin, says = staticmethod(frame), staticmethod(draw), staticmethod(says)
    tries = (
        "Make the classifier perfect. Then undo that, and make the detector perfect instead; then "
        "both.",
        "The classifier's bar is the longest, since its oracle hides the errors of the detector "
        "before it. Stage by stage (diamonds), most is lost in the detector, and once that is "
        "perfect, little is left for the classifier: single gains do not add up.",
    )
    exported: ClassVar = {
        "noise": (0.0, 0.5, 1.0, 4.0),
        "num_train": (50, 200),
        "num_known": (60, 1_000),
        "detector": (False, True),
        "classifier": (False, True),
        "corrector": (False, True),
    }
