"""Improvement: one rule for the best epoch, the best checkpoint and early stopping (K29)."""

from __future__ import annotations

import math


def better(value: float, best: float | None, *, mode: str = "min", min_delta: float = 0.0) -> bool:
    """Whether `value` improves on `best` by more than `min_delta`; inf and nan never do."""
    if not math.isfinite(value):
        return False
    if best is None:
        return True
    return best - value > min_delta if mode == "min" else value - best > min_delta


def check_mode(mode: str) -> None:
    """`min` or `max`."""
    if mode not in ("min", "max"):
        raise ValueError(f"mode = {mode!r}: expected 'min' (lower is better) or 'max'.")
