"""S01: the training arithmetic calculator."""

from __future__ import annotations

from typing import ClassVar

from course.widgets.arithmetic.state import Settings, frame, says
from course.widgets.arithmetic.twin import draw
from course.widgets.base.widget import CourseWidget, widget


@widget(
    "arithmetic",
    title="Training arithmetic: passes, updates, examples",
    source="Training-loop chapter, c0",
    ledger=("S01",),
    order=10,
)
class TrainingArithmetic(CourseWidget):
    """Count forward passes, updates and examples of a run, and see the uneven end of an epoch."""

    settings_type = Settings
    frame_of, twin, says = staticmethod(frame), staticmethod(draw), staticmethod(says)
    tries = (
        "Move K from 1 to 4, then double B.",
        "K divides the number of updates but does not change the forward passes; doubling B halves "
        "both. With K = 4, the formula and the chapter's printed loop disagree: 237 updates "
        "against 234.",
    )
    player = "at"
    exported: ClassVar = {
        "num_examples": (1_000, 10_000, 50_000),
        "batch_size": (16, 32, 64, 128),
        "accum_steps": (1, 2, 4),
        "drop_last": (False, True),
        "remainder": ("flush", "drop", "carry"),
        "at": (1, 2, 3, 4, 5, 6, 7, 8),
    }
