"""What a kill at any instant of a save would leave: the file, inspected while it is written.

    instants(save, state, path)     ["old", "cut off", "new"]

The file is inspected at every step of `save`, also of threads that it starts, and in the middle of
torch's writing: an item of the state calls us when it is pickled. What was written over the old
file's bytes unseen was cut off in between. `killed_while_saving` does this with a real process and
a real kill.

Source: Training-loop chapter, c7, component 1; ledger C10.
"""

from __future__ import annotations

import collections
import os
import pathlib
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch

PROBE = "written in between"
"""Key of the item that calls back while the state is being written."""
Save = Callable[[Mapping[str, Any], Path], Any]


class Probe:
    """Pickles as an empty dictionary, and calls a function while being pickled."""

    def __init__(self, callback: Callable[[], Any]) -> None:
        self.callback = callback

    def __reduce__(self) -> tuple[Any, ...]:
        self.callback()
        return collections.OrderedDict, ()


def instants(save: Save, state: Mapping[str, Any], path: Path) -> list[str]:
    """What is found at the path before, during and after a save, without repeats.

    Args:
        save: Called as `save(state, path)`; its exceptions are passed on.
        state: The new state.
        path: Path of a checkpoint, which may already exist.

    Returns:
        `old` (the bytes from before), `new` (a file that loads as the new state), `missing`, or
        `cut off` (a file that is neither).
    """
    old = path.open("rb") if path.exists() else None
    before = old.read() if old else None
    looks, stamps = [_found(path, before)], [_stamp(path)]

    def look() -> None:
        stamp = _stamp(path)
        if stamp == stamps[-1]:  # nothing was written since then
            return
        stamps.append(stamp)
        found = _found(path, before)
        if found != looks[-1]:
            looks.append(found)

    with _step_by_step(look, getattr(save, "__code__", None)):
        save({**state, PROBE: Probe(look)}, path)
    look()
    if old:
        with old:
            old.seek(0)
            if old.read() != before and "cut off" not in looks:
                looks.insert(-1, "cut off")
    return looks


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """A value that changes whenever a file is written or replaced."""
    try:
        about = os.stat(path)
    except FileNotFoundError:
        return None
    return about.st_ino, about.st_size, about.st_mtime_ns


def _found(path: Path, before: bytes | None) -> str:
    if not path.exists():
        return "missing"
    if path.read_bytes() == before:
        return "old"
    try:
        torch.load(path, weights_only=True)
    except Exception:  # torch raises various errors for a damaged file
        return "cut off"
    return "new"


@contextmanager
def _step_by_step(look: Callable[[], None], code: Any):
    """In this block, `look` is called at each step of every function in that code's file.

    This includes pathlib and shutil, whose copies and writes open a file before they fill it.
    """
    files = {getattr(code, "co_filename", None), pathlib.__file__, shutil.__file__}

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename not in files:
            return None
        frame.f_trace_opcodes = True  # `open(path, "wb").write(...)` is one line, and two steps
        look()
        return trace

    earlier, of_new_threads = sys.gettrace(), threading.gettrace()
    sys.settrace(trace)
    threading.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(earlier)
        threading.settrace(of_new_threads)


CHILD = """
import os, sys, time, torch
from course.analysis.instants import Probe

def wait():
    print("writing", flush=True)
    time.sleep(600)

state = {"epoch": 2, "weights": torch.zeros(1000), "probe": Probe(wait)}
how, path = sys.argv[1:]
if how == "direct":
    torch.save(state, path)
else:
    with open(path + ".partial", "wb") as file:
        torch.save(state, file)
    os.replace(path + ".partial", path)
"""


def killed_while_saving(how: str, path: Path) -> dict[str, Any]:
    """Let another process overwrite a checkpoint of epoch 1, and kill it while it writes.

    Args:
        how: `direct`, writes into the file itself; `renamed` writes into another file and then
            renames it.
        path: Path of the checkpoint; its folder must exist.

    Returns:
        `files` in the folder afterwards, and the `epoch` of the checkpoint, or the name of the
        `error` raised when loading it.
    """
    torch.save({"epoch": 1, "weights": torch.ones(1000)}, path)
    root = str(Path(__file__).parents[2])
    process = subprocess.Popen(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {root!r})\n{CHILD}", how, path],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        process.stdout.readline()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    left = {"files": sorted(file.name for file in path.parent.iterdir())}
    try:
        return left | {"epoch": torch.load(path, weights_only=True)["epoch"]}
    except Exception as error:
        return left | {"error": type(error).__name__}
