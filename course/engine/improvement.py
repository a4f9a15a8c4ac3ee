"""Improvement: one rule for the best epoch, the best checkpoint and early stopping (K29)."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterable

from course.engine.errors import EngineError

LOWER = {
    "loss", "error", "err", "mse", "mae", "rmse", "mape", "nll", "perplexity", "ppl", "wer", "cer",
    "fid", "brier", "ece", "bpc", "distance",
}  # fmt: skip
"""Words in the name of a number that is better when it is lower."""
HIGHER = {
    "acc", "accuracy", "auc", "auroc", "roc", "f", "precision", "recall", "map", "bleu", "rouge",
    "dice", "iou", "miou", "psnr", "ssim", "kappa", "mcc", "top", "r",
}  # fmt: skip
"""Words in the name of a number that is better when it is higher."""


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
        raise EngineError(f"mode = {mode!r}: expected 'min' (lower is better) or 'max'.")


def known_direction(monitor: str) -> str | None:
    """Which direction is better for a number, judged by its name; None if the name does not say.

    >>> [known_direction(name) for name in ("val_loss", "val_top5_accuracy", "val_score_of_mine")]
    ['min', 'max', None]
    """
    words = set(re.split(r"[^a-z]+", monitor.lower()))
    lower, higher = words & LOWER, words & HIGHER
    if bool(lower) == bool(higher):
        return None
    return "min" if lower else "max"


def direction(monitor: str, mode: str | None = None) -> str:
    """Which direction is better for the monitored number: as `mode` says, else by its name.

    Raises:
        EngineError: Neither says it, or `mode` is not a direction.
    """
    known = known_direction(monitor)
    if mode is None:
        if known is None:
            raise EngineError(
                f"monitor = {monitor!r}: is a lower or a higher value better? The name does not "
                "say. Give mode='min' or mode='max'."
            )
        return known
    check_mode(mode)
    if known not in (None, mode):
        warnings.warn(
            f"monitor = {monitor!r} with mode={mode!r} keeps the worst epoch: leave mode out, or "
            f"use mode={known!r}.",
            stacklevel=4,
        )
    return mode


def listed(names: Iterable[str]) -> str:
    """Join names for a message."""
    return ", ".join(names)
