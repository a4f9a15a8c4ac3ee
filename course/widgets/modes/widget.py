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
    """Give two copies the same input again and again, and count what autograd keeps."""

    settings_type = Settings
    frame_of, twin, says = staticmethod(frame), staticmethod(draw), staticmethod(says)
    tries = (
        "Press Play. Then set p to 0, and the batch size to 2 and to 128. Finally tick no_grad().",
        "In train mode the output differs each time, even at p = 0, where only the neighbours "
        "differ; eval mode repeats itself. Memory depends on no_grad(), not on the mode; masks and "
        "statistics are not affected by no_grad().",
    )
    player = "passes"
    pace = 900
