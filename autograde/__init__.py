"""Exercises, their referee, and the grading of a class. Students need these names:

from autograde import ask, check, failing, guess, hint, progress, ready, reveal, scorecard, student
check("03a.accumulate", accumulate)

Importing this package loads no torch; what a name needs is loaded when it is first used.
"""

from importlib import import_module
from typing import Any

from autograde.check import check
from course.startup import put_off_addresses

put_off_addresses()  # before anything of nbgrader's
__all__ = [
    "ask",
    "check",
    "failing",
    "guess",
    "hint",
    "progress",
    "ready",
    "reveal",
    "scorecard",
    "student",
]

HOMES = {
    "ask": "autograde.kit.question",
    "failing": "autograde.kit.failing",
    "guess": "autograde.kit.guess",
    "hint": "autograde.kit.hint",
    "progress": "autograde.kit.progress",
    "ready": "autograde.kit.ready",
    "reveal": "autograde.kit.guess",
    "scorecard": "autograde.kit.progress",
    "student": "autograde.kit.student",
}
"""Where each name that is not loaded yet lives."""


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module 'autograde' has no attribute {name!r}")
    return getattr(import_module(HOMES[name]), name)
