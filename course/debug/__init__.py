"""Finding out why a run does not learn: the doctor that is called in one line, and its watch."""

from course.debug.diagnose import cannot_see, diagnose
from course.debug.ladder import LadderReport, Rung, climb
from course.debug.probes.report import Finding, Report
from course.debug.probes.setup import Setup
from course.debug.watch import watch

__all__ = [
    "Finding",
    "LadderReport",
    "Report",
    "Rung",
    "Setup",
    "cannot_see",
    "climb",
    "diagnose",
    "watch",
]
