"""S19: the board of error buckets."""

from __future__ import annotations

from course.widgets.base.widget import CourseWidget, widget
from course.widgets.buckets.state import Settings, frame, says
from course.widgets.buckets.twin import draw


@widget(
    "buckets",
    title="Error buckets: count before you act",
    source='Lecture 3, "Error analysis · categorize, then prioritize"',
    ledger=("S19",),
    order=325,
)
class ErrorBuckets(CourseWidget):
    """Sort a network's real mistakes into buckets, merge them, and see how much each could gain."""

    settings_type = Settings
    frame_of, twin, says = staticmethod(frame), staticmethod(draw), staticmethod(says)
    slow = ("images",)
    tries = (
        "Look at ten mistakes, then at all of them, then at the most confident. Then merge both "
        "buckets with 8, as if one remedy would help both.",
        "With ten mistakes, the intervals are wider than the bars are long. The most confident "
        "mistakes have different shares, so they are not a fair sample. Merging changes which "
        "bucket comes first: a bucket is what a single action could empty.",
    )
