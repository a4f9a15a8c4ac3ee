"""S11: what a module registers."""

from __future__ import annotations

from course.widgets.base.widget import CourseWidget, widget
from course.widgets.registry.state import Settings, frame, says
from course.widgets.registry.twin import draw


@widget(
    "registry",
    title="What a module registers: trained, moved, saved",
    source='Lecture 3, "nn.Module · the container"',
    ledger=("S11",),
    order=15,
)
class ModuleRegistry(CourseWidget):
    """Store a tensor and two layers in different ways, and see which operations reach them."""

    settings_type = Settings
    frame_of, twin, says = staticmethod(frame), staticmethod(draw), staticmethod(says)
    tries = (
        "Step through the five operations. Then make the list an nn.ModuleList, and try each way "
        "to store scale.",
        "Layers in a list get a .grad, but step() does not move them, and after .to() the forward "
        "pass fails. A buffer is moved and saved but not trained; with persistent=False it is not "
        "saved either.",
    )
    player = "at"
    pace = 1800
