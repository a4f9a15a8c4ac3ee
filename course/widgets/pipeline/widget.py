"""S13, S30: loader and model on one clock."""

from __future__ import annotations

from typing import ClassVar

from course.widgets.base.widget import CourseWidget, widget
from course.widgets.pipeline.state import Settings, frame, says
from course.widgets.pipeline.twin import draw


@widget(
    "pipeline",
    title="Data pipeline: which side waits",
    source='Lecture 3, "Dataset → DataLoader → device"; training-loop chapter, c3',
    ledger=("S13", "S30"),
    order=35,
)
class DataPipeline(CourseWidget):
    """Set how long loading and computing take, add workers, and watch the idle gaps close."""

    settings_type = Settings
    frame_of, twin, says = staticmethod(frame), staticmethod(draw), staticmethod(says)
    tries = (
        "Add workers one by one. At 4, change prefetch_factor. Then make one batch in 7 take 8 "
        "times as long, and change it again.",
        "The model's gaps close until the loading time of a batch, divided by the number of "
        "workers, is as short as the step; further workers only wait. Loading ahead does not help "
        "if all batches take equally long, but it bridges a slow one.",
    )
    exported: ClassVar = {
        "num_workers": (0, 1, 2, 3, 4),
        "load_ms": (10, 30, 80),
        "step_ms": (10, 40),
        "prefetch_factor": (1, 2, 4),
        "slow_factor": (1, 8),
    }
