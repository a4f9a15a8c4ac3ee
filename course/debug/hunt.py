"""Counting the faults of a project whose number of planted faults is known.

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
    """Climbs again and again, and counts at how many different faults a climb stopped.

    A fault is the rung and the class at which a climb stopped. A project that reaches the top has
    none left, so all of them count as found, also those fixed together or without being shown.
    """

    def __init__(self, planted: int) -> None:
        """Args:
        planted: How many faults the project has, each of which alone stops a climb.

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
            asked: Arguments of `climb`.
        """
        self.last = climb(setup, **asked)
        if self.last.failed is not None:
            stop = (self.last.failed.number, self.last.cause)
            if stop not in self.stops:
                self.stops.append(stop)
        return self.last

    @property
    def found(self) -> int:
        """All of them at the top; before it at most one fewer than planted are fixed."""
        if self.last is not None and self.last.passed:
            return self.planted
        return min(len(self.stops), self.planted)

    def __str__(self) -> str:
        said = f"{self.found} of {self.planted} faults found"
        if self.last is None:
            return f"{said}: climb first."
        if self.last.passed:
            return f"{said}, and the climb reaches rung {self.last.rungs[-1].number}."
        return f"{said}: fix rung {self.last.failed.number} and climb again."

    def _repr_html_(self) -> str:
        return f"<p>{self}</p>"
