"""The file system as a student's process sees it: made from scratch, in memory, of what it needs.

    /usr /lib ... the interpreter, its packages, `course`, `autograde`    read-only
    /tmp  /dev/shm  its own folder                                        empty, writable, bounded
    /dev/pts  terminals of its own, for `!command` and `%pip`
    /proc   its own processes; of the machine's readings, still ones
    everything else: home folders, the class directory, other submissions, gradebook    not there

Of `autograde` the exercise bank is covered, of `course` the files that hold the references: what is
needed of them is in memory already. What the process writes lives in memory and ends with it.
"""

from __future__ import annotations

import os
import shutil
import site
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

from autograde.sandbox import kernel

BASE = "/tmp"
"""Where the new root is put together; the old /tmp is covered in this process only."""
MEMORY, TEMPORARY = Path("/dev/shm"), Path("/tmp")
"""Writable places, besides a folder of one's own."""
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt")
SETTINGS = ("/etc/alternatives", "/etc/fonts")
SETTING_FILES = ("ld.so.cache", "localtime", "mime.types")
DEVICES = ("null", "zero", "full", "random", "urandom")
MAX_TERMINALS = 16
"""All of a machine's terminals count together."""
READ_BY_PROGRAMS = ("loadavg", "meminfo", "stat", "uptime", "vmstat")
"""Files of /proc about the whole machine that ordinary programs read: as they once were."""
OF_THE_MACHINE = (
    "buddyinfo", "diskstats", "interrupts", "locks", "schedstat", "softirqs", "swaps", "zoneinfo",
    "pressure/cpu", "pressure/io", "pressure/memory", "sys/fs/dentry-state", "sys/fs/file-nr",
    "sys/fs/aio-nr", "sys/fs/inode-nr", "sys/fs/inode-state", "sys/kernel/pty/nr",
)  # fmt: skip
"""Others that move with what neighbours do, by which two submissions could talk: empty."""


def enter(
    folder: Path,
    *,
    disk_bytes: int,
    owner: int,
    hidden: Iterable[Path],
    covered: Iterable[Path],
    devices: Iterable[str] = (),
    before_files: Callable[[], object] = bool,
) -> None:
    """Leave the old root for the new view. Needs a mount namespace of this process's own.

    Args:
        folder: The private folder: its files are copied to the same place in the view.
        disk_bytes: Room in each of the writable places.
        owner: Whose these places are, as a number in this user namespace.
        hidden: Folders that must not be seen, wherever they lie.
        covered: Files and folders of our own packages that are replaced by empty ones.
        devices: Files of /dev that are let in, besides DEVICES.
        before_files: Called before files are copied, which fills memory.
    """
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    readable = {path: os.open(path, os.O_PATH) for path in _readable()}
    covers = [path for path in (*hidden, *covered) if _inside(path, readable) and path.exists()]
    kinds = {path: path.is_dir() for path in covers}
    let_in = {name: os.open(f"/dev/{name}", os.O_PATH) for name in (*DEVICES, *devices)}
    handed_in = os.open(folder, os.O_PATH)

    kernel.mount("tmpfs", BASE, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=755,size=4m")
    for path, mode in ((MEMORY, "1777"), (TEMPORARY, "1777"), (folder, "700")):
        _writable(path, mode, disk_bytes, owner)
    for path, descriptor in readable.items():
        _bind(path, descriptor)
    for name, descriptor in let_in.items():
        _bind(Path("/dev") / name, descriptor, read_only=False)
    for path, is_folder in kinds.items():
        _cover(path, is_folder)
    _links_and_settings()
    _other_spellings()
    before_files()
    shutil.copytree(f"/proc/self/fd/{handed_in}", _new(folder), dirs_exist_ok=True)
    if os.geteuid() == 0:
        for place, _folders, files in os.walk(_new(folder)):
            for name in (".", *files):
                os.chown(os.path.join(place, name), owner, owner, follow_symlinks=False)
    for descriptor in (*readable.values(), *let_in.values(), handed_in):
        os.close(descriptor)
    _processes()
    _terminals()
    kernel.enter_root(BASE)


def writable(folder: Path) -> tuple[str, ...]:
    """The writable places, each a file system of its own."""
    return tuple(map(str, (MEMORY, TEMPORARY, folder)))


def _wanted() -> list[Path]:
    """Folders that Python and its packages live in, as this process spells them."""
    import autograde
    import course

    wanted = [Path(path) for path in (*SYSTEM, *SETTINGS)]
    wanted += [Path(sys.base_prefix), Path(sys.prefix), Path(course.__file__).parent]
    wanted += [Path(autograde.__file__).parent, *map(Path, site.getsitepackages())]
    wanted += [Path(path) for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    if "COURSE_DATA" in os.environ:
        wanted.append(Path(os.environ["COURSE_DATA"]))
    return wanted


def _readable() -> list[Path]:
    """Where these folders really lie, outermost first, none inside another."""
    wanted = _wanted()
    folders = sorted({p.resolve() for p in wanted if p.is_dir() and not p.is_symlink()})
    return [p for p in folders if p != Path("/") and not any(q in p.parents for q in folders)]


def _inside(path: Path, folders: Iterable[Path]) -> bool:
    return any(folder in (path, *path.parents) for folder in folders)


def _new(path: Path) -> str:
    return BASE + str(path)


def _bind(path: Path, descriptor: int, *, read_only: bool = True) -> None:
    target = Path(_new(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.mkdir(exist_ok=True) if read_only else target.touch()
    kernel.mount(f"/proc/self/fd/{descriptor}", str(target), flags=kernel.MS_BIND | kernel.MS_REC)
    if read_only:
        kernel.make_read_only(str(target))


def _cover(path: Path, is_folder: bool) -> None:
    if is_folder:
        kernel.mount("tmpfs", _new(path), "tmpfs", kernel.MS_RDONLY, "mode=555,size=4k")
        return
    empty = Path(_new(Path("/.empty")))
    empty.touch()
    kernel.mount(str(empty), _new(path), flags=kernel.MS_BIND)
    kernel.make_read_only(_new(path))


def _other_spellings() -> None:
    """A virtual environment may be reached through a link, and Python imports by that name."""
    for path in _wanted():
        spelled, real = Path(os.path.abspath(path)), path.resolve()
        new = Path(_new(spelled))
        if spelled != real and real.is_dir() and not os.path.lexists(new):
            with suppress(OSError):  # it lies in a folder that is there already, read-only
                new.parent.mkdir(parents=True, exist_ok=True)
                new.symlink_to(real)


def _links_and_settings() -> None:
    for name in SYSTEM:
        if os.path.islink(name):
            os.symlink(os.readlink(name), _new(Path(name)))
    settings = Path(_new(Path("/etc")))
    settings.mkdir(exist_ok=True)
    for name in SETTING_FILES:
        if os.path.exists(f"/etc/{name}"):
            shutil.copyfile(f"/etc/{name}", settings / name)
    Path(_new(Path("/etc/passwd"))).write_text("student:x:1000:1000::/tmp:/bin/sh\n")
    Path(_new(Path("/etc/group"))).write_text("student:x:1000:\n")
    for name, target in (("fd", "self/fd"), ("stdin", "self/fd/0"), ("stdout", "self/fd/1")):
        os.symlink(f"/proc/{target}", f"{BASE}/dev/{name}")


def _writable(path: Path, mode: str, size: int, owner: int) -> None:
    target = _new(path)
    Path(target).mkdir(parents=True, exist_ok=True)
    options = f"mode={mode},size={size},nr_inodes=20000,uid={owner},gid={owner}"
    kernel.mount("tmpfs", target, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, options)


def _processes() -> None:
    """A /proc of this process namespace; none at all where the kernel grants no new one."""
    os.mkdir(f"{BASE}/proc")
    flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    try:
        kernel.mount("proc", f"{BASE}/proc", "proc", flags)
    except OSError:
        return
    for name in filter(_is_there, OF_THE_MACHINE):
        _cover(Path("/proc", name), is_folder=False)
    for name in filter(_is_there, readings()):
        still = Path(BASE, f".{name}")
        still.write_text(readings()[name])
        kernel.mount(str(still), f"{BASE}/proc/{name}", flags=kernel.MS_BIND)


def _terminals() -> None:
    """A /dev/pts of its own; where the kernel grants none, `!command` fails, and all else works."""
    os.mkdir(f"{BASE}/dev/pts")
    options = f"newinstance,ptmxmode=0666,mode=600,max={MAX_TERMINALS}"
    with suppress(OSError):
        flags = kernel.MS_NOSUID | kernel.MS_NOEXEC
        kernel.mount("devpts", f"{BASE}/dev/pts", "devpts", flags, options)
        os.symlink("pts/ptmx", f"{BASE}/dev/ptmx")


def _is_there(name: str) -> bool:
    return os.path.exists(f"{BASE}/proc/{name}")


@cache
def readings() -> dict[str, str]:
    """What READ_BY_PROGRAMS hold at the first call: in the warm parent, for all submissions."""
    files = {name: Path("/proc", name) for name in READ_BY_PROGRAMS}
    return {name: file.read_text() for name, file in files.items() if file.exists()}
