"""S24, S26: ranks, and a classifier's shapes."""

from __future__ import annotations

from course.widgets.base.widget import CourseWidget, widget
from course.widgets.shapes.state import Settings, frame, says
from course.widgets.shapes.twin import draw


@widget(
    "shapes",
    title="Shapes: from a batch of images to a loss without dimensions",
    source="Engineering module, §1 and §3",
    ledger=("S24", "S26"),
    order=14,
)
class ShapesAndRanks(CourseWidget):
    """Follow a batch through a classifier, and see what each rank means and what goes wrong."""

    settings_type = Settings
    frame_of, twin, says = staticmethod(frame), staticmethod(draw), staticmethod(says)
    tries = (
        "Press Play. Change the batch size, then the width. Move the rank from 5 to 0; there, set "
        "the batch size to 1.",
        "The batch size changes tensors but no parameters; the width changes both. Every common "
        "mistake raises an error, but a batch of one hides a loss that was not averaged.",
    )
    player = "at"
