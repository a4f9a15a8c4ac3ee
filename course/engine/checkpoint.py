"""Checkpoints: everything the next step depends on, in files that are complete or absent.

A run directory holds `last.pt` (where to continue), `previous.pt` (the one before, in case the last
is damaged later) and `best.pt` (the weights of the best epoch). Each is written under a temporary
name, flushed to disk, then renamed: a kill at any moment leaves a good file. Only tensors and plain
Python values go in, so that the file can be read with `weights_only=True`, which runs no code from
it.

Source: Lecture 3, "Saving and loading"; the training-loop chapter, "Checkpointing"; ledger C10-C12,
F105-F110, B28, B39.
"""

from __future__ import annotations

import errno
import os
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from course.engine.errors import CheckpointError

FORMAT = "course.checkpoint"
VERSION = 1
LAST, PREVIOUS, BEST = "last.pt", "previous.pt", "best.pt"


def save(state: Mapping[str, Any], path: Path | str, *, previous: Path | None = None) -> None:
    """Write a checkpoint to `path`, completely or not at all.

    Args:
        previous: Where to move the checkpoint that was at `path`.

    Raises:
        CheckpointError: `state` holds something that `weights_only=True` would refuse to read, or
            the disk cannot take it; no file is touched, and no partial file is left.
    """
    write_whole({"format": FORMAT, "version": VERSION, **plain(state)}, path, previous=previous)


def write_whole(
    document: Mapping[str, Any], path: Path | str, *, previous: Path | None = None
) -> None:
    """Write anything torch can save to `path`, completely or not at all.

    Args:
        previous: Where to move the file that was at `path`.

    Raises:
        CheckpointError: The disk cannot take it; no partial file is left.
    """
    path = Path(path)
    partial = path.with_name(path.name + ".partial")
    try:
        with open(partial, "wb") as file:
            torch.save(document, file)
            file.flush()
            os.fsync(file.fileno())  # the bytes are on the disk before the name is
        if previous is not None and path.exists():
            os.replace(path, previous)
        os.replace(partial, path)  # killed one line earlier, `find` takes the previous one
    except (OSError, RuntimeError) as error:  # torch's writer wraps the disk's refusal
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise CheckpointError(_why_not_written(path, error)) from error
    _sync_directory(path.parent)


def _why_not_written(path: Path, error: Exception) -> str:
    """A full disk, or whatever else the system says."""
    cause = error if isinstance(error, OSError) else error.__cause__ or error.__context__ or error
    reason = getattr(cause, "strerror", None) or str(cause).splitlines()[0][:120]
    kept = " The previous file is still there." if path.is_file() else ""
    return f"{path}: the checkpoint cannot be written ({reason}).{kept} {way_out_of(cause)}"


def way_out_of(error: BaseException) -> str:
    """What to try where a file cannot be written."""
    if getattr(error, "errno", None) == errno.ENOENT:
        return (
            "The run directory is gone: was it moved or deleted during the run? Move it back and "
            "resume, or start again."
        )
    return "Free some disk space, or give another run_dir, and resume from the last checkpoint."


def save_last(state: Mapping[str, Any], run_dir: Path) -> None:
    """Write `last.pt`; the old one becomes `previous.pt`."""
    save(state, run_dir / LAST, previous=run_dir / PREVIOUS)


def find(where: Path | str) -> Path | None:
    """The checkpoint to continue from: `where` itself, or a run directory's last complete one."""
    where = Path(where)
    if where.is_file():
        return where
    candidates = [where / LAST, where / PREVIOUS]
    return next((path for path in candidates if path.is_file()), None)


def load(path: Path | str) -> dict[str, Any]:
    """Read a checkpoint, every tensor on the CPU.

    Raises:
        CheckpointError: The file is missing, truncated, of another kind or of a newer version. The
            message names the checkpoint before it, if there is one.
    """
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file. Give a checkpoint or a run directory.")
    try:
        _check_sums(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises half a dozen kinds for a damaged file
        reason = str(error).strip().splitlines()[0][:120] if str(error).strip() else repr(error)
        raise CheckpointError(
            f"{path}: truncated, damaged or not a checkpoint ({reason}).{_way_out(path)}"
        ) from error
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise CheckpointError(
            f"{path}: was not written by this engine"
            + (f" (it holds {', '.join(map(str, list(state)[:5]))})" if state else "")
            + f". For bare weights use model.load_state_dict.{_way_out(path)}"
        )
    if state["version"] > VERSION:
        raise CheckpointError(
            f"{path}: format version {state['version']}, but this engine reads versions up to "
            f"{VERSION}. Use the course version that wrote it."
        )
    return state


def _check_sums(path: Path) -> None:
    """Each part of the file has a checksum (CRC-32); torch writes them and does not look at them.

    Raises:
        ValueError: One does not agree: some bit is another one than was written.
    """
    if not zipfile.is_zipfile(path):
        return  # torch.load says what it is
    with zipfile.ZipFile(path) as file:
        if (part := file.testzip()) is not None:
            raise ValueError(f"the checksum of its part {part} does not agree")


def load_weights(model: nn.Module, path: Path | str) -> dict[str, Any]:
    """Load the weights of a checkpoint, such as `best.pt`, into `model`.

    Args:
        path: A checkpoint, or a run directory for its `last.pt`. Under `EMA` or `SWA` that holds
            the weights that were trained; `best.pt` holds the averaged ones.

    Returns:
        The epoch's numbers when it was written; empty for one written inside an epoch.

    Raises:
        CheckpointError: As `load`; or names or shapes differ. The model is untouched.
    """
    path = find(path) or Path(path)
    state = load(path)
    fit_weights(model, state["model"], path)
    return state.get("epoch") or _epoch_just_ended(state)


def _epoch_just_ended(state: Mapping[str, Any]) -> dict[str, Any]:
    """The last epoch's numbers, if nothing was trained after it."""
    progress, epochs = state.get("progress", {}), state.get("history", {}).get("epochs")
    just_ended = epochs and progress.get("recorded") == progress.get("update")
    return dict(epochs[-1]) if just_ended else {}


def fit_weights(model: nn.Module, weights: Mapping[str, Tensor], path: Path) -> None:
    """Load `weights` into `model`; raise if anything does not fit, and change nothing."""
    check_weights(model, weights, path)
    model.load_state_dict(weights)


def check_weights(model: nn.Module, weights: Mapping[str, Tensor], path: Path) -> None:
    """Raise at the first of `weights` that does not fit `model`."""
    own = model.state_dict()
    lazy = {name for name in weights if is_lazy(own.get(name))}  # they take any shape
    differing = [
        f"{name} is {_shape(weights.get(name))} in the file and {_shape(own.get(name))} in the "
        "model"
        for name in dict.fromkeys([*own, *weights])
        if name not in lazy and _shape(weights.get(name)) != _shape(own.get(name))
    ]
    if differing:
        raise CheckpointError(
            f"{path}: written for a different model: {differing[0]}"
            + (f", and {len(differing) - 1} more" if len(differing) > 1 else "")
            + ". Build the model as it was built for that run."
        )


def plain(value: Any, where: str = "state") -> Any:
    """Convert NumPy numbers, arrays and paths in `value` to what `weights_only=True` can read."""
    if isinstance(value, np.generic):  # np.float64 is a float, and still refused
        return value.item()
    if value is None or isinstance(value, (Tensor, bool)):
        return value
    for base in (int, float, str, bytes):
        if isinstance(value, base):
            return base(value)  # torch.__version__ is a str of its own kind
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value.copy())
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Counter):  # MultiStepLR's milestones; torch reads it back
        return Counter(dict(value))
    if isinstance(value, Mapping):
        items = {key: plain(item, f"{where}[{key!r}]") for key, item in value.items()}
        if not hasattr(value, "_metadata"):
            return items
        state = OrderedDict(items)  # of a module: it finds there which version of it wrote this
        state._metadata = plain(value._metadata, f"{where}._metadata")
        return state
    for base in (list, tuple, set):  # a namedtuple is kept as a tuple
        if isinstance(value, base):
            return base([plain(item, f"{where}[...]") for item in value])
    raise CheckpointError(
        f"{where} is a {type(value).__name__}: a checkpoint can hold only tensors, numbers, "
        "strings, lists and dictionaries. Convert it to one of these in state_dict()."
    )


def _shape(value: Any) -> str:
    return "missing" if value is None else str(list(getattr(value, "shape", [])))


def _way_out(path: Path) -> str:
    previous = path.with_name(PREVIOUS)
    if path.name == PREVIOUS or not previous.is_file():
        return ""
    return f" The checkpoint before it is {previous}: resume from that one."


def _sync_directory(directory: Path) -> None:
    """The renames themselves reach the disk; some systems do not open directories."""
    try:
        descriptor = os.open(directory, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
