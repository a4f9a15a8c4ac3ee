"""What save() gave: whether safe loading takes the file, and whether it holds weights alone."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn


def refusal(file: Path) -> str:
    """What the safe way of loading says of the file, if it refuses it."""
    if not file.is_file():
        return ""
    try:
        torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        text = str(error)
        at = max(0, text.find("Unsupported"))
        return text[at:].splitlines()[0][:120] or "unpickling error"
    except Exception:
        return ""  # another format
    return ""


def holds_weights_alone(model: nn.Module, saved: Any, file: Path) -> bool:
    """What was saved is weights by themselves, with no place for an optimizer.

    A model, its state_dict or a list of its tensors serves to put back the best weights or to use
    the model. `{"model": model.state_dict()}` has places by name, and is a checkpoint.
    """
    if saved is None and file.is_file():
        try:
            saved = torch.load(file, map_location="cpu", weights_only=True)
        except Exception:
            return False  # another format, or refused
    if isinstance(saved, nn.Module):
        return True
    if isinstance(saved, Mapping):
        return bool(saved) and set(saved) <= set(model.state_dict())
    return (
        isinstance(saved, (list, tuple)) and bool(saved)
        and all(isinstance(t, Tensor) and t.is_floating_point() for t in saved)
        and len(saved) <= len(model.state_dict())
    )  # fmt: skip
