"""The seven rungs, from the lowest up (ledger T21)."""

from __future__ import annotations

from collections.abc import Callable

from course.debug.rungs.climbing import Climb, Fall, Outcome
from course.debug.rungs.data import dumb_baseline, inspect_data
from course.debug.rungs.full import analyse_errors, find_learning_rate, full_run
from course.debug.rungs.small import overfit_one_batch, small_subset

RUNGS: dict[str, Callable[[Climb], Outcome]] = {
    "inspect the data": inspect_data,
    "dumb baseline": dumb_baseline,
    "overfit one batch": overfit_one_batch,
    "small subset": small_subset,
    "learning-rate finder": find_learning_rate,
    "full run with regularisation": full_run,
    "error analysis": analyse_errors,
}

__all__ = ["RUNGS", "Climb", "Fall", "Outcome"]
