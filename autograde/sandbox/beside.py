"""Another thread that runs where a function must do without torch: there torch does not refuse.

A mode of torch's refuses in one thread alone. A thread that is started, or that has run by the end,
is counted; what happens once may be a progress bar that wakes now and then.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from contextlib import suppress
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
    times, before, found = _times, list[dict[str, str]](), [0]

    def look(event: str, begins: bool) -> bool:
        if event != WITHOUT_TORCH:
            if before:
                before[0].clear()  # so that it differs
            return False
        if begins:
            before.append(times() or {"": ""})
            return False
        was = before.pop() if before else None
        found[0] += was is None or any(was.get(one) != ran for one, ran in times().items())
        return found[0] >= OFTEN

    return look


def _times() -> dict[str, str]:
    """How long each thread but this has run, as the kernel counts it."""
    found: dict[str, str] = {}
    own = str(get_native_id())
    for task in listdir(TASKS) if isdir(TASKS) else ():
        if task != own:
            with suppress(OSError), builtins.open(f"{TASKS}/{task}/schedstat") as file:
                found[task] = file.read().split()[0]
    return found


TASKS = "/proc/self/task"
