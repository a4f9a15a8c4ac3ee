"""A broken museum set-up climbs the debug ladder and overfits one batch, next to the fixed one.

The results of the rungs come from `course.debug.climb` and are recorded in `climbs.json`. The
one-batch curves are the set-up's own training step on one batch, whether or not its climb reached
that rung.

Source: Lecture 3, "The debug ladder"; ledger S16, S17, T21.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from course.debug import museum
from course.debug.museum.switch import broken_and_fixed
from course.debug.rungs import RUNGS
from course.debug.rungs.small import AT_REST, NOT_AT_ALL, SHARE_LEFT
from course.widgets.base.settings import Checked, choice, slider, steps, toggle
from course.widgets.ladder.climbs import CASES, SEEDS, key, recorded

TITLES = tuple(RUNGS)
BLOWN_UP = 2.0
"""Ratio of last to first loss above which the steps were too large."""
TAIL = 0.2
"""Share of the curve that counts as its end."""


@dataclass(frozen=True, kw_only=True)
class Settings(Checked):
    """Which set-up, broken or fixed, how far it has climbed, and whether its bug is named."""

    bug: str = choice(
        "B08", CASES, "set-up", names=tuple(f"case {i}" for i in range(1, len(CASES) + 1))
    )
    rung: int = slider(len(TITLES), steps(1, len(TITLES), 1), "climb up to rung")
    fixed: bool = toggle(False, "fix the bug")
    named: bool = toggle(True, "name the bug", hint="untick it to find the bug yourself")
    seed: int = slider(0, SEEDS, "seed")


def frame(settings: Settings) -> dict[str, Any]:
    """The rungs climbed, where the climb stopped, and both curves of one batch."""
    climb = recorded()[key(settings.bug, not settings.fixed, settings.seed)]
    rungs = [_rung(climb, number, settings.rung) for number in range(1, len(TITLES) + 1)]
    stopped = climb["failed"] if (climb["failed"] or 99) <= settings.rung else None
    exhibit = museum.exhibit(settings.bug)
    batches = {
        name: recorded()[key(settings.bug, bug, settings.seed)]["batch"]
        for name, bug in (("broken", True), ("fixed", False))
    }
    return {
        "rungs": rungs,
        "stopped": stopped,
        "climbed": sum(one["state"] == "passed" for one in rungs),
        "title": f"{exhibit.id}, {exhibit.title}" if settings.named else "not named",
        "cause": (climb["cause"] or "none named") if stopped and settings.named else "",
        "fix": climb["fix"] if stopped and settings.named else "",
        "code": _lines(settings.bug) if settings.named else [],
        "batches": {
            name: {**batch, "shape": shape(batch)} for name, batch in batches.items()
        },
    }  # fmt: skip


def _rung(climb: dict[str, Any], number: int, upto: int) -> dict[str, Any]:
    """What is known about a rung: nothing above the slider or above the first that failed."""
    made = climb["rungs"]
    title = TITLES[number - 1]
    if number > min(upto, len(made)):
        below = number > len(made)
        said = "the climb has stopped below" if below and len(made) <= upto else ""
        return {"title": title, "state": "not climbed", "message": said}
    passed = made[number - 1]["passed"]
    state = {True: "passed", False: "failed", None: "not tried"}[passed]
    return {"title": title, "state": state, "message": made[number - 1]["message"]}


def shape(batch: dict[str, Any]) -> str:
    """What a one-batch curve shows; its bounds are those of rung 3."""
    if batch["classes"] < 2:
        return "proves nothing: one class"
    start, last = batch["start"], batch["last"]
    if last <= SHARE_LEFT * start and batch["right"] == 1:
        return "learned"
    if last > BLOWN_UP * start:
        return "blows up"
    if batch["lowest"] > NOT_AT_ALL * start:
        return "no decrease" if batch["moved"] else "no change"
    tail = batch["losses"][-round(TAIL * len(batch["losses"])) :]
    return "plateau" if max(tail) - min(tail) < AT_REST * start else "still falling"


@cache
def _lines(id: str) -> list[str]:
    """The lines that the bug changes: − as broken, + as fixed."""
    signs = {"-": "−", "+": "+"}
    return [f"{signs[side]} {line}" for side, line in broken_and_fixed(museum.exhibit(id).make)]


def says(settings: Settings, frame: dict[str, Any]) -> str:
    """How far the climb has got, and what the batch's curve shows."""
    case = f"Case {CASES.index(settings.bug) + 1}{', fixed' if settings.fixed else ''}"
    batch = frame["batches"]["fixed" if settings.fixed else "broken"]
    stands = f"{frame['climbed']} rung{'' if frame['climbed'] == 1 else 's'} passed"
    if frame["stopped"]:
        stands = f"stopped at rung {frame['stopped']}, {TITLES[frame['stopped'] - 1]}"
    return (
        f"{case}: {stands}; one batch goes from loss {float(batch['start']):.3g} to "
        f"{float(batch['last']):.3g}: {batch['shape']}."
    )
