"""S21: five layers of reproducibility."""

from __future__ import annotations

from typing import ClassVar

from course.widgets.base.widget import CourseWidget, widget
from course.widgets.layers.state import Settings, frame, says
from course.widgets.layers.twin import draw


@widget(
    "layers",
    title="Five layers of reproducibility: where do two runs diverge?",
    source='Lecture 3, "Five layers of reproducibility"',
    ledger=("S21", "T26"),
    order=340,
)
class FiveLayers(CourseWidget):
    """Train the same recipe twice, with layers recorded or lost, and compare the bits."""

    settings_type = Settings
    frame_of, twin, says = staticmethod(frame), staticmethod(draw), staticmethod(says)
    player, pace = "at", 400
    tries = (
        "Tick all five: both runs have the same bits. Then untick one layer at a time; before you "
        "do, guess from which update on the losses differ.",
        "A lost seed shows at update 1, weight decay at update 2, a corrected label when its image "
        "is drawn. A tidied line or another kernel changes only the last bits, and the curves look "
        "the same.",
    )
    exported: ClassVar = {
        "environment": (True, False),
        "seed": (True, False),
        "data": (True, False),
        "config": (True, False),
        "code": (True, False),
        "at": (1, 2, 5, 10, 20, 30, 45, 60),
    }
