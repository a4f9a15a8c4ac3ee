"""How much of its time a process has used, whether or not the machine is busy with others.

The wall's clock goes on while a process waits for a core that somebody else has. The kernel counts
that waiting (/proc/PID/task/TID/schedstat), so it can be taken off: a neighbour's load then costs
nobody a point. A process that makes itself wait, by many children of its own, is held to the
processor time of them all. Nobody counts the time in which a virtual machine was paused or a disk
was slow; from outside it looks like sleep, which therefore counts for less.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from autograde.sandbox.still import read, tasks_of

STRETCH = 6.0
"""How many times a limit may pass on the wall's clock, however busy the machine is."""


ASLEEP = 0.5
"""Share that counts of the time in which it neither ran nor waited for a core."""


class Used(NamedTuple):
    """Seconds of a process and its descendants that live."""

    cpu: float
    waited: float
    """For a core, while able to run."""


@dataclass(frozen=True)
class Spent:
    """A moment from which a process's time is counted."""

    process: int
    then: Used

    @classmethod
    def from_now(cls, process: int) -> Spent:
        """Count from now on."""
        return cls(process, used_by(process))

    def waited(self, elapsed_s: float) -> float:
        """How long it has only waited for a core since, of so many seconds.

        While one of its processes ran, the others waited for that one, and not for a neighbour.
        """
        now = used_by(self.process)
        ran, waited = now.cpu - self.then.cpu, now.waited - self.then.waited
        return max(0.0, min(waited, elapsed_s - max(0.0, ran)))

    def own(self, elapsed_s: float) -> float:
        """Its own time since: the processor's, and a share of what it seems to have slept."""
        now = used_by(self.process)
        ran = max(0.0, now.cpu - self.then.cpu)
        waited = max(0.0, now.waited - self.then.waited)
        return ran + ASLEEP * max(0.0, elapsed_s - waited - ran)


def used_by(process: int) -> Used:
    """What a process and its descendants have used; nothing where that cannot be read."""
    waiting, cpu, waited = [process], 0, 0
    while waiting:
        try:
            for task in tasks_of(waiting.pop()):
                ran, delayed, _ = read(f"{task}/schedstat").split()
                cpu, waited = cpu + int(ran), waited + int(delayed)
                waiting += map(int, read(f"{task}/children").split())
        except (OSError, ValueError):
            continue
    return Used(cpu / 1e9, waited / 1e9)
