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
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

SMALL = 2**20
"""Bytes of a file up to which it is kept in memory, to be written again; where a longer
one was changed, all longer ones are removed."""
LARGE_MAP = 2**26
"""Bytes of a shared map above which it is empty in the new process rather than copied."""
MEMORY_DEVICES = 1
"""Their major number: /dev/null, /dev/zero, /dev/urandom."""
PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS_FIXED = 3, 0x32


@contextmanager
def nothing_left(places: Iterable[str], kept: Path | None) -> Iterator[None]:
    """Files, in places that can be written to, are afterwards as they were before; what was started
    inside is ended.

    Where anything about a file or a folder was changed, all of them are remade, in one order:
    which attribute it was then says nothing. Pipes and sockets that have names lose them at once.

    Args:
        places: Folders, each of a file system of its own.
        kept: The folder that is handed on.
    """
    places = tuple(places)
    _remove_odd_ones(places, kept)
    before = [_Place.read(Path(place), kept) for place in places]
    running = children()
    try:
        yield
    finally:
        end_all_but(running)
        for place in before:
            place.restore(kept)


def end_all_but(running: Set[int]) -> None:
    """End the processes that this one has started, and those that these leave to it."""
    while started := children() - running:
        for process in started:
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)


@contextmanager
def opened_again(place: str) -> Iterator[None]:
    """What is open is afterwards opened again, a file without a name made again: forks share what
    is noted of it, where in it one is, how it was opened, and any attribute.

    Args:
        place: A folder that can be written to.
    """
    opened = {descriptor: _Open.read(descriptor) for descriptor in _descriptors()}
    try:
        yield
    finally:
        for descriptor, about in opened.items():
            if about is not None:
                about.restore(descriptor, place)


@dataclass(frozen=True)
class _Open:
    """What is known of an open file or folder, or of something else, which keeps its modes."""

    number: tuple[int, int]
    modes: int
    name: str | None
    """Empty where it has none any more; None of something else."""
    place: int = 0
    content: bytes | int | None = None

    @classmethod
    def read(cls, descriptor: int) -> _Open | None:
        with suppress(OSError, ImportError):
            import fcntl  # which Windows lacks

            about = os.fstat(descriptor)
            number, modes = (about.st_dev, about.st_ino), fcntl.fcntl(descriptor, fcntl.F_GETFL)
            if not (stat.S_ISREG(about.st_mode) or stat.S_ISDIR(about.st_mode)):
                return cls(number, modes, None)
            name = os.readlink(f"/proc/self/fd/{descriptor}") if about.st_nlink else ""
            content = None if about.st_nlink else _content_of(descriptor)
            return cls(number, modes, name, _place_in(descriptor), content)
        return None

    def restore(self, descriptor: int, place: str) -> None:
        import fcntl

        with suppress(OSError):
            about = os.fstat(descriptor)
            if (about.st_dev, about.st_ino) != self.number:
                return
            if self.name is None:
                fcntl.fcntl(descriptor, fcntl.F_SETFL, self.modes)
                return
            again = self._again(place)
            os.dup2(again, descriptor, inheritable=os.get_inheritable(descriptor))
            os.close(again)
            os.lseek(descriptor, self.place, os.SEEK_SET)

    def _again(self, place: str) -> int:
        with suppress(OSError):
            if self.name:
                return os.open(self.name, self.modes)
            if isinstance(self.content, bytes):
                made = os.open(place, os.O_TMPFILE | os.O_RDWR)
                os.write(made, self.content)
                return made
        return os.open(os.devnull, os.O_RDWR)


def _place_in(descriptor: int) -> int:
    with suppress(OSError):
        return os.lseek(descriptor, 0, os.SEEK_CUR)
    return 0


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
    """What a file, a link or a folder holds, and all that is written about it."""

    content: bytes | int | str | None
    """A sum where it is long, None of a folder."""
    mode: int
    times: tuple[int, int]
    """Of the last reading and of the last change."""
    notes: dict[str, bytes]
    about: tuple[int, ...]
    """What nobody can set, as when anything of all this was changed last."""

    @classmethod
    def read(cls, path: Path) -> _File | None:
        with suppress(OSError):
            about = path.lstat()
            if stat.S_ISLNK(about.st_mode):
                content: bytes | int | str | None = os.readlink(path)
            elif stat.S_ISREG(about.st_mode):
                raw = path.read_bytes()
                content = raw if len(raw) <= SMALL else zlib.crc32(raw)
            elif stat.S_ISDIR(about.st_mode):
                content = None
            else:
                return None
            blocks = getattr(about, "st_blocks", 0)
            return cls(
                content,
                about.st_mode,
                (about.st_atime_ns, about.st_mtime_ns),
                _notes_of(path),
                (about.st_ino, about.st_ctime_ns, about.st_nlink, blocks),
            )
        return None

    @property
    def is_long(self) -> bool:
        return isinstance(self.content, int)

    def is_untouched(self, path: Path) -> bool:
        """Whether nothing has changed but when it was read."""
        now = _File.read(path)
        return now is not None and (
            (now.content, now.mode, now.times[1], now.notes, now.about)
            == (self.content, self.mode, self.times[1], self.notes, self.about)
        )

    def remade(self, path: Path, long: BinaryIO | None) -> None:
        """Make it where nothing is; what was long is copied from the file that it was."""
        if isinstance(self.content, str):
            path.symlink_to(self.content)
        elif self.content is None:
            path.mkdir()
        elif isinstance(self.content, bytes):
            path.write_bytes(self.content)
        elif long is not None:
            with path.open("wb") as file:
                while some := long.read(SMALL):
                    file.write(some)

    def annotate(self, path: Path) -> None:
        """Write about it what was written."""
        if not isinstance(self.content, str):
            now = _notes_of(path)
            for note in now.keys() - self.notes.keys():
                os.removexattr(path, note)
            for note in sorted(self.notes):
                if now.get(note) != self.notes[note]:
                    os.setxattr(path, note, self.notes[note])
            os.chmod(path, stat.S_IMODE(self.mode))
        if os.utime in os.supports_follow_symlinks:
            os.utime(path, ns=self.times, follow_symlinks=False)
        elif not isinstance(self.content, str):
            os.utime(path, ns=self.times)


def _notes_of(path: Path) -> dict[str, bytes]:
    if not sys.platform.startswith("linux"):
        return {}
    names = os.listxattr(path, follow_symlinks=False)
    return {name: os.getxattr(path, name, follow_symlinks=False) for name in names}


@dataclass(frozen=True)
class _Place:
    """All files of a place, and those folders that cannot be remade: its root, and those in which
    the folder lies that is handed on."""

    held: dict[Path, _File]
    fixed: dict[Path, _File]

    @classmethod
    def read(cls, root: Path, kept: Path | None) -> _Place:
        fixed = {root, *(kept.parents if kept else ())}
        found = {path: _File.read(path) for path in _all(root, kept)}
        there = {path: file for path, file in found.items() if file is not None}
        return cls(
            {path: file for path, file in there.items() if path not in fixed},
            {path: file for path, file in there.items() if path in fixed},
        )

    def restore(self, kept: Path | None) -> None:
        root, here = next(iter(self.fixed)), _here()
        for path in _all(root, kept):
            if path not in self.held and path not in self.fixed:
                _empty(path)
                remove(path)
        touched = [path for path, file in self.held.items() if not file.is_untouched(path)]
        for path in touched:
            _empty(path)
        if touched:
            self._remake(any(self.held[path].is_long for path in touched))
        for path, file in reversed([*self.fixed.items(), *self.held.items()]):
            with suppress(OSError):  # a long one that is gone
                file.annotate(path)
        if here:  # it may have been remade
            with suppress(OSError):
                os.chdir(here)

    def _remake(self, without_long: bool) -> None:
        with ExitStack() as open_ones:
            long = {}
            for path, file in self.held.items():
                if file.is_long and not without_long:
                    long[path] = open_ones.enter_context(path.open("rb"))
            for path in reversed(self.held):
                remove(path)
            for path, file in self.held.items():
                if file.is_long and without_long:
                    continue
                with suppress(OSError):  # as where there is no room
                    file.remade(path, long.get(path))
                if path in long:
                    long[path].close()


def _here() -> str:
    with suppress(OSError):
        return os.getcwd()
    return ""


def _empty(path: Path) -> None:
    """A file that was changed: a descriptor or a map may still show it."""
    with suppress(OSError):
        if stat.S_ISREG(path.lstat().st_mode):
            os.truncate(path, 0)


def remove(top: Path) -> None:
    """A file, or a folder with what is in it, however deep: folders inside are moved up first."""
    waiting, number = [top], 0
    while waiting:
        path = waiting.pop()
        with suppress(OSError):
            if not stat.S_ISDIR(path.lstat().st_mode):
                path.unlink()
                continue
            path.chmod(stat.S_IRWXU)
            for inside in (path / name for name in os.listdir(path)):
                if not stat.S_ISDIR(inside.lstat().st_mode):
                    inside.unlink()
                    continue
                number += 1
                inside.chmod(stat.S_IRWXU)
                waiting.append(inside.rename(top.with_name(f".removed-{number}")))
            path.rmdir()


FAR = 2000
"""Bytes of a path that are enough for anybody; folders can lie so deep that no path leads there."""


def _remove_odd_ones(places: Iterable[str], kept: Path | None) -> None:
    """Pipes and sockets with names: who goes on outside reads there what is written inside; and
    what lies too deep to be looked at."""
    for place in places:
        for path in _all(Path(place), kept):
            with suppress(OSError):
                mode = path.lstat().st_mode
                plain = stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)
                if not plain or _is_far(path):
                    remove(path)


def _is_far(path: Path) -> bool:
    return len(os.fsencode(path)) > FAR


def _all(root: Path, kept: Path | None) -> list[Path]:
    """A place's root, folders and files, each folder before what is in it."""
    device, found, waiting = os.lstat(root).st_dev, [], [root]
    while waiting:
        found.append(path := waiting.pop())
        with suppress(OSError):
            if path == kept or _is_far(path) or not stat.S_ISDIR(path.lstat().st_mode):
                continue
            inside = sorted(path / name for name in os.listdir(path))
            waiting += [one for one in inside if one != kept and one.lstat().st_dev == device]
    return found


def children() -> Set[int]:
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
        if rights[3] == "s" and (rights[1] == "w" or line.endswith("(deleted)")):
            start, end = (int(edge, 16) for edge in area.split("-"))
            _made_private(start, end - start, readable=rights[0] == "r")
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


def _made_private(start: int, size: int, *, readable: bool) -> None:
    content = ctypes.string_at(start, size) if readable and size <= LARGE_MAP else b""
    mmap = ctypes.CDLL(None, use_errno=True).mmap
    mmap.restype = ctypes.c_void_p
    where = ctypes.c_void_p(start), ctypes.c_size_t(size)
    flags = PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS_FIXED, -1, ctypes.c_long(0)
    if mmap(*where, *flags) != start:
        raise OSError(ctypes.get_errno(), f"mmap: {os.strerror(ctypes.get_errno())}")
    ctypes.memmove(start, content, len(content))
