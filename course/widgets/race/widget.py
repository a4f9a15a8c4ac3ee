"""Two optimizers race down the same loss surface."""

from __future__ import annotations

from typing import ClassVar

from course.widgets.base.widget import CourseWidget, widget
from course.widgets.race.state import OPTIMIZERS, UPDATES, Settings, frame, says
from course.widgets.race.surfaces import SURFACES
from course.widgets.race.twin import draw


@widget(
    "race",
    title="Two optimizers race down a loss surface",
    source='training-loop essay, "The weight update"',
    ledger=("T17", "F64", "F149"),
    order=215,
)
class OptimizerRace(CourseWidget):
    """Choose a surface, two optimizers and their learning rates, and play the race."""

    settings_type = Settings
    frame_of, twin, says = staticmethod(frame), staticmethod(draw), staticmethod(says)
    player, pace = "update", 300
    slow = ("surface",)
    tries = (
        "Race RMSprop against Adam at rate 0.1, rotate the valley, and multiply the loss by 100. "
        "Then race SGD against momentum at 0.01 and at 0.07.",
        "Both scale each weight separately: this helps in a valley along a weight's axis, less in "
        "a rotated one, and a factor of the loss does not matter. Momentum arrives where plain SGD "
        "creeps, and overshoots where SGD is already fast.",
    )
    exported: ClassVar = {
        "surface": tuple(SURFACES),
        "first": tuple(OPTIMIZERS),
        "second": ("momentum", "Adam"),
        "first_lr": (0.01, 0.07, 0.1),
        "second_lr": (0.01, 0.07, 0.1),
        "times": (1.0, 100.0),
        "update": (15, 40, UPDATES),
    }
