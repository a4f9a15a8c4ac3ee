"""A small run of several processes with all in it that could differ when it is resumed.

    torchrun --nproc-per-node 2 tests/engine/ddp_job.py RUN_DIR LOG ACCUM_STEPS [UPDATE MICRO_STEP]

Shuffle, dropout, keyed augmentation, windows of micro-batches of which the last may be trailing, a
last batch of which the processes get unlike shares, a schedule per update, early stopping,
checkpoints inside epochs. Each process writes to LOG which micro-batch it is at; there the test
reads whom to kill, and when. At UPDATE and MICRO_STEP, where they are given, all wait for that.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset

from course.data.loading import make_loader
from course.engine import (
    EarlyStopping,
    Trainer,
    num_ranks,
    process_group,
    rank,
    seed_everything,
    warmup_cosine,
)

EPOCHS, EXAMPLES, BATCH, BATCHES = 3, 45, 6, 8  # the last batch holds 3 examples


class Heard(nn.Module):
    """A small net; `told` is called before each forward pass in training."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.3), nn.ReLU(), nn.Linear(16, 3))
        self.told = lambda: None

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.told()
        return self.net(inputs)


def jitter(inputs: torch.Tensor) -> torch.Tensor:
    return inputs + 0.1 * torch.randn_like(inputs)


def say_where(trainer: Trainer, log: Path, wait_at: tuple[int, int] | None) -> None:
    """Let the model write `rank pid updates micro-step` before each forward pass."""
    last, micro_step = -1, 0

    def told() -> None:
        nonlocal last, micro_step
        update = trainer.progress.update
        micro_step = micro_step + 1 if update == last else 0
        last = update
        with open(log, "a", encoding="utf-8") as file:
            file.write(f"{rank()} {os.getpid()} {update} {micro_step}\n")
        if (update, micro_step) == wait_at:
            time.sleep(600)

    trainer.model.told = told


def run(
    run_dir: Path,
    log: Path,
    accum_steps: int,
    wait_at: tuple[int, int] | None,
    device: torch.device,
) -> None:
    """Train to the end, or go on where a killed run stopped."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(EXAMPLES, 6, generator=generator)
    data = TensorDataset(inputs, (inputs[:, :3] + 0.3).argmax(1))
    share = {"rank": rank(), "num_ranks": num_ranks()}
    train_loader = make_loader(data, BATCH, shuffle=True, seed=5, augment=jitter, **share)

    seed_everything(3)  # the same first weights in every process
    model = Heard()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    trainer = Trainer(
        model,
        nn.CrossEntropyLoss(),
        optimizer,
        scheduler=warmup_cosine(optimizer, warmup=2, total=EPOCHS * -(-BATCHES // accum_steps)),
        schedule_per="update",
        accum_steps=accum_steps,
        max_norm=1.0,
        device=device,
        callbacks=[EarlyStopping(patience=3)],
        seed=3,
        run_dir=run_dir,
    )
    say_where(trainer, log, wait_at)
    val_loader = make_loader(data, 16, **share)
    trainer.fit(train_loader, val_loader, epochs=EPOCHS, checkpoint_every=1, resume="auto")


if __name__ == "__main__":
    torch.set_num_threads(1)
    run_dir, log, accum_steps, *place = sys.argv[1:]
    with process_group() as device:
        wait_at = tuple(map(int, place)) or None
        run(Path(run_dir), Path(log), int(accum_steps), wait_at, device)
