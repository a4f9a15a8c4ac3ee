"""What to run: a baseline, and variants that each change one thing.

Source: Lecture 3, "Ablation"; ledger N23.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

BASELINE = "baseline"
Settings = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """The settings that all runs of an ablation share."""

    epochs: int
    """Passes over the data, the same for every run."""
    metric: str = "val_accuracy"
    """The metric in the history that decides."""
    mode: str = "max"
    """`max` if higher is better, `min` if lower is."""
    at: str = "last"
    """The epoch whose metric counts: `last`, or `best`, which flatters noisy runs."""

    def __post_init__(self) -> None:
        for name, allowed in (("mode", ("max", "min")), ("at", ("last", "best"))):
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"{name} = {getattr(self, name)!r}: expected {' or '.join(map(repr, allowed))}."
                )
        if self.epochs < 1:
            raise ValueError(f"epochs = {self.epochs}: a run needs at least 1.")


def one_at_a_time(baseline: Settings, **values: Sequence[Any]) -> dict[str, dict[str, Any]]:
    """One variant for each other value of each setting, each with a single change.

    >>> one_at_a_time({"lr": 0.1, "hidden": 64}, lr=[0.1, 0.3], hidden=[256])
    {'lr = 0.3': {'lr': 0.3}, 'hidden = 256': {'hidden': 256}}

    Raises:
        ValueError: A setting that the baseline does not have, values that are not a list, or no
        change at all.
    """
    if not isinstance(baseline, Mapping):
        raise ValueError(
            f"baseline = {baseline!r}: expected a dictionary of its settings, e.g. {{'lr': 0.1}}."
        )
    for name, others in values.items():
        if name not in baseline:
            raise ValueError(
                f"{name} is not a setting of the baseline, which has {', '.join(baseline)}. Give "
                "it a value in the baseline, too."
            )
        if isinstance(others, (str, bytes, Mapping)) or not isinstance(others, Iterable):
            raise ValueError(
                f"{name} = {others!r}: expected a list of the values to try, e.g. "
                f"{name}=[{others!r}]."
            )
    changes = _one_at_a_time(baseline, values)
    if not changes:
        raise ValueError(
            "nothing would change: give at least one setting a value that differs from the "
            f"baseline's, e.g. {next(iter(baseline), 'lr')}=[...]."
        )
    return changes


def _one_at_a_time(
    baseline: Settings, values: Mapping[str, Iterable[Any]]
) -> dict[str, dict[str, Any]]:
    return {
        f"{name} = {value}": {name: value}
        for name, others in values.items()
        for value in others
        if value != baseline[name]
    }


def variants_of(
    baseline: Settings, changes: Mapping[str, Settings], seeds: Sequence[int]
) -> dict[str, dict[str, Any]]:
    """The settings of every variant, checked."""
    if len(set(seeds)) < 2 or len(set(seeds)) != len(seeds):
        raise ValueError(
            f"seeds = {tuple(seeds)}: at least 2 different seeds are needed, since one run cannot "
            "distinguish a gain from luck. Use 3 or more for small gains."
        )
    if not changes or BASELINE in changes:
        raise ValueError(
            f"changes names {', '.join(changes) or 'nothing'}: expected at least one variant, and "
            f"none called {BASELINE!r}, e.g. {{'bigger': {{'hidden': 256}}}}."
        )
    for name, change in changes.items():
        if unknown := [key for key in change if key not in baseline]:
            raise ValueError(
                f"{name!r} changes {', '.join(unknown)}, which the baseline does not have: it has "
                f"{', '.join(baseline)}. Give it a value in the baseline, too."
            )
        if all(baseline[key] == value for key, value in change.items()):
            raise ValueError(f"{name!r} changes nothing: it has the baseline's settings.")
        if len(change) > 1 and not parts_of(name, changes):
            raise ValueError(
                f"{name!r} changes {len(change)} settings ({', '.join(change)}): its gain could "
                "not be attributed to any one of them. Add a variant for each of them; this one "
                "is then their combination."
            )
    variants = {BASELINE: dict(baseline)} | {
        name: {**baseline, **change} for name, change in changes.items()
    }
    try:
        json.dumps(variants, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"settings must be plain numbers, strings or lists ({error}). Put a name into the "
            "settings, e.g. optimizer='AdamW', and create the object inside build."
        ) from None
    return variants


def parts_of(name: str, changes: Mapping[str, Settings]) -> list[str]:
    """The single changes that make up a combined variant; empty if one of them is missing."""
    single = {
        (key, json.dumps(value)): other
        for other, change in changes.items()
        if other != name and len(change) == 1
        for key, value in change.items()
    }
    found = [single.get((key, json.dumps(value))) for key, value in changes[name].items()]
    return [] if None in found or len(found) < 2 else found
