"""Finding out why a run does not learn: the doctor that is called in one line, and its watch."""

from course.debug.climbed import LadderReport, Rung
from course.debug.diagnose import diagnose
from course.debug.hunt import FaultHunt
from course.debug.ladder import climb
from course.debug.museum import cannot_see
from course.debug.parameters import ParameterReport, parameter_report
from course.debug.probes.report import Finding, Report
from course.debug.probes.setup import Setup
from course.debug.watch import watch

__all__ = [
    "FaultHunt",
    "Finding",
    "LadderReport",
    "ParameterReport",
    "Report",
    "Rung",
    "Setup",
    "cannot_see",
    "climb",
    "diagnose",
    "parameter_report",
    "watch",
]
