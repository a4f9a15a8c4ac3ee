"""A resnet18 fine-tuned: its stem frozen, statistics included, and its weights averaged (EMA)."""

from __future__ import annotations

import torch
from torch import nn
from torch.optim import AdamW
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from course.data import make_loader
from course.engine import EMA, History, Trainer

EPOCHS, DECAY = 2, 0.9


def parts():
    from torchvision.models import resnet18

    torch.manual_seed(0)
    model = resnet18(num_classes=3)
    model.train()
    for layer in (model.conv1, model.bn1, model.layer1):
        layer.requires_grad_(False)
        layer.eval()
    images, targets = torch.randn(12, 3, 32, 32), torch.arange(12) % 3
    data = torch.utils.data.TensorDataset(images, targets)
    moving = [p for p in model.parameters() if p.requires_grad]
    loaders = make_loader(data, 4, shuffle=True, seed=0), make_loader(data, 4)
    return model, AdamW(moving, lr=1e-3), *loaders


def train() -> tuple[nn.Module, History]:
    model, optimizer, train_loader, val_loader = parts()
    ema = EMA(decay=DECAY)
    trainer = Trainer(model, nn.CrossEntropyLoss(), optimizer, callbacks=[ema], device="cpu")
    history = trainer.fit(train_loader, val_loader, epochs=EPOCHS, progress=False)
    return ema.model, history


def by_hand() -> tuple[nn.Module, list[float]]:
    model, optimizer, train_loader, val_loader = parts()
    ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(DECAY), use_buffers=True)
    criterion, losses = nn.CrossEntropyLoss(), []
    for _ in range(EPOCHS):
        for images, targets in train_loader:
            optimizer.zero_grad()
            criterion(model(images), targets).backward()
            optimizer.step()
            ema.update_parameters(model)
        ema.module.eval()
        total = num = 0
        with torch.no_grad():
            for images, targets in val_loader:
                total += criterion(ema.module(images), targets).double().item() * len(targets)
                num += len(targets)
        losses.append(total / num)
    return ema.module, losses


if __name__ == "__main__":
    print(train()[1])
