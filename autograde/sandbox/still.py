"""While a function is called, processes started by earlier cells are stopped.

A process that was forked in an earlier cell holds the course's own functions without a guard, and
could answer in the student's place. The workers of a data loader stand still as well, and go on
afterwards as if nothing had been.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

STOPS_S = 0.2
"""How long to wait for a process to stop."""


@contextmanager
def standing_still(leader: int, trusted: bool, tell: Callable[[], None]) -> Iterator[None]:
    """Inside, the descendants of a student's process are stopped, but not the process itself.

    Args:
        leader: The process that was started: a keeper, or, where trusted, the student's own.
        trusted: Whether there is no keeper.
        tell: Called where one of them has run or ended nevertheless.
    """
    students = [leader] if trusted else _children(leader)
    stopped: set[int] = set()
    try:
        while new := {p for s in students for p in descendants(s)} - stopped:
            for process in new:  # others may be started while these are being stopped
                stopped.add(process)
                _send(process, signal.SIGSTOP)
        before = {process: turns for process in stopped if (turns := _turns_once_still(process))}
        yield
        if any(_turns(process) != turns for process, turns in before.items()):
            tell()
    finally:
        for process in stopped:
            _send(process, signal.SIGCONT)


def _turns_once_still(process: int) -> str:
    """How often a process has had a core by the time it has stopped; empty if it does not stop."""
    until = time.monotonic() + STOPS_S
    while (state := _state(process)) not in "tTZX" and time.monotonic() < until:
        time.sleep(0.001)
    return _turns(process) if state in "tT" else ""


def _state(process: int) -> str:
    with suppress(OSError), open(f"/proc/{process}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]
    return "X"


def _turns(process: int) -> str:
    """Empty if it has ended."""
    with suppress(OSError), open(f"/proc/{process}/status") as file:
        return "".join(line for line in file if "ctxt_switches" in line)
    return ""


def descendants(process: int) -> list[int]:
    """The processes that a process has started, and those that these have, as far as they live."""
    found, waiting = [], [process]
    while waiting:
        children = _children(waiting.pop())
        found += children
        waiting += children
    return found


def _children(process: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError, ValueError):
        for task in tasks_of(process):
            found += map(int, read(f"{task}/children").split())
    return found


def tasks_of(process: int) -> list[str]:
    """Folders of /proc on a process's threads. (Some 800 files are read there a submission: a Path
    for each, and a file with a buffer, would take three times as long.)"""
    folder = f"/proc/{process}/task"
    return [f"{folder}/{task}" for task in os.listdir(folder)]


def read(path: str) -> bytes:
    """A file of /proc."""
    with open(path, "rb", buffering=0) as file:
        return file.read()


def _send(process: int, what: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(process, what)
