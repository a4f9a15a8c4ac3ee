"""A small convolutional net on the digits: pairs, a schedule per update, early stopping."""

from __future__ import annotations

import torch
from torch import nn
from torch.optim import SGD

from course.data import load
from course.engine import EarlyStopping, History, Trainer, warmup_cosine

EPOCHS, BATCH_SIZE = 3, 64


def parts():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.2), nn.Linear(8 * 16, 10),
    )  # fmt: skip
    train_loader, val_loader = load("digits", num_examples=600).loaders(BATCH_SIZE)
    optimizer = SGD(model.parameters(), lr=0.2, momentum=0.9)
    total = EPOCHS * len(train_loader)
    scheduler = warmup_cosine(optimizer, warmup=2, total=total)
    return model, optimizer, scheduler, train_loader, val_loader


def train() -> tuple[nn.Module, History]:
    model, optimizer, scheduler, train_loader, val_loader = parts()
    trainer = Trainer(
        model, nn.CrossEntropyLoss(), optimizer, scheduler=scheduler, schedule_per="update",
        max_norm=1.0, callbacks=[EarlyStopping(patience=2)], seed=1, device="cpu",
    )  # fmt: skip
    return model, trainer.fit(train_loader, val_loader, epochs=EPOCHS, progress=False)


def by_hand() -> tuple[nn.Module, list[float]]:
    model, optimizer, scheduler, train_loader, val_loader = parts()
    criterion, losses = nn.CrossEntropyLoss(), []
    torch.manual_seed(1)
    best, waited = float("inf"), 0
    for _ in range(EPOCHS):
        model.train()
        for images, targets in train_loader:
            optimizer.zero_grad()
            criterion(model(images), targets).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
        model.eval()
        total = num = 0
        state = torch.get_rng_state()  # an evaluation must not change what dropout draws next
        with torch.no_grad():
            for images, targets in val_loader:
                total += criterion(model(images), targets).double().item() * len(targets)
                num += len(targets)
        torch.set_rng_state(state)
        losses.append(total / num)
        best, waited = (losses[-1], 0) if losses[-1] < best else (best, waited + 1)
        if waited >= 2:
            break
    return model, losses


if __name__ == "__main__":
    print(train()[1])
