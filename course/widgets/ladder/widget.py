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
    """Climb the seven rungs with a broken set-up, and compare its one-batch curve with a fixed."""

    settings_type = Settings
    frame_of, twin, says = staticmethod(frame), staticmethod(draw), staticmethod(says)
    player, pace = "rung", 1500
    tries = (
        "Untick “name the bug”, choose a case and Play the climb. Say what is broken from the rung "
        "and the curve; then name it, and fix it.",
        "Most cases stop at rung 3, and each curve has its shape: no change, a plateau, a slow "
        "fall. Case 2 learns its batch because that holds one class. Case 12 passes all seven "
        "rungs; only its curve falls late.",
    )
