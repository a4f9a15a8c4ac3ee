"""Another thread that runs where a function must do without torch: there torch does not refuse.

A mode of torch's refuses in one thread alone. A thread that is started, or that has run by the end,
is counted; what happens once may be a progress bar that wakes now and then.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from io import FileIO
from os import listdir
from os.path import isdir
from threading import get_native_id

WITHOUT_TORCH = "autograde.without_torch"
"""Event of our own: from here on (True), or no longer (False), a function must do without it."""
STARTED = {"_thread.start_new_thread", "_thread.start_joinable_thread"}
EVENTS = {WITHOUT_TORCH, *STARTED}
OFTEN = 3
"""Calls beside which a thread runs until somebody is told."""


def looked_at() -> Callable[[str, bool], bool]:
    """What says of an event in EVENTS, and whether it begins or ends, whether to tell of it."""
    times, before, found = _times, list[dict[str, str] | None](), [0]

    def look(event: str, begins: bool) -> bool:
        if event != WITHOUT_TORCH:
            before[-1:] = [None] * bool(before)
            return False
        if begins:
            before.append(times())
            return False
        found[0] += (before.pop() if before else None) != times()
        return found[0] >= OFTEN

    return look


def _times() -> dict[str, str]:
    """How long each thread but this has run, as the kernel counts it; CUDA's own do not count."""
    own, found = str(get_native_id()), dict[str, str]()
    for task in listdir(TASKS) if isdir(TASKS) else ():
        if task != own and not _read(task, "comm").startswith("cuda"):
            found[task] = _read(task, "schedstat").partition(" ")[0]
    return found


def _read(task: str, what: str) -> str:
    with suppress(OSError), FileIO(f"{TASKS}/{task}/{what}") as file:
        return file.read().decode()
    return ""


TASKS = "/proc/self/task"
