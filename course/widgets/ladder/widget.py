"""S16, S17: the debug ladder, and overfitting one batch."""

from __future__ import annotations

from course.widgets.base.widget import CourseWidget, widget
from course.widgets.ladder.state import Settings, frame, says
from course.widgets.ladder.twin import draw


@widget(
    "ladder",
    title="The debug ladder: where does the climb stop?",
    source='Lecture 3, "The ladder" and "Rung 3 · overfit one batch"',
    ledger=("S16", "S17"),
    order=315,
)
class DebugLadder(CourseWidget):
    """Climb the seven rungs with a broken set-up, and compare its curve with that of the fixed."""

    settings_type = Settings
    frame_of, twin, says = staticmethod(frame), staticmethod(draw), staticmethod(says)
    player, pace = "rung", 1500
    tries = (
        "Untick “name the bug”, choose a case and play the climb. From the rung and the curve, say "
        "what is broken; then tick “name the bug”, and fix it.",
        "Most cases stop at rung 3, and each curve has its own shape: no change, a plateau, a slow "
        "fall. Case 2 learns its batch only because the batch holds a single class. Case 12 passes "
        "all seven rungs; only its curve falls late.",
    )
