"""Six bugs as switches: what the log of a run shows, next to a healthy run or a mystery run.

Every combination is trained once (`runs.run`), on digits. A mystery is a run whose switches the
page hides; you find them by setting your own until both runs are equal.

Source: Training-loop chapter, c5; ledger S06, T19, X45.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import mean
from typing import Any

from course.widgets.base.settings import Checked, choice, slider, toggle
from course.widgets.detector.runs import BUGS, UPDATES, Log, run

HEALTHY = "healthy run"
MYSTERIES = {
    "mystery 1": ("asleep",),
    "mystery 2": ("uncleared",),
    "mystery 3": ("leaked", "kept"),
    "mystery 4": ("stale", "leaked"),
    "mystery 5": ("asleep", "leaked"),
}
"""The switches of each mystery, from one bug to two that hide each other."""
TAIL = 8
"""The mean over this many updates counts as the end of a curve."""
FINE = 1.1
"""Up to this ratio of the final loss to the healthy run's, nobody would get suspicious."""
CODE = (
    ("stale", "model[-1] = nn.Linear(64, 10)", "# replaced below, after the optimizer was built"),
    ("", "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)", ""),
    ("stale", "", "model[-1] = nn.Linear(64, 10)"),
    ("leaked", "train = images[:160]", "train = images[:80] + val"),
    ("", "for update, (inputs, targets) in enumerate(batches, start=1):", ""),
    ("elsewhere", "    inputs = inputs.to(device)", "    # inputs.to(device) is missing"),
    ("uncleared", "    optimizer.zero_grad()", "    # optimizer.zero_grad() is missing"),
    ("", "    loss = F.cross_entropy(model(inputs), targets)", ""),
    ("", "    loss.backward()", ""),
    ("", "    optimizer.step()", ""),
    ("kept", "    log.append(loss.item())", "    log.append(loss)"),
    ("", "    if update % 8 == 0:", ""),
    ("kept", "        log.append(evaluate(model, val).item())",
     "        log.append(evaluate_with_graph(model, val))"),
    ("asleep", "        model.train()", "        # model.train() is missing"),
)  # fmt: skip
"""The loop line by line: the bug that changes the line, the healthy line, the broken line."""


@dataclass(frozen=True, kw_only=True)
class Settings(Checked):
    """The six switches, the run to compare with, and the seed of both."""

    uncleared: bool = toggle(False, BUGS["uncleared"])
    asleep: bool = toggle(True, BUGS["asleep"])
    kept: bool = toggle(False, BUGS["kept"])
    stale: bool = toggle(False, BUGS["stale"])
    leaked: bool = toggle(False, BUGS["leaked"])
    elsewhere: bool = toggle(False, BUGS["elsewhere"])
    beside: str = choice(HEALTHY, (HEALTHY, *MYSTERIES), "compare with")
    seed: int = slider(0, (0, 1, 2), "seed")

    @property
    def bugs(self) -> frozenset[str]:
        """The switches that are on."""
        return frozenset(name for name in BUGS if getattr(self, name))


def frame(settings: Settings) -> dict[str, Any]:
    """Both logs, their final numbers, the loop's code, and whether both runs are equal."""
    own = run(settings.bugs, settings.seed)
    other = run(frozenset(MYSTERIES.get(settings.beside, ())), settings.seed)
    lines, marked = _code(settings.bugs)
    return {
        "runs": [_shown("as set", own), _shown(settings.beside, other)],
        "updates": UPDATES,
        "same": own == other,
        "looks_fine": looks_fine(own, run(frozenset(), settings.seed)),
        "code": lines,
        "marked": marked,
    }


def _shown(name: str, log: Log) -> dict[str, Any]:
    held = log.kilobytes[-1] if log.kilobytes else math.nan
    accuracy = log.accuracies[-1] if log.accuracies else math.nan
    return {
        "name": name,
        "losses": log.losses,
        "norms": log.norms,
        "val_at": log.val_at,
        "accuracies": log.accuracies,
        "kilobytes": log.kilobytes,
        "loss": _end(log.losses),
        "norm": _end(log.norms),
        "held": held,
        "accuracy": accuracy,
        "unseen": math.nan if log.unseen is None else log.unseen,
        "error": log.error,
    }


def _end(values: list[float]) -> float:
    return mean(values[-TAIL:]) if values else math.nan


def looks_fine(log: Log, healthy: Log) -> bool:
    """Whether the loss alone would not make anyone suspicious."""
    return not log.error and _end(log.losses) <= FINE * _end(healthy.losses)


def _code(bugs: frozenset[str]) -> tuple[list[str], list[int]]:
    """The loop with these bugs, and the numbers of the lines that they change."""
    chosen = [(broken if bug in bugs else line, bug in bugs) for bug, line, broken in CODE]
    chosen = [(line, changed) for line, changed in chosen if line]
    return [line for line, _ in chosen], [i for i, (_, changed) in enumerate(chosen) if changed]


def says(settings: Settings, frame: dict[str, Any]) -> str:
    """The result of the run as set, and how it compares."""
    own, other = frame["runs"]
    if frame["same"]:
        return f"The run as set and the {other['name']} are equal in every number."
    if own["error"]:
        return f"The run as set ended with {own['error']}."
    curve = "looks fine" if frame["looks_fine"] else "does not look fine"
    return (
        f"Loss {float(own['loss']):.3g} ({other['name']} {float(other['loss']):.3g}): the curve "
        f"{curve}. Validation {100 * float(own['accuracy']):.3g} %, unseen images "
        f"{100 * float(own['unseen']):.3g} %."
    )
