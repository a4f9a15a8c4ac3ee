"""The climbs that the widget shows: recorded for museum set-ups, broken and fixed.

A climb takes a second or more, so the widget reads `climbs.json`; `python -m
course.widgets.ladder.climbs` writes it again, and a test repeats climbs and compares.
"""

from __future__ import annotations

import json
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import torch

from course.debug import museum
from course.debug.ladder import climb
from course.debug.museum.exhibit import Exhibit
from course.debug.relations.program import without_dropout
from course.widgets.base.frames import thinned
from course.worked.seeded import seeded

FILE = Path(__file__).with_suffix(".json")
CASES = (
    "B08", "B23", "B02", "B34", "B19", "B11", "B30", "B20", "B17", "B22", "B24", "B16",
)  # fmt: skip
"""Bugs that stop at rungs 1, 3, 4 and 5, and one that never stops: case 1, case 2 and so on."""
SEEDS = (0, 1)
EPOCHS = 4
"""Epochs of rung 6."""
ROWS, STEPS = 32, 240
"""Examples of the one batch, and steps on it: a healthy loop is done after 200."""
POINTS = 61
"""Number of losses kept of a curve: the lowest and highest of each stretch."""
LONGEST = 220
"""Characters kept of a message."""


@cache
def recorded() -> dict[str, Any]:
    """All recorded climbs, by `key`."""
    return json.loads(FILE.read_text(encoding="utf-8"))


def key(id: str, bug: bool, seed: int) -> str:
    """The key of a climb in the recording."""
    return f"{id} {'broken' if bug else 'fixed'} {seed}"


def record(id: str, bug: bool, seed: int) -> dict[str, Any]:
    """Climb with one set-up, and overfit one batch with it."""
    exhibit = museum.exhibit(id)
    with warnings.catch_warnings(), seeded(seed):
        warnings.simplefilter("ignore")
        report = climb(exhibit.make(bug), epochs=EPOCHS)
    failed = report.failed
    return {
        "rungs": [
            {"passed": rung.passed, "message": _short(rung.message)} for rung in report.rungs
        ],
        "failed": failed.number if failed else None,
        "cause": report.cause,
        "fix": report.fix,
        "batch": _one_batch(exhibit, bug, seed),
    }


def _one_batch(exhibit: Exhibit, bug: bool, seed: int) -> dict[str, Any]:
    """Losses of the set-up's own step on one batch, whatever a lower rung says."""
    with seeded(seed):
        setup = exhibit.make(bug)
        model = setup["model"]
        batch = [part[:ROWS] for part in next(iter(setup["train_loader"]))]
        before = torch.nn.utils.parameters_to_vector(model.parameters()).detach().clone()
        with without_dropout(model):
            losses = [setup["train_step"]([part.clone() for part in batch]) for _ in range(STEPS)]
            with torch.no_grad():
                right = (model(batch[0]).argmax(dim=1) == batch[1]).float().mean().item()
        moved = torch.nn.utils.parameters_to_vector(model.parameters()).detach() - before
    steps, kept = thinned(losses, POINTS)
    return {
        "steps": [step + 1 for step in steps],
        "losses": [_digits(loss) for loss in kept],
        "start": _digits(losses[0]),
        "lowest": _digits(min(losses)),
        "last": _digits(losses[-1]),
        "right": right,
        "moved": _digits(moved.norm().item() / before.norm().item()),
        "classes": len(batch[1].unique()),
    }


def _short(message: str) -> str:
    text = " ".join(message.split())
    return text if len(text) <= LONGEST else text[: LONGEST - 2] + " …"


def _digits(value: float) -> float:
    return float(f"{value:.4g}")


def main() -> None:
    """Record all climbs again."""
    made = {
        key(id, bug, seed): record(id, bug, seed)
        for id in CASES
        for bug in (True, False)
        for seed in SEEDS
    }
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(one)}" for name, one in made.items())
    FILE.write_text("{" + lines + "}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
