"""Blocks that the set-ups are made of: small data, small models, a plain loop in a few styles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

STYLES = ("mlp", "cnn", "rnn", "transformer", "regression", "binary", "multilabel")


@dataclass(frozen=True)
class Pair:
    """A faulty set-up and its repaired twin; `ids` are the classes that name it rightly."""

    name: str
    ids: tuple[str, ...]
    make: Callable[[bool], dict[str, Any]]


PAIRS: list[Pair] = []


def pair(*ids: str, **variants: list) -> Callable:
    """Register `make(bug, ...)`, once for each value of its one variant."""

    def register(make: Callable) -> Callable:
        for key, values in variants.items() or {"": [None]}.items():
            for value in values:
                name = make.__name__ + (f"[{value}]" if key else "")
                extra = {key: value} if key else {}
                PAIRS.append(Pair(name, ids, _seeded(make, extra)))
        return make

    return register


def _seeded(make: Callable, extra: dict) -> Callable:
    def seeded(bug: bool) -> dict[str, Any]:
        torch.manual_seed(0)
        return make(bug, **extra)

    return seeded


class Recurrent(nn.Module):
    """GRU over the rows of [B, T, D], last state to the head."""

    def __init__(self, outputs: int = 3) -> None:
        super().__init__()
        self.gru = nn.GRU(4, 16, batch_first=True)
        self.head = nn.Linear(16, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.gru(x)[0][:, -1])


class Attentive(nn.Module):
    """One transformer block over [B, T, D], mean-pooled."""

    def __init__(self, outputs: int = 3) -> None:
        super().__init__()
        self.project = nn.Linear(4, 16)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
        self.head = nn.Linear(16, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.block(self.project(x)).mean(1))


def network(style: str) -> nn.Module:
    if style == "cnn":
        return nn.Sequential(
            nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
            nn.Flatten(), nn.Dropout(0.2), nn.Linear(32, 3),
        )  # fmt: skip
    if style == "rnn":
        return Recurrent()
    if style == "transformer":
        return Attentive()
    outputs = {"regression": 1, "binary": 1, "multilabel": 4}.get(style, 3)
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, outputs))


def criterion(style: str) -> nn.Module:
    if style == "regression":
        return nn.MSELoss()
    return nn.BCEWithLogitsLoss() if style in ("binary", "multilabel") else nn.CrossEntropyLoss()


def examples(style: str = "mlp", n: int = 176, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Inputs and targets that can be learned, with a little noise; the rule is the same for all."""
    own = torch.Generator().manual_seed(1000 + seed)
    flat = torch.randn(n, 8, generator=own)
    classes = torch.stack([flat[:, 0], flat[:, 1], -flat[:, 0] - flat[:, 1]], 1).argmax(1)
    if style == "cnn":
        images = torch.randn(n, 1, 8, 8, generator=own) * 0.5
        images[torch.arange(n), 0, 1 + 2 * classes] += 1.5
        return images, classes
    if style in ("rnn", "transformer"):
        steps = torch.randn(n, 6, 4, generator=own)
        steps[torch.arange(n), :, classes] += 1.0
        return steps, classes
    if style == "regression":
        noise = 0.1 * torch.randn(n, generator=own)
        return flat, (flat[:, :1] - 0.5 * flat[:, 1:2] + noise[:, None])
    if style == "binary":
        return flat, (flat[:, :1] > 0).float()
    if style == "multilabel":
        return flat, (flat[:, :4] > 0.3).float()
    return flat, classes


def loaders(style: str = "mlp", batch_size: int = 16, **options: Any) -> dict[str, Any]:
    own = torch.Generator().manual_seed(7)
    train = TensorDataset(*examples(style))
    val = TensorDataset(*examples(style, 72, seed=1))
    options = {"shuffle": True, "generator": own} | options
    return {
        "train_loader": DataLoader(train, batch_size, **options),
        "val_loader": DataLoader(val, batch_size),
    }


def parts(style: str = "mlp", lr: float = 0.05, optimizer: str = "SGD", **more: Any) -> dict:
    """Model, loss, optimizer, loaders, task."""
    model = more.pop("model", None) or network(style)
    loss_fn = more.pop("loss_fn", None) or criterion(style)
    kind = getattr(torch.optim, optimizer)
    words = more.pop("words", {})
    task = style if style in ("regression", "binary", "multilabel") else "classification"
    found = {
        "model": model, "loss_fn": loss_fn, "task": task,
        "optimizer": kind(model.parameters(), lr=lr, **words),
        **loaders(style, **more.pop("loader", {})),
    }  # fmt: skip
    if task == "classification":
        found["num_classes"] = 3
    return found | more


def score(s: dict, *, train: bool = False, grad: bool = False, back: bool = True) -> Callable:
    """An evaluate() with loss and, for classes, accuracy."""
    model, loss_fn, loader = s["model"], s["loss_fn"], s["val_loader"]

    def evaluate() -> dict[str, float]:
        if not train:
            model.eval()
        total = hits = count = 0.0
        with torch.set_grad_enabled(grad):
            for x, y in loader:
                out = model(x)
                total += loss_fn(out, y).item() * len(y)
                if out.dim() == 2 and y.dim() == 1:
                    hits += (out.argmax(1) == y).sum().item()
                count += len(y)
        if back:
            model.train()
        metrics = {"val_loss": total / count}
        return metrics | ({"val_accuracy": hits / count} if s.get("num_classes") else {})

    return evaluate


def plain(s: dict) -> Callable:
    """The six operations."""

    def train_step(batch: Any) -> float:
        x, y = batch
        s["model"].train()
        s["optimizer"].zero_grad()
        loss = s["loss_fn"](s["model"](x), y)
        loss.backward()
        s["optimizer"].step()
        return loss.item()

    return train_step


def whole(s: dict, **options: Any) -> dict:
    return s | {"train_step": plain(s), "evaluate": score(s, **options)}


__all__ = [
    "PAIRS",
    "STYLES",
    "F",
    "Pair",
    "examples",
    "nn",
    "pair",
    "parts",
    "plain",
    "score",
    "torch",
    "whole",
]  # fmt: skip
