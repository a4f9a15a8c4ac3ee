"""Programs and their healthy twins: training steps that differ in how they clear gradients.

    make = program("third", kind="adam", dropout=0.5)
    step, model, optimizer = make()       # every call starts from the same weights
    step((inputs, targets))               # one update; returns the loss

A probe that should tell a bug from its healthy twin must be tested on both, in many forms: a
healthy program may clear at the start, at the end, to zeros or to None, and may keep momentum,
which is not a bug.

Source: Engineering module, §5; ledger T20, B01.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

Batch = tuple[Tensor, Tensor]
Program = tuple[Callable[[Batch], float], nn.Module, Optimizer]

HEALTHY = {
    "start": "optimizer.zero_grad() before forward",
    "zeros": "optimizer.zero_grad(set_to_none=False)",
    "model": "model.zero_grad() before forward",
    "end": "optimizer.zero_grad() after the step",
    "none": "p.grad = None for every parameter",
}
BUGGY = {
    "never": "gradients are never cleared",
    "first": "cleared only before the first step",
    "third": "not cleared before every third step",
    "short": "not cleared before a batch that is shorter than the first",
    "head": "only the last layer is cleared",
    "body": "all but the last layer are cleared",
}
KINDS: dict[str, Callable[..., Optimizer]] = {
    "sgd": lambda parameters, lr: torch.optim.SGD(parameters, lr),
    "momentum": lambda parameters, lr: torch.optim.SGD(parameters, lr, momentum=0.9),
    "adam": lambda parameters, lr: torch.optim.Adam(parameters, lr / 4),
    "adamw": lambda parameters, lr: torch.optim.AdamW(parameters, lr / 4, weight_decay=0.1),
}


def program(
    cleared: str,
    *,
    kind: str = "sgd",
    widths: tuple[int, int, int] = (3, 6, 3),
    lr: float = 0.2,
    norm: bool = False,
    dropout: float = 0.0,
    halves: bool = False,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Callable[[], Program]:
    """Return a function that makes the program: a step, its model, its optimizer.

    Args:
        cleared: How it clears, a key of `HEALTHY` or `BUGGY`.
        kind: Kind of optimizer.
        widths: Features, hidden units, classes.
        lr: Its learning rate.
        norm: Whether the model has a BatchNorm.
        dropout: Its probability; 0 for none. It draws from torch's global generator.
        halves: Whether an update is made of two micro-batches.
        seed: Seed of the weights, which are the same each time.
        device: Where the model is.

    Raises:
        ValueError: There is no such way to clear.
    """
    if cleared not in {**HEALTHY, **BUGGY}:
        raise ValueError(f"cleared = {cleared!r}: there are {', '.join((*HEALTHY, *BUGGY))}.")

    def make() -> Program:
        model = _network(widths, norm, dropout, seed).to(device)
        optimizer = KINDS[kind](model.parameters(), lr)
        sizes: list[int] = []

        def step(batch: Batch) -> float:
            sizes.append(len(batch[1]))
            _clear(cleared, sizes, model, optimizer)
            total = 0.0
            parts = [part.chunk(2) if halves else (part,) for part in batch]
            for inputs, targets in zip(*parts, strict=True):
                loss = F.cross_entropy(model(inputs), targets) * (len(targets) / len(batch[1]))
                loss.backward()
                total += loss.item()
            optimizer.step()
            if cleared == "end":
                optimizer.zero_grad()
            return total

        return step, model, optimizer

    return make


def _network(widths: tuple[int, int, int], norm: bool, dropout: float, seed: int) -> nn.Sequential:
    features, hidden, classes = widths
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        layers: list[nn.Module] = [nn.Linear(features, hidden)]
        layers += [nn.BatchNorm1d(hidden)] if norm else []
        layers += [nn.Tanh()]
        layers += [nn.Dropout(dropout)] if dropout else []
        return nn.Sequential(*layers, nn.Linear(hidden, classes))


def _clear(cleared: str, sizes: list[int], model: nn.Module, optimizer: Optimizer) -> None:
    """What the program clears before its forward pass, by the sizes of its batches so far."""
    if {
        "start": True,
        "first": len(sizes) == 1,
        "third": len(sizes) % 3 != 0,
        "short": sizes[-1] >= sizes[0],
    }.get(cleared, False):
        optimizer.zero_grad()
    elif cleared == "zeros":
        optimizer.zero_grad(set_to_none=False)
    elif cleared == "model":
        model.zero_grad()
    elif cleared == "none":
        for parameter in model.parameters():
            parameter.grad = None
    elif cleared == "head":
        model[-1].zero_grad()
    elif cleared == "body":
        for layer in list(model)[:-1]:
            layer.zero_grad()
