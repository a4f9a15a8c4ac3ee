"""S14: where a number lands in three formats."""

from __future__ import annotations

from course.widgets.base.widget import CourseWidget, widget
from course.widgets.precision.state import Settings, frame, says
from course.widgets.precision.twin import draw


@widget(
    "precision",
    title="What a number becomes in FP32, FP16 and BF16",
    source='Lecture 3, "Mixed precision · BF16 is the 2026 default"',
    ledger=("S14",),
    order=200,
)
class NumberFormats(CourseWidget):
    """Store a number in three formats, flip its bits, and rescue a small one with a loss scale."""

    settings_type = Settings
    frame_of, twin, says = staticmethod(frame), staticmethod(draw), staticmethod(says)
    tries = (
        "Scale 1e-8 by 2¹⁶. Then move the number to 0.1, 2,049 and 70,000. Click a bit to flip it.",
        "FP16 loses 1e-8 unless it is scaled, and 70,000 in any case; BF16 keeps both, but stores "
        "2,049 as 2,048. An exponent bit multiplies, a mantissa bit adds.",
    )
    slow = ("curves",)
