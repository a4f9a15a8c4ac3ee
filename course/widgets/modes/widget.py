"""S05: train mode against eval mode."""

from __future__ import annotations

from course.widgets.base.widget import CourseWidget, widget
from course.widgets.modes.state import Settings, frame, says
from course.widgets.modes.twin import draw


@widget(
    "modes",
    title="Train mode against eval mode: one network, two copies",
    source="Training-loop chapter, c4",
    ledger=("S05",),
    order=50,
)
class TrainAgainstEval(CourseWidget):
    """Ask two copies the same thing again and again, and count what autograd keeps."""

    settings_type = Settings
    frame_of, twin, says = staticmethod(frame), staticmethod(draw), staticmethod(says)
    tries = (
        "Play. Then set p to 0, and the batch size to 2 and to 128. Tick no_grad() at the end.",
        "Train mode answers differently each time, even at p = 0, where only neighbours differ; "
        "eval mode repeats itself. Memory follows no_grad(), not the mode; masks and statistics do "
        "not care about no_grad().",
    )
    player = "passes"
    pace = 900
