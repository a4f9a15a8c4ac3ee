"""Every worked number of the lecture, recomputed step by step. `course worked` prints them all."""

from course.worked.registry import Step, Worked, catalogue, compute, compute_all, worked

__all__ = ["Step", "Worked", "catalogue", "compute", "compute_all", "worked"]
