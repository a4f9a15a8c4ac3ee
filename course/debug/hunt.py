"""Count the faults found in a project whose number of planted faults is known.

    hunt = FaultHunt(4)
    hunt.climb(broken_project())      # 1 of 4 faults found ... fix it, run the cell again
    hunt.climb(broken_project())      # 4 of 4 faults found

Source: Lecture 1, "The debug ladder"; ledger T21.
"""

from __future__ import annotations

from typing import Any

from course.debug.climbed import LadderReport
from course.debug.ladder import climb


class FaultHunt:
    """Climbs again and again, and counts the different faults at which a climb stopped.

    A fault is the rung and the class at which a climb stopped. A project that reaches the top has
    none left, so all of them then count as found, including those fixed together or before a climb
    showed them.
    """

    def __init__(self, planted: int) -> None:
        """Args:
        planted: How many faults the project has; each of them alone stops a climb.

        Raises:
            ValueError: Fewer than one.
        """
        if planted < 1:
            raise ValueError(f"planted = {planted}: a hunt needs at least 1 fault.")
        self.planted = planted
        self.stops: list[tuple[int, str]] = []
        """Rung and class of each different fault, in the order in which they were met."""
        self.last: LadderReport | None = None

    def climb(self, setup: Any, **asked: Any) -> LadderReport:
        """Climb, and count the fault at which the climb stopped.

        Args:
            setup: What `climb` takes.
            asked: Further arguments of `climb`.
        """
        self.last = climb(setup, **asked)
        if self.last.failed is not None:
            stop = (self.last.failed.number, self.last.cause)
            if stop not in self.stops:
                self.stops.append(stop)
        return self.last

    @property
    def found(self) -> int:
        """All of them once a climb reaches the top; before that, at most one fewer."""
        if self.last is not None and self.last.passed:
            return self.planted
        return min(len(self.stops), self.planted)

    def __str__(self) -> str:
        said = f"{self.found} of {self.planted} faults found"
        if self.last is None:
            return f"{said}: call climb() first."
        if self.last.passed:
            return f"{said}, and the climb reaches rung {self.last.rungs[-1].number}."
        return f"{said}: fix rung {self.last.failed.number} and climb again."

    def _repr_html_(self) -> str:
        return f"<p>{self}</p>"
