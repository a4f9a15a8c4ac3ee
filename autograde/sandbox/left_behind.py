"""What a process that has ended leaves to others in a sandbox, apart from memory: all of it goes.

An exercise that calls a function as a new process would means one that starts with the files in a
folder, and nothing else. A fork still shares maps and pipes with its parent, writes files where the
next one reads them, and may leave a process that goes on.
"""

from __future__ import annotations

import ctypes
import os
import signal
import stat
import sys
import zlib
from collections.abc import Iterable, Iterator, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

SMALL = 2**20
"""Bytes of a file up to which it is kept in memory, to be written again; a longer one that was
changed is removed."""
LARGE_MAP = 2**26
"""Bytes of a shared map above which it is empty in the new process rather than copied."""
MEMORY_DEVICES = 1
"""Their major number: /dev/null, /dev/zero, /dev/urandom."""
PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS_FIXED = 3, 0x32


@contextmanager
def nothing_left(places: Iterable[str], kept: Path | None) -> Iterator[None]:
    """Files, in places that can be written to, are afterwards as they were before, and so are those
    that are open; what was started inside is ended.

    Args:
        places: Folders, each of a file system of its own.
        kept: The folder that is handed on.
    """
    read = ((path, _File.read(path)) for path in _files(places, kept))
    before = {path: file for path, file in read if file is not None}
    folders = set(_folders(places, kept))
    opened = {descriptor: _Open.read(descriptor) for descriptor in _descriptors()}
    running = _children()
    try:
        yield
    finally:
        while started := _children() - running:
            for process in started:
                with suppress(OSError):
                    os.kill(process, signal.SIGKILL)
                    os.waitpid(process, 0)
        for path in _files(places, kept):
            if path not in before:
                path.unlink(missing_ok=True)
        for folder in reversed([f for f in _folders(places, kept) if f not in folders]):
            with suppress(OSError):
                folder.rmdir()
        for path, file in before.items():
            file.restore(path)
        for descriptor, about in opened.items():
            if about is not None:
                about.restore(descriptor)


@dataclass(frozen=True)
class _Open:
    """What forks share of an open file: its place, its modes, and what it holds, even where it has
    no name."""

    number: tuple[int, int]
    modes: int
    place: int | None
    content: bytes | int | None

    @classmethod
    def read(cls, descriptor: int) -> _Open | None:
        with suppress(OSError, ImportError):
            import fcntl  # which Windows lacks

            about = os.fstat(descriptor)
            number, modes = (about.st_dev, about.st_ino), fcntl.fcntl(descriptor, fcntl.F_GETFL)
            if not stat.S_ISREG(about.st_mode):
                return cls(number, modes, None, None)
            place = os.lseek(descriptor, 0, os.SEEK_CUR)
            return cls(number, modes, place, _content_of(descriptor))
        return None

    def restore(self, descriptor: int) -> None:
        now = _Open.read(descriptor)
        if now is None or now == self or now.number != self.number:
            return
        import fcntl

        with suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_SETFL, self.modes)
            if now.content != self.content:
                with open(f"/proc/self/fd/{descriptor}", "r+b") as file:
                    file.truncate(0)
                    file.write(self.content if isinstance(self.content, bytes) else b"")
        if self.place is not None:
            os.lseek(descriptor, self.place, os.SEEK_SET)


def _content_of(descriptor: int) -> bytes | int | None:
    """Of an open file, or a sum of it where it is long; None where it cannot be read."""
    with suppress(OSError), open(f"/proc/self/fd/{descriptor}", "rb") as file:
        content = file.read()
        return content if len(content) <= SMALL else zlib.crc32(content)
    return None


def _descriptors() -> list[int]:
    with suppress(OSError):
        return [int(name) for name in os.listdir("/proc/self/fd")]
    return []


@dataclass(frozen=True)
class _File:
    """What a file holds, and what is written about it."""

    content: bytes | int | str
    mode: int
    times: tuple[int, int]
    notes: tuple[str, ...]

    @classmethod
    def read(cls, path: Path) -> _File | None:
        with suppress(OSError):
            about = path.lstat()
            times = about.st_atime_ns, about.st_mtime_ns
            if stat.S_ISLNK(about.st_mode):
                return cls(os.readlink(path), 0, times, ())
            if stat.S_ISREG(about.st_mode):
                content = path.read_bytes()
                held = content if len(content) <= SMALL else zlib.crc32(content)
                return cls(held, about.st_mode, times, _notes_of(path))
        return None

    def restore(self, path: Path) -> None:
        now = _File.read(path)
        if now is None or now.content != self.content:
            with suppress(OSError), path.open("r+b") as file:  # which a descriptor may still show
                file.truncate(0)
            path.unlink(missing_ok=True)
            if isinstance(self.content, str):
                path.symlink_to(self.content)
            elif isinstance(self.content, bytes):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(self.content)
        if isinstance(self.content, bytes | int) and path.exists():
            for note in {*_notes_of(path)} - {*self.notes}:
                os.removexattr(path, note)
            os.chmod(path, stat.S_IMODE(self.mode))
            os.utime(path, ns=self.times)


def _notes_of(path: Path) -> tuple[str, ...]:
    return tuple(os.listxattr(path)) if sys.platform.startswith("linux") else ()


def _walk(places: Iterable[str], kept: Path | None) -> Iterator[tuple[Path, list[str]]]:
    for place in places:
        device = os.lstat(place).st_dev
        for folder, inside, names in os.walk(place):
            inside[:] = [name for name in inside if _belongs(Path(folder, name), device, kept)]
            links = [name for name in inside if os.path.islink(os.path.join(folder, name))]
            yield Path(folder), names + links


def _belongs(folder: Path, device: int, kept: Path | None) -> bool:
    """Whether a folder is of the place: not handed on, nor another file system's."""
    try:
        return folder != kept and folder.lstat().st_dev == device
    except OSError:
        return False


def _files(places: Iterable[str], kept: Path | None) -> list[Path]:
    return [folder / name for folder, names in _walk(places, kept) for name in names]


def _folders(places: Iterable[str], kept: Path | None) -> list[Path]:
    return [folder for folder, _ in _walk(places, kept)]


def _children() -> Set[int]:
    found: set[int] = set()
    with suppress(OSError):
        for task in Path("/proc/self/task").iterdir():
            with suppress(OSError):
                found |= set(map(int, (task / "children").read_text().split()))
    return found


def share_nothing(kept: Iterable[int]) -> None:
    """In a fork: shared maps become its own, and of what is open nothing leads anywhere but files
    and folders: no pipe, no socket, no terminal, no counter.

    Args:
        kept: Descriptors that stay.
    """
    if not sys.platform.startswith("linux"):
        return
    for line in Path("/proc/self/maps").read_text().splitlines():
        area, rights, *_ = line.split()
        if rights.startswith("rw") and rights[3] == "s":
            start, end = (int(edge, 16) for edge in area.split("-"))
            _made_private(start, end - start)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError):
            if descriptor not in kept and not _keeps_nothing(os.fstat(descriptor)):
                os.dup2(nowhere, descriptor, inheritable=False)
    os.close(nowhere)


def _keeps_nothing(about: os.stat_result) -> bool:
    """Whether it is a folder, a device such as /dev/null, or a file, which is put back later."""
    memory = stat.S_ISCHR(about.st_mode) and os.major(about.st_rdev) == MEMORY_DEVICES
    return memory or stat.S_ISDIR(about.st_mode) or stat.S_ISREG(about.st_mode)


def _made_private(start: int, size: int) -> None:
    content = ctypes.string_at(start, size) if size <= LARGE_MAP else b""
    mmap = ctypes.CDLL(None, use_errno=True).mmap
    mmap.restype = ctypes.c_void_p
    where = ctypes.c_void_p(start), ctypes.c_size_t(size)
    flags = PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS_FIXED, -1, ctypes.c_long(0)
    if mmap(*where, *flags) != start:
        raise OSError(ctypes.get_errno(), f"mmap: {os.strerror(ctypes.get_errno())}")
    ctypes.memmove(start, content, len(content))
