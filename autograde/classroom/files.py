"""Files of a class directory: written completely or not at all, locked while one run uses them.

An error names its file even if the system's own message, e.g. about a full disk, does not.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FULL = re.compile(
    "|".join((os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT), "database or disk is full"))
)
"""How the system and SQLite say that there is no room left."""


def write_whole(path: Path, text: str) -> None:
    """Write a file completely or not at all, even if the disk is full or the power fails.

    A link is followed; what is not a regular file, e.g. /dev/stdout on a terminal, is written
    directly.

    Raises:
        OSError: It could not be written; the previous contents are still there.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        path.write_text(text, "utf-8")
        return
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with naming(path), unfinished.open("w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())  # else a power cut may leave the new name and no text
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add the file's name to an OSError raised inside."""
    try:
        yield
    except OSError as fault:
        fault.filename = str(path)
        raise


def lock(path: Path, *, wait: bool) -> int:
    """Open a file for appending, create it if necessary, and lock it against other processes.

    Args:
        path: Its folder is created, too.
        wait: Wait until another process releases it.

    Returns:
        Its descriptor. The lock lasts until that is closed, at the latest when the process ends.

    Raises:
        BlockingIOError: Another process holds it, and `wait` is False.
        OSError: It cannot be opened, or its file system does not support locks.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        with naming(path):
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
