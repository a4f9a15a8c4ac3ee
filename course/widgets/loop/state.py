"""The production loop from its parts: code in its legal order, the cost of each part, a run.

The lines shown are executed on a hundred digits: as written, in the legal order, without any part,
and once more with other random states outside.

Source: Training-loop chapter, c7; essay "Where the order really matters"; ledger S08, T15, T33.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from course.widgets.base.settings import Checked, choice, toggle
from course.widgets.loop.code import BATCH_SIZE, NEEDS, PARTS, WINDOW, lines_of, shown
from course.widgets.loop.runs import NUM_TRAIN, LoopRun, run


@dataclass(frozen=True)
class About:
    """The name of a part, what the chapter says about it, and what was measured."""

    name: str
    chapter_lines: str
    costs: str
    prevents: str


ABOUT = {
    "accumulation": About(
        "accumulation", "4", "memory: 27 % more to 87 % less (F54)", "a batch that does not fit"
    ),
    "precision": About(
        "mixed precision", "5", "saved activations × 0.55 (F55); its speed depends on the device",
        "slow steps, on a device made for it",
    ),
    "clipping": About("clipping", "2", "one norm of all gradients per update",
                      "one batch that ruins the weights"),
    "schedule": About("schedule", "–", "one number per update", "steps that are too large at the "
                                                                "end"),
    "checkpoint": About(
        "checkpoint", "10", "file: 1, 2 or 3 times the weights with SGD, momentum, Adam (N49)",
        "a crash that loses the run",
    ),
    "stopping": About("early stopping", "8", "one comparison per epoch (F111)",
                      "epochs that only overfit"),
    "seeding": About("seeding", "6", "on a GPU also deterministic kernels (F104)",
                     "a result that nobody can reproduce"),
    "logging": About("logging", "3", "one number per batch, kept without its graph (F47)",
                     "searching in the dark"),
}  # fmt: skip
ORDERS = {
    "legal": "in its legal order",
    "clip_early": "with clipping before unscale_()",
    "clip_late": "with clipping after the step",
    "schedule_inside": "with scheduler.step() per micro-batch",
}


@dataclass(frozen=True, kw_only=True)
class Settings(Checked):
    """The parts of the loop, and the order in which they are written."""

    accumulation: bool = toggle(True, "accumulation", hint=f"{WINDOW} micro-batches per update")
    precision: bool = toggle(True, "mixed precision", hint="fp16 with a gradient scaler")
    clipping: bool = toggle(True, "clipping")
    schedule: bool = toggle(True, "schedule", hint="cosine over all updates")
    checkpoint: bool = toggle(False, "checkpoint", hint="saves every epoch, resumes automatically")
    stopping: bool = toggle(False, "early stopping")
    seeding: bool = toggle(False, "seeding")
    logging: bool = toggle(False, "logging")
    order: str = choice("legal", tuple(ORDERS), "written", names=tuple(ORDERS.values()))

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts that are switched on, in the order of the page."""
        return tuple(part for part in PARTS if getattr(self, part))


def frame(settings: Settings) -> dict[str, Any]:
    """The code with its parts marked, their costs, and the results of its run."""
    lines = lines_of(settings.parts, settings.order)
    lacking = [part for part in NEEDS[settings.order] if part not in settings.parts]
    order = "legal" if lacking else settings.order  # the same lines: no need to run them again
    written, other = (_run(settings.parts, order, seed) for seed in (0, 1))
    legal, bare = _run(settings.parts, "legal", 0), _run((), "legal", 0)
    batches = math.ceil(NUM_TRAIN / BATCH_SIZE)
    losses = {"as written": written, "legal order": legal, "bare loop": bare}
    return {
        "code": shown(lines),
        "marked": [number for number, (_, part) in enumerate(lines) if part],
        "bare_lines": len(lines_of(())),
        "updates": math.ceil(batches / WINDOW) if settings.accumulation else batches,
        "batches": batches,
        "parts": [_part(settings, part) for part in PARTS],
        "losses": {name: [round(v, 3) for v in one.val_losses] for name, one in losses.items()},
        "repeat_gap": _gap(written, other),
        "order_gap": _gap(written, legal),
        "lacking": [ABOUT[part].name for part in lacking],
        "log": written.log[-1] if written.log else "",
        "warned": written.warned[0] if written.warned else "",
    }  # fmt: skip


@lru_cache(maxsize=256)
def _run(parts: tuple[str, ...], order: str, seed: int) -> LoopRun:
    return run(parts, order, seed=seed)


def _gap(one: LoopRun, other: LoopRun) -> float:
    """The largest difference between any two weights of the two runs."""
    return (one.weights - other.weights).abs().max().item()


def _part(settings: Settings, part: str) -> dict[str, Any]:
    """What a part costs, or would cost, in the loop that is shown."""
    lines = lines_of({*settings.parts, part}, settings.order)
    about = ABOUT[part]
    return {
        "name": about.name,
        "on": part in settings.parts,
        "lines": sum(tag == part for _, tag in lines),
        "chapter_lines": about.chapter_lines,
        "costs": about.costs,
        "prevents": about.prevents,
    }


def says(settings: Settings, frame: dict[str, Any]) -> str:
    """The size of the loop and its final loss, in one sentence."""
    losses = frame["losses"]
    return (
        f"{len(settings.parts)} of {len(PARTS)} parts, {len(frame['code'])} lines "
        f"{ORDERS[settings.order]}: validation loss {float(losses['as written'][-1]):.3f} after "
        f"{len(losses['as written'])} epochs; the bare loop ends at "
        f"{float(losses['bare loop'][-1]):.3f}."
    )
