"""A small run with everything on that could make a resumed run differ; tests kill it.

Shuffle, dropout, random augmentation in the workers, accumulation with a trailing window, a
schedule per update, early stopping, checkpoints inside epochs.
"""

from __future__ import annotations

import io
import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import torch
import torch._dynamo  # the first optimizer loads it, for seconds: here once, not in every child
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from course.data.loading import make_loader
from course.engine import EarlyStopping, Trainer, checkpoint, seed_everything, warmup_cosine

EPOCHS, UPDATES = 4, 16


class Jitter:
    """Noise from all three global generators, after `delay_s` seconds."""

    def __init__(self, delay_s: float) -> None:
        self.delay_s = delay_s

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        time.sleep(self.delay_s)
        noise = torch.randn_like(inputs) + np.random.rand() + random.random()
        return inputs + 0.1 * noise


def make_trainer(run_dir: Path | None, *, optimizer: str = "Adam") -> Trainer:
    torch.set_num_threads(1)
    seed_everything(3)
    model = nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.3), nn.ReLU(), nn.Linear(16, 3))
    optimizer = getattr(torch.optim, optimizer)(model.parameters(), lr=0.01)
    return Trainer(
        model,
        nn.CrossEntropyLoss(),
        optimizer,
        scheduler=warmup_cosine(optimizer, warmup=2, total=UPDATES),
        schedule_per="update",
        accum_steps=3,
        max_norm=1.0,
        device="cpu",
        callbacks=[EarlyStopping(patience=3)],
        seed=3,
        run_dir=run_dir,
    )


def make_loaders(num_workers: int, *, kind: str = "ours", delay_s: float = 0.0):
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(40, 6, generator=generator)
    data = TensorDataset(inputs, (inputs[:, :3] + 0.3).argmax(1))
    val = DataLoader(data, 16)
    # Forked, wherever the job itself runs: a fresh interpreter would load torch for each worker.
    workers = {"multiprocessing_context": "fork"} if num_workers else {}
    if kind == "ours":
        augment = Jitter(delay_s)
        train = make_loader(
            data, 4, shuffle=True, seed=5, augment=augment, num_workers=num_workers, **workers
        )
        return train, val
    noisy = Noisy(data, Jitter(delay_s))
    own = torch.Generator().manual_seed(5) if kind == "own generator" else None
    return DataLoader(
        noisy, 4, shuffle=True, num_workers=num_workers, generator=own, **workers
    ), val


class Noisy(torch.utils.data.Dataset):
    """Augmentation from the global generators, not keyed."""

    def __init__(self, data: TensorDataset, augment: Jitter) -> None:
        self.data, self.augment = data, augment

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int):
        inputs, target = self.data[index]
        return self.augment(inputs), target


def run(run_dir: str, num_workers: int, delay_s: float = 0.0, die_at: tuple | None = None) -> None:
    """Train to the end, or go on where a killed run stopped; or die at a moment of saving."""
    if die_at is not None:
        die_while_saving(*die_at)
    train, val = make_loaders(num_workers, delay_s=delay_s)
    make_trainer(Path(run_dir)).fit(
        train, val, epochs=EPOCHS, checkpoint_every=1, resume="auto", progress=False
    )


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_while_saving(moment: str, count: int) -> None:
    """Arrange that this process is killed at the `count`-th such moment."""
    calls = 0

    def dying(function):
        def wrapper(*arguments, **options):
            nonlocal calls
            calls += 1
            if calls == count:
                if moment == "half written":
                    whole = io.BytesIO()
                    function(arguments[0], whole)
                    arguments[1].write(whole.getvalue()[: len(whole.getvalue()) // 2])
                    arguments[1].flush()
                die()
            return function(*arguments, **options)

        return wrapper

    if moment == "half written":
        checkpoint.torch = Patched(torch, save=dying(torch.save))
    elif moment == "before fsync":
        checkpoint.os = Patched(os, fsync=dying(os.fsync))
    else:
        checkpoint.os = Patched(os, replace=dying(os.replace))


class Patched:
    """A module with one function replaced, for one importer only."""

    def __init__(self, module, **replaced) -> None:
        self._module = module
        self.__dict__.update(replaced)

    def __getattr__(self, name):
        return getattr(self._module, name)


def outcome(run_dir: Path) -> dict:
    """All that a run leaves behind, without the times."""
    last = torch.load(run_dir / "last.pt", weights_only=True)
    best = torch.load(run_dir / "best.pt", weights_only=True)
    for line in [*last["history"]["epochs"], best["epoch"]]:
        del line["seconds"]
    return {"last": last, "best": best}


def assert_same_bits(one, two, where="") -> None:
    """Equal types, keys, numbers and tensors, to the last bit."""
    assert type(one) is type(two), f"{where}: {one!r} and {two!r}"
    if isinstance(one, dict):
        assert list(one) == list(two), where
        for key in one:
            assert_same_bits(one[key], two[key], f"{where}[{key!r}]")
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(two), where
        for index, (a, b) in enumerate(zip(one, two, strict=True)):
            assert_same_bits(a, b, f"{where}[{index}]")
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one, two), f"{where} differs by up to {(one - two).abs().max()}"
    else:
        assert one == two, f"{where}: {one!r} and {two!r}"
