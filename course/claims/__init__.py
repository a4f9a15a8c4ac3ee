"""Every testable assertion of the lecture, tested. `course claims` prints them all."""

from course.claims.registry import catalogue, claim, compute, compute_all
from course.claims.trial import Measured, Trial, judge

__all__ = ["Measured", "Trial", "catalogue", "claim", "compute", "compute_all", "judge"]
