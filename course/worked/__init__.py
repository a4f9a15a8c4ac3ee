"""Every worked number of the lecture, recomputed step by step. `course worked` prints them all."""

from course.worked.registry import catalogue, compute, compute_all, worked
from course.worked.step import Step, Worked

__all__ = ["Step", "Worked", "catalogue", "compute", "compute_all", "worked"]
