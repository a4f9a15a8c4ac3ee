"""S04, S23, S27: anatomy of one training step."""

from __future__ import annotations

from typing import ClassVar

from course.widgets.anatomy.state import Settings, frame, says
from course.widgets.anatomy.twin import draw
from course.widgets.base.widget import CourseWidget, widget


@widget(
    "anatomy",
    title="Anatomy of one step: six operations, every tensor",
    source="Training-loop chapter, c3; engineering module, §1 and §4",
    ledger=("S04", "S23", "S27"),
    order=40,
)
class StepAnatomy(CourseWidget):
    """Walk through a training step, and watch which tensors each operation changes."""

    settings_type = Settings
    frame_of, twin, says = staticmethod(frame), staticmethod(draw), staticmethod(says)
    tries = (
        "Step through all six. Then remove zero_grad() and walk through two updates.",
        "Only one operation changes the weights. .grad is still there after the update: without "
        "zero_grad() the next backward() adds to it. If it is cleared after backward(), nothing is "
        "learnt.",
    )
    player = "done"
    pace = 1500
    exported: ClassVar = {
        "done": tuple(range(13)),
        "order": ("right", "never", "late"),
        "lr": (0.001, 0.01, 0.05, 0.1, 0.3, 0.5),
    }
