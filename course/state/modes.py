"""Modes: train or eval, module by module, so that a BatchNorm frozen in eval mode stays frozen.

Source: the training-loop chapter, "Evaluation"; ledger C03-C05, F125, F127.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def modes_kept(*models: nn.Module) -> Iterator[None]:
    """Afterwards every module is in its original mode again."""
    modes = [(module, module.training) for model in models for module in model.modules()]
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training  # not train(): it would flip frozen children


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Eval mode and no graph inside; afterwards every module is in its original mode again."""
    with modes_kept(model), torch.no_grad():
        model.eval()
        yield


def train_mode_(model: nn.Module) -> None:
    """Train mode, unless the model is in it: then a layer frozen in eval mode stays frozen."""
    if not model.training:
        model.train()
