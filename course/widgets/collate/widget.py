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
        "Try all four orders, and walk through the batches. Tick drop_last, and change the epoch.",
        "In stored order, whole batches hold a single class. Weighting balances the classes, but "
        "repeats some examples and skips others. One long sequence pads its whole batch. drop_last "
        "loses different examples in each epoch.",
    )
    player = "at"
    pace = 1000
    slow = ("data",)
