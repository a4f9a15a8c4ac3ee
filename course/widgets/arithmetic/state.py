"""Training arithmetic from `course.data.arithmetic`, and the end of an epoch step by step.

Source: Training-loop chapter, c0; ledger S01, N01-N05, K08.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from course.data.arithmetic import TrainingArithmetic, training_arithmetic
from course.widgets.base.settings import Checked, choice, slider, steps, toggle

BATCH_SIZES = (8, 16, 32, 64, 128, 256, 512)
TAIL = 8
"""Micro-batches at the end of the first epoch that are shown one by one."""


@dataclass(frozen=True, kw_only=True)
class Settings(Checked):
    """The run whose steps are counted."""

    num_examples: int = slider(
        10_000, (100, 500, 1_000, 5_000, 10_000, 20_000, 50_000, 60_000), "examples N"
    )
    batch_size: int = slider(32, BATCH_SIZES, "batch size B")
    epochs: int = slider(3, steps(1, 10, 1), "epochs E")
    accum_steps: int = slider(
        4, (1, 2, 3, 4, 8), "accumulation K", unit="micro-batches", hint="micro-batches per update"
    )
    drop_last: bool = toggle(False, "drop_last", hint="leave out a short last batch")
    remainder: str = choice(
        "flush",
        ("flush", "drop", "carry"),
        "at an epoch's end",
        names=("step with what there is", "discard it", "complete it in the next epoch"),
    )
    at: int = slider(
        TAIL, steps(1, TAIL, 1), "walk through the end", unit=f"of the last {TAIL} micro-batches"
    )

    def check(self) -> None:
        """Check that drop_last leaves at least one batch."""
        if self.drop_last and self.num_examples < self.batch_size:
            raise ValueError(
                f"drop_last with {self.num_examples} examples in batches of {self.batch_size} "
                "leaves no batch. Choose a smaller batch size, or turn drop_last off."
            )


def frame(settings: Settings) -> dict[str, Any]:
    """Counts, the end of the first epoch, and counts over the batch size."""
    run = _count(settings)
    tail = _tail(settings, run)
    return {
        "iterations_per_epoch": run.iterations_per_epoch,
        "iterations": run.iterations,
        "last_batch": run.last_batch,
        "effective_batch": run.effective_batch,
        "examples_seen": run.examples_seen,
        "unseen": run.examples_unseen_per_epoch,
        "updates_per_epoch": run.updates_per_epoch,
        "updates": run.updates,
        "leftover": run.leftover_micro_batches,
        "formula_updates": run.formula_updates,
        "loop_updates": run.loop_updates,
        "loop_largest_window": run.loop_largest_window,
        "tail": tail,
        "now": tail[min(settings.at, len(tail)) - 1],
        "sweep": _sweep(settings),
    }


def says(settings: Settings, frame: dict[str, Any]) -> str:
    """The counts in one sentence."""
    return (
        f"{frame['iterations']:,} forward passes and {frame['updates']:,} updates; the last "
        f"batch of an epoch holds {frame['last_batch']} of {settings.batch_size} examples."
    )


def _count(settings: Settings, **changes: int) -> TrainingArithmetic:
    words = {
        "num_examples": settings.num_examples,
        "batch_size": settings.batch_size,
        "epochs": settings.epochs,
        "accum_steps": settings.accum_steps,
        "drop_last": settings.drop_last,
        "remainder": settings.remainder,
    }
    return training_arithmetic(**(words | changes))


def _tail(settings: Settings, run: TrainingArithmetic) -> list[dict[str, Any]]:
    """The last micro-batches of the first epoch: what each adds to .grad, and the steps."""
    last, k = run.iterations_per_epoch, settings.accum_steps
    tail = []
    for index in range(max(1, last - TAIL + 1), last + 1):
        held = (index - 1) % k + 1
        ends = index == last
        if held == k or (ends and settings.remainder == "flush"):
            fate = "step"
        elif index > last - run.leftover_micro_batches and settings.remainder == "drop":
            fate = "forgotten"
        elif ends:
            fate = "carried" if settings.epochs > 1 else "never used"
        else:
            fate = "adds"
        size = run.last_batch if ends else settings.batch_size
        tail.append(
            {"index": index, "size": size, "window": (index - 1) // k + 1, "held": held,
             "fate": fate}
        )  # fmt: skip
    return tail


def _sweep(settings: Settings) -> dict[str, list[int]]:
    """Forward passes and updates of the whole run over the batch size."""
    sizes = [
        size for size in BATCH_SIZES if not (settings.drop_last and size > settings.num_examples)
    ]
    runs = [_count(settings, batch_size=size) for size in sizes]
    return {
        "batch_size": sizes,
        "iterations": [run.iterations for run in runs],
        "updates": [run.updates for run in runs],
    }
