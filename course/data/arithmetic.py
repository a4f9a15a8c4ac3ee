"""Training arithmetic: from examples, batch size and epochs to iterations and weight updates.

With N examples in batches of B, K micro-batches per update and E epochs:

    M = ⌈N / B⌉ micro-batches an epoch, the last of N − (M − 1)·B examples
    M = ⌊N / B⌋ with drop_last, all of B

What happens to the M mod K micro-batches that do not fill a window decides the number of updates,
and this is where the chapter's formula ⌈N / (B·K)⌉ and its own loop disagree (N03: 237 against
234).

This module does not import torch: the engine's messages, the exercises and the calculator all use
it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Remainder = Literal["flush", "drop", "carry"]


@dataclass(frozen=True, kw_only=True)
class TrainingArithmetic:
    """All counts of a training run, computed by `training_arithmetic`."""

    iterations_per_epoch: int
    """Micro-batches, hence forward passes, per epoch."""
    iterations: int
    """Micro-batches of the whole run."""
    last_batch: int
    """Examples in the last micro-batch of an epoch."""
    effective_batch: int
    """Examples in a full update: batch size times accumulation."""
    examples_seen: int
    """Examples passed through the model in the whole run, counting every pass."""
    examples_unseen_per_epoch: int
    """Examples that drop_last leaves out of every epoch; which ones changes with the shuffle."""
    updates_per_epoch: int
    """Optimizer steps in the first epoch; with `carry` a later epoch may make one more."""
    updates: int
    """Optimizer steps of the whole run under the chosen `remainder`."""
    leftover_micro_batches: int
    """Micro-batches at the end of an epoch that do not fill a window: M mod K."""
    leftover_at_end: int
    """Micro-batches whose gradient no update ever used: `flush` 0, `drop` every epoch's, `carry`
    those after the last update of the run."""
    formula_updates: int
    """Updates by the chapter's formula, E · ⌈N / (B·K)⌉, which ignores drop_last."""
    loop_updates: int
    """Updates by the chapter's printed loop, which steps when (i + 1) mod K = 0: E · ⌊M / K⌋."""
    loop_largest_window: int
    """Most micro-batches summed into one update of that loop, which clears `.grad` only after a
    step, so that an epoch's leftover leaks into the next epoch's first update."""

    @property
    def formula_and_loop_agree(self) -> bool:
        """Whether the chapter's formula and its printed loop give the same number of updates."""
        return self.formula_updates == self.loop_updates


def training_arithmetic(
    num_examples: int,
    batch_size: int,
    epochs: int,
    *,
    accum_steps: int = 1,
    drop_last: bool = False,
    remainder: Remainder = "flush",
) -> TrainingArithmetic:
    """Count iterations, updates and examples of a training run.

    >>> run = training_arithmetic(10_000, 32, 3, accum_steps=4)
    >>> run.iterations_per_epoch, run.last_batch, run.updates, run.loop_updates
    (313, 16, 237, 234)

    Args:
        num_examples: N, size of the training set.
        batch_size: B, examples per micro-batch.
        epochs: E, passes over the data.
        accum_steps: K, micro-batches per update.
        drop_last: Leave a short last micro-batch out, as the DataLoader's flag does.
        remainder: What happens to an epoch's last M mod K micro-batches: `flush` steps with them,
            `drop` discards them, `carry` lets the next epoch fill the window.

    Raises:
        ValueError: A count is not a positive whole number, the remainder is unknown, or
            drop_last leaves no batch at all.

    Source: Training-loop chapter, c0; ledger N01-N05, F44, K08, C36.
    """
    _check_counts(
        num_examples=num_examples, batch_size=batch_size, epochs=epochs, accum_steps=accum_steps
    )
    if remainder not in get_args(Remainder):
        raise ValueError(
            f"remainder = {remainder!r}: expected 'flush' (step with what is there), 'drop' "
            "(discard it) or 'carry' (fill the window in the next epoch). When in doubt, use "
            "'flush'."
        )
    if drop_last and num_examples < batch_size:
        raise ValueError(
            f"drop_last with {num_examples} examples in batches of {batch_size} leaves no batch, "
            "so nothing would be trained. Use drop_last=False or a batch_size of at most "
            f"{num_examples}."
        )
    full, rest = divmod(num_examples, batch_size)
    per_epoch = full if drop_last or rest == 0 else full + 1
    leftover = per_epoch % accum_steps
    full_windows, every_window = per_epoch // accum_steps, -(-per_epoch // accum_steps)
    carried_updates, carried_rest = divmod(epochs * per_epoch, accum_steps)
    in_epoch, in_run, at_end = {
        "flush": (every_window, epochs * every_window, 0),
        "drop": (full_windows, epochs * full_windows, epochs * leftover),
        "carry": (full_windows, carried_updates, carried_rest),
    }[remainder]
    return TrainingArithmetic(
        iterations_per_epoch=per_epoch,
        iterations=epochs * per_epoch,
        last_batch=batch_size if drop_last or rest == 0 else rest,
        effective_batch=batch_size * accum_steps,
        examples_seen=epochs * (num_examples - rest if drop_last else num_examples),
        examples_unseen_per_epoch=rest if drop_last else 0,
        updates_per_epoch=in_epoch,
        updates=in_run,
        leftover_micro_batches=leftover,
        leftover_at_end=at_end,
        formula_updates=epochs * -(-num_examples // (batch_size * accum_steps)),
        loop_updates=epochs * full_windows,
        loop_largest_window=_largest_window(full_windows, accum_steps, leftover, epochs),
    )


def _largest_window(full_windows: int, accum_steps: int, leftover: int, epochs: int) -> int:
    if full_windows == 0:
        return 0  # fewer micro-batches than K: the printed loop never steps
    return accum_steps + (leftover if epochs > 1 else 0)


def _check_counts(**counts: int) -> None:
    for name, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            hint = {
                "num_examples": "Is the data set empty, or is this a share instead of a count?",
                "batch_size": "For one example at a time, use 1.",
                "epochs": "For one pass over the data, use 1.",
                "accum_steps": "For no accumulation, use 1.",
            }[name]
            raise ValueError(f"{name} = {count!r}: expected a whole number of at least 1. {hint}")
