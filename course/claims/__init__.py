"""Every testable assertion of the lecture, tried. `course claims` prints them all."""

from course.claims.registry import Measured, Trial, catalogue, claim, compute, compute_all, judge

__all__ = ["Measured", "Trial", "catalogue", "claim", "compute", "compute_all", "judge"]
