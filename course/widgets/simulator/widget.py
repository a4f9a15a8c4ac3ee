"""S07, S10: the training simulator."""

from __future__ import annotations

from typing import ClassVar

from course.widgets.base.live import LiveWidget
from course.widgets.base.widget import widget
from course.widgets.simulator.state import Settings, SimulatedRun, says
from course.widgets.simulator.twin import draw


@widget(
    "simulator",
    title="Training simulator: three spiral arms",
    source="Training-loop chapter, c6; annotated-loop essay, lead animation",
    ledger=("S07", "S10"),
    order=70,
)
class TrainingSimulator(LiveWidget):
    """Train a small network live, next to the same network with one thing changed."""

    settings_type, run_type = Settings, SimulatedRun
    twin, says = staticmethod(draw), staticmethod(says)
    tries = (
        "Press Play. Then choose an experiment under “compare with”, guess what will happen, and "
        "play it.",
        "The boundary sharpens while the loss falls. Of the chapter's five predictions, two hold "
        "in direction and three fail: the note under the controls says what was measured.",
    )
    slow = ("points",)
    ahead = 200
    recordings: ClassVar = {
        "Adam at 0.01 and experiment 1: Adam at 1": {"other": "adam 1"},
        "Adam at 0.01 and experiment 2: SGD at 0.01": {"other": "sgd"},
        "Adam at 0.01 and experiment 3: no zero_grad()": {"other": "uncleared"},
        "Adam at 0.01 and experiment 4: losses kept": {"other": "graph kept"},
        "Adam at 0.01 and experiment 5: cosine": {"other": "cosine"},
    }
    moments = (21, 20)
