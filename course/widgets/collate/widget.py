"""S03, S02: sampling and collation."""

from __future__ import annotations

from course.widgets.base.widget import CourseWidget, widget
from course.widgets.collate.state import Settings, frame, says
from course.widgets.collate.twin import draw


@widget(
    "collate",
    title="From examples to batches: sample, group, pad",
    source="Training-loop chapter, c1 and c2",
    ledger=("S02", "S03"),
    order=30,
)
class SamplingAndCollation(CourseWidget):
    """Follow fifty numbered examples through sampler, batches and padding."""

    settings_type = Settings
    frame_of, twin, says = staticmethod(frame), staticmethod(draw), staticmethod(says)
    tries = (
        "Try all four orders and walk through the batches. Tick drop_last and change the epoch.",
        "In order, whole batches hold one class. Weighting evens the classes out, but repeats some "
        "examples and skips others. One long member pads its whole batch. drop_last loses other "
        "examples in each epoch.",
    )
    player = "at"
    pace = 1000
    slow = ("data",)
