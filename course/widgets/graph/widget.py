"""S25, S12: autograd's graph, node by node."""

from __future__ import annotations

from typing import ClassVar

from course.widgets.base.widget import CourseWidget, widget
from course.widgets.graph.expressions import EXPRESSIONS
from course.widgets.graph.state import SECOND, Settings, frame, says
from course.widgets.graph.twin import draw


@widget(
    "graph",
    title="The graph of autograd, node by node",
    source='Lecture 3, "Autograd · the dynamic tape"; engineering module, §2',
    ledger=("S25", "S12"),
    order=12,
)
class GraphExplorer(CourseWidget):
    """Run a real backward pass node by node, and see what is saved, what flows and what remains."""

    settings_type = Settings
    frame_of, twin, says = staticmethod(frame), staticmethod(draw), staticmethod(says)
    tries = (
        "Step to the end of the first backward pass, then through a second. Then run the second "
        "through the same graph, and multiply the first leaf by −1.",
        "Only leaves get a .grad, and the second pass adds to it. Saved tensors are freed once "
        "their node has run. A closed relu passes on 0.",
    )
    player = "done"
    pace = 1500
    exported: ClassVar = {
        "expression": tuple(EXPRESSIONS),
        "done": tuple(range(17)),
        "scale": (-1.0, 1.0),
        "again": tuple(SECOND),
        "data": (False, True),
        "retain": (False, True),
    }
