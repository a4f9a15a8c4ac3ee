"""A reader of three-digit codes, with any of its three stages replaced by the truth.

Detector, classifier and corrector are those of `course.analysis.ceiling.digits_stages`, on real
digits; every change of a setting is measured again, on 200 codes.

Source: Lecture 3, "Ceiling analysis — for pipelines"; ledger S20, N25.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

from course.analysis.ceiling import ceiling_analysis, digits_stages, points_with
from course.widgets.base.settings import Checked, slider, toggle

NAMES = ("detector", "classifier", "corrector")
NUM_CODES = 200


@dataclass(frozen=True, kw_only=True)
class Settings(Checked):
    """How hard the task of each stage is, and which stages are replaced by the truth."""

    noise: float = slider(
        1.0, (0.0, 0.5, 1.0, 2.0, 4.0), "noise in the strips", hint="ink ranges from 0 to 16"
    )
    num_train: int = slider(200, (50, 200, 800), "classifier learns from", unit="images")
    num_known: int = slider(
        60,
        (20, 60, 200, 1_000),
        "codes that exist",
        hint="if all 1,000 exist, nothing can be corrected",
    )
    detector: bool = toggle(False, "perfect detector", hint="crops where the digit really is")
    classifier: bool = toggle(
        False, "perfect classifier", hint="knows the digit, however it is cropped"
    )
    corrector: bool = toggle(False, "perfect corrector", hint="fixes one wrong digit per code")

    @property
    def replaced(self) -> tuple[bool, ...]:
        """Stage by stage."""
        return tuple(getattr(self, name) for name in NAMES)


def frame(settings: Settings) -> dict[str, Any]:
    """Points of all eight combinations; gains alone and stage by stage; the interaction."""
    measured = _measured(settings.noise, settings.num_train, settings.num_known)
    stages, points = measured["stages"], measured["points"]
    now, chosen = points[False, False, False], points[settings.replaced]
    pairs = zip(stages, settings.replaced, strict=True)
    singles = sum(stage["alone"] for stage, on in pairs if on)
    return {
        "now": now,
        "chosen": chosen,
        "gain": chosen - now,
        "singles": singles,
        "beyond": chosen - now - singles,
        "stages": stages,
        "combinations": [
            {"replaced": list(which), "points": value, "on": which == settings.replaced}
            for which, value in points.items()
        ],
        "advice": measured["advice"],
    }


def says(settings: Settings, frame: dict[str, Any]) -> str:
    """The gain from the replaced stages, in one sentence."""
    pairs = zip(NAMES, settings.replaced, strict=True)
    on = [name for name, replaced in pairs if replaced]
    now = f"{float(frame['now']):.1f} % of the codes are read correctly"
    if not on:
        return f"{now}; no stage is replaced."
    return f"{now}; with {' and '.join(on)} perfect {float(frame['chosen']):.1f} %."


@cache
def _measured(noise: float, num_train: int, num_known: int) -> dict[str, Any]:
    stages, examples, score = digits_stages(
        num_codes=NUM_CODES, num_known=num_known, noise=noise, num_train=num_train
    )
    result = ceiling_analysis(stages, examples, score)
    points = {
        which: points_with(
            stages, examples, score,
            {name for name, on in zip(NAMES, which, strict=True) if on},
        )
        for which in product((False, True), repeat=len(NAMES))
    }  # fmt: skip
    rows = [
        {"name": row.name, "alone": row.gain.value, "low": row.gain.low, "high": row.gain.high,
         "on_top": row.step_gain}
        for row in result.stages
    ]  # fmt: skip
    return {"stages": rows, "points": points, "advice": result.advice}
