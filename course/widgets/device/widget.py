"""S28: CPU, GPU, or the loader first?"""

from __future__ import annotations

from typing import ClassVar

from course.widgets.base.widget import CourseWidget, widget
from course.widgets.device.cost import NETWORKS
from course.widgets.device.state import GPUS, Settings, frame, says
from course.widgets.device.twin import draw


@widget(
    "device",
    title="CPU, GPU, or the loader first?",
    source="AI/ML engineering module, section 5",
    ledger=("S28",),
    order=350,
)
class DeviceDecision(CourseWidget):
    """Ask three questions about a training step, and see where the numbers lead."""

    settings_type = Settings
    frame_of, twin, says = staticmethod(frame), staticmethod(draw), staticmethod(says)
    tries = (
        "Choose the perceptron for 8 × 8, then the convolutions for 224 × 224. Raise the batch "
        "size, and set loading to 10 ms.",
        "The small step is queueing, not arithmetic, so the CPU is the answer. The large one needs "
        "a GPU as long as its batch fits, and a slow loader makes the GPU wait. The speeds are "
        "assumed round numbers; arithmetic and memory are counted.",
    )
    exported: ClassVar = {
        "network": tuple(NETWORKS),
        "batch_size": (1, 16, 64, 256, 1024),
        "bf16": (False, True),
        "gpu": GPUS,
        "load_ms": (0.01, 0.1, 1.0, 10.0),
        "workers": (0, 4, 16),
    }
