"""Exercises, their referee, and the grading of a class. Students need one name: `check`.

from autograde import check
check("03a.accumulate", accumulate)
"""

from autograde.check import check

__all__ = ["check"]
