"""Files of a class directory: written whole or not at all, locked while one run uses them.

A fault says which file it is about, also where the system's own words, as of a full disk, do not.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write a file so that it is there whole or not at all, be the disk full or the power gone.

    A link is followed; what is not a regular file, e.g. /dev/stdout on a terminal, is
    written as it comes.

    Raises:
        OSError: It could not be written; what was there before still is.
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
    """Let an OSError in here carry the file's name."""
    try:
        yield
    except OSError as fault:
        fault.filename = str(path)
        raise


def lock(path: Path, *, wait: bool) -> int:
    """Open a file for appending, made if need be, and lock it against other processes.

    Args:
        path: Its folder is made, too.
        wait: Until another process lets go of it.

    Returns:
        Its descriptor. The lock lasts until that is closed; the kernel does so where the process
        ends, however it ends.

    Raises:
        BlockingIOError: Another process holds it, and we were not to wait.
        OSError: It cannot be opened, or its file system knows no locks.
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
