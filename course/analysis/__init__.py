"""Once the loop runs: read the curves, look at the errors, change one thing at a time."""

from importlib import import_module
from typing import Any

_HOME = {
    "read_curves": "curves",
    "CurveReading": "curves",
    "ablate": "ablation",
    "one_at_a_time": "ablation",
    "read_ablation": "ablation",
    "Ablation": "ablation",
    "NotComparableError": "ablation",
    "collect_errors": "errors",
    "ErrorSet": "errors",
    "predict": "scores",
    "confusion": "scores",
    "per_class": "scores",
    "bootstrap": "scores",
    "tune_threshold": "scores",
    "calibration": "scores",
    "fit_temperature": "scores",
    "ceiling_analysis": "ceiling",
    "Stage": "ceiling",
    "CASES": "loss_is_not_metric",
    "cases": "loss_is_not_metric",
}
"""The module of each public name, loaded when the name is first used."""

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
