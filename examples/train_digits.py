"""Train the digits classifier, on one device or on many, with the same script.

    python examples/train_digits.py
    torchrun --nproc-per-node 2 examples/train_digits.py --run-dir runs/digits

Each process gets its share of every batch, so the updates are those of a single process:
`--batch-size` is the whole batch's, and the learning rate need not change with the number of
devices.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from torch import nn
from torch.optim import AdamW

from course.data import load
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=64, help="over all processes together")
    parser.add_argument("--accum-steps", type=int, default=1, help="micro-batches an update")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--precision", choices=["fp32", "bf16", "fp16"], default="fp32")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run-dir", type=Path, help="where record, log and checkpoints go")
    parser.add_argument("--resume", action="store_true", help="go on from --run-dir if it is there")
    with process_group() as device:
        train(parser.parse_args(), device)


def train(settings: argparse.Namespace, device) -> None:
    data = load("digits", seed=settings.seed)
    share = {"batch_size": settings.batch_size, "rank": rank(), "num_ranks": num_ranks()}
    train_loader = make_loader(data.train_dataset, shuffle=True, seed=settings.seed, **share)
    val_loader = make_loader(data.val_dataset, **share)

    seed_everything(settings.seed)  # the same first weights in every process
    model = nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, 128),
        nn.ReLU(),
        nn.Dropout(settings.dropout),
        nn.Linear(128, 10),
    )
    optimizer = AdamW(model.parameters(), lr=settings.lr)
    updates = settings.epochs * -(-len(train_loader) // settings.accum_steps)
    trainer = Trainer(
        model,
        nn.CrossEntropyLoss(),
        optimizer,
        scheduler=warmup_cosine(optimizer, warmup=updates // 20, total=updates),
        schedule_per="update",
        accum_steps=settings.accum_steps,
        max_norm=1.0,
        precision=settings.precision,
        device=device,
        callbacks=[EarlyStopping(patience=10)],
        seed=settings.seed,
        run_dir=settings.run_dir,
    )
    resume = "auto" if settings.resume else None
    history = trainer.fit(train_loader, val_loader, epochs=settings.epochs, resume=resume)
    if rank() == 0:
        print(history)
        best = history.best
        print(f"best: epoch {best['epoch']}, validation accuracy {best['val_accuracy']:.1%}")


if __name__ == "__main__":
    main()
