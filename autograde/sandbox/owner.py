"""Whose a private folder is, so that what a killed grader leaves can be told from what is in use.

    /tmp/autograde-4121-88213-4026531836-x7f3q2_1
                   pid  start  pid namespace

A process is known by its number and the moment it started, since numbers come round again; and the
numbers of another namespace, as of a container that shares this /tmp, mean nothing here.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

NAMED = re.compile(r"autograde-(\d+)-(\d+)-(\d+)-\w+")


class Owner(NamedTuple):
    """A process of this machine."""

    pid: int
    started: int
    """Clock ticks after the machine's start."""
    namespace: int
    """In which the number counts."""

    @property
    def is_alive(self) -> bool:
        """Whether it still runs; a dead one that nobody has waited for does not."""
        return _started(self.pid) == self.started


def this_process() -> Owner:
    """The process that asks. On Linux only.

    Raises:
        OSError: There is no /proc.
    """
    pid = os.getpid()
    started = _started(pid)
    if started is None:
        raise FileNotFoundError(f"/proc/{pid}/stat cannot be read: is /proc mounted?")
    return Owner(pid, started, os.stat("/proc/self/ns/pid").st_ino)


def private_folder() -> Path:
    """A new folder of this process's own, named after it where the system can tell."""
    prefix = "autograde-"
    if sys.platform.startswith("linux"):
        prefix += "-".join(map(str, this_process())) + "-"
    return Path(tempfile.mkdtemp(prefix=prefix))


def owner_of(folder: Path) -> Owner | None:
    """The process that a private folder is named after; None for any other folder."""
    named = NAMED.fullmatch(folder.name)
    return Owner(*map(int, named.groups())) if named else None


def sweep() -> list[Path]:
    """Remove this user's private folders whose processes are dead; return which.

    What is not surely dead stays: other names, other users, links, other namespaces.
    """
    if not sys.platform.startswith("linux"):
        return []
    here = this_process().namespace
    removed = []
    for folder in Path(tempfile.gettempdir()).glob("autograde-*"):
        owner = owner_of(folder)
        if owner and owner.namespace == here and not owner.is_alive and _is_our_folder(folder):
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(folder)
    return removed


def _is_our_folder(path: Path) -> bool:
    try:
        about = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid()


def is_stopped(pid: int) -> bool:
    """Whether a process stands still by a signal, or is traced."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
    except OSError:
        return False


def _started(pid: int) -> int | None:
    """When a process started; None where there is none, or only its remains."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if after_name[0] in "ZX" else int(after_name[19])
