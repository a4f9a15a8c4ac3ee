"""S22: gradient clipping in the plane, and accumulation windows."""

from __future__ import annotations

from typing import ClassVar

from course.widgets.base.widget import CourseWidget, widget
from course.widgets.clipping.state import Settings, frame, says
from course.widgets.clipping.twin import draw


@widget(
    "clipping",
    title="Accumulate, then clip: a gradient in the plane",
    source="Lecture 3, gradient accumulation and clipping",
    ledger=("S22",),
    order=210,
)
class ClippingPlane(CourseWidget):
    """Add the gradients of micro-batches tip to tail, then clip the sum in two ways."""

    settings_type = Settings
    frame_of, twin, says = staticmethod(frame), staticmethod(draw), staticmethod(says)
    tries = (
        "Clip each number instead of the joint norm. Then take K = 4 and change the factor 1 / K.",
        "One factor for both numbers keeps the direction; clipping each number alone changes it. "
        "If the last micro-batch is short, only weights by the share of examples give the big "
        "batch's gradient.",
    )
    exported: ClassVar = {
        "first": (-4.0, 0.5, 3.0),
        "second": (1.0, 4.0),
        "max_norm": (0.5, 1.0, 2.0, 4.0, 8.0),
        "way": ("norm", "value"),
        "accum_steps": (1, 2, 4),
        "weighed": ("examples", "equal", "sum"),
        "when": ("window", "micro"),
    }
