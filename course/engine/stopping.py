"""Better, best, and when to stop: one rule of improvement for all three.

Source: Lecture 3, "Training and validation curves"; the training-loop chapter, "Early stopping";
ledger C11, C13, N53, F111, K29.
"""

from __future__ import annotations

import math


def better(value: float, best: float | None, *, mode: str = "min", min_delta: float = 0.0) -> bool:
    """Whether `value` improves on `best` by more than `min_delta`; nan never does."""
    if not math.isfinite(value):
        return False
    if best is None:
        return True
    return best - value > min_delta if mode == "min" else value - best > min_delta
