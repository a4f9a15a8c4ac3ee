"""Bounds on our own processes when they read untrusted data: processor time and memory.

Time is the processor's, not the wall's: on a machine that is busy with a neighbour's work nobody is
stopped sooner.
"""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


class TooMuchError(Exception):
    """What was read took more processor time, or more memory, than it may."""


@contextmanager
def at_most(cpu_s: float, grow_bytes: int) -> Iterator[None]:
    """Raise TooMuchError where the body takes more than this.

    Time is bounded in the main thread only: signals come there.

    Args:
        cpu_s: Seconds of processor time.
        grow_bytes: How far the memory may grow meanwhile.
    """
    with _time_bounded(cpu_s), _memory_bounded(grow_bytes):
        try:
            yield
        except MemoryError as fault:
            raise TooMuchError(f"more than {grow_bytes / 2**30:.3g} GiB of memory") from fault


@contextmanager
def _time_bounded(seconds: float) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_signal: object) -> None:
        raise TooMuchError(f"more than {seconds:g} s of processor time")

    before = signal.signal(signal.SIGPROF, stop)
    outer_s, again_s = signal.setitimer(signal.ITIMER_PROF, 0)
    used_s = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, seconds, 1.0)  # again, should somebody swallow the first
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        if outer_s:  # of a bound around this one, which goes on
            left_s = outer_s - (time.process_time() - used_s)
            signal.setitimer(signal.ITIMER_PROF, max(left_s, 0.001), again_s)


@contextmanager
def _memory_bounded(grow_bytes: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit_growth(grow_bytes)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def limit_growth(grow_bytes: int, *, for_good: bool = False) -> None:
    """Let this process's data memory grow by so much and no more; on Linux only.

    Args:
        grow_bytes: What may come on top of what the process has now, or has inherited.
        for_good: The process cannot raise the limit again.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    with suppress(OSError, ValueError, IndexError):
        pages = int(Path("/proc/self/statm").read_text().split()[5])
        wanted = pages * resource.getpagesize() + grow_bytes
        if soft == resource.RLIM_INFINITY or wanted < soft:
            resource.setrlimit(resource.RLIMIT_DATA, (wanted, wanted if for_good else hard))


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used; 0 where that cannot be read."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS
