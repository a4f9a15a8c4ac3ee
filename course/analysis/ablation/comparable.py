"""Whether runs may be compared: they need the same data, split and protocol to be ranked.

Source: Lecture 3, "Ablation" (the split stays fixed); ledger T27.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from course.analysis.ablation.plan import BASELINE

if TYPE_CHECKING:
    from course.analysis.ablation.files import AblationRun


class NotComparableError(ValueError):
    """The runs differ in more than what the ablation changes, so they are not ranked."""


def check_same(
    title: str, data: Mapping[str, Any], expected: Mapping[str, Any] | None, same_train: bool
) -> None:
    for part, identity in data.items():
        if identity is None or identity["hash"] is None:
            raise NotComparableError(
                f"{title}: nothing is known about its {part} data, so it is unclear whether all "
                "runs had the same. Return a val_loader, and give your own data set an attribute "
                "`identity`, a string that changes when its examples do."
            )
        if expected is None or (part == "train" and not same_train):
            continue
        if identity != expected[part]:
            raise NotComparableError(
                f"{title}: its {part} data are {_named(identity)}, those of the runs before it "
                f"{_named(expected[part])}. A difference between the two could come from the data. "
                "Draw the split once, with its own seed"
                + (
                    ", or pass same_train=False if the data are what you change."
                    if part == "train"
                    else "."
                )
            )


def check_comparable(runs: Sequence[AblationRun], same_train: bool) -> None:
    base = next((run for run in runs if run.variant == BASELINE), None)
    if base is None:
        raise NotComparableError(
            f"none of the {len(runs)} runs is the baseline, so there is nothing to compare with."
        )
    seen: dict[tuple[str, int], AblationRun] = {}
    for run in runs:
        title = f"{run.variant}, seed {run.seed}"
        if run.protocol != base.protocol:
            raise NotComparableError(
                f"{title}: ran with {run.protocol}, but the baseline with {base.protocol}. Use a "
                "separate folder for each protocol."
            )
        other = seen.setdefault((run.variant, run.seed), run)
        first = next(r for r in runs if r.variant == run.variant)
        if other is not run or run.settings != first.settings:
            raise NotComparableError(
                f"{title}: runs with this name have different settings ({first.settings} and "
                f"{run.settings}). Give one of them another name or folder."
            )
        check_same(title, run.data, base.data, same_train)


def _named(identity: Mapping[str, Any]) -> str:
    return f"{identity['hash']} ({identity['num_examples']} examples)"
