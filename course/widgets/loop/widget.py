"""S08: the production loop from its parts."""

from __future__ import annotations

from typing import ClassVar

from course.widgets.base.widget import CourseWidget, widget
from course.widgets.loop.state import Settings, frame, says
from course.widgets.loop.twin import draw


@widget(
    "loop",
    title="The production loop: its parts and their order",
    source='Training-loop chapter, c7; essay "Where the order really matters"',
    ledger=("S08",),
    order=230,
)
class ProductionLoop(CourseWidget):
    """Switch the parts of a training loop on and off; the code shown is the code that runs."""

    settings_type = Settings
    frame_of, twin, says = staticmethod(frame), staticmethod(draw), staticmethod(says)
    tries = (
        "Put clipping before unscale_(), then after the step. Then switch parts on and off, "
        "seeding last.",
        "Unscale, clip, step, update, schedule: the run learns. If gradients are clipped while "
        "still scaled, they are divided by the scale afterwards, and nothing moves; after the "
        "step, clipping has no effect. None of these orders raises an error.",
    )
    exported: ClassVar = {
        "precision": (False, True),
        "clipping": (False, True),
        "order": ("legal", "clip_early", "clip_late", "schedule_inside"),
    }
