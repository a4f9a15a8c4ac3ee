"""What the Linux kernel offers for locking a process away, called through libc: no exec needed.

A process that is a fork of a warm parent would lose its warmth by exec, so nothing here starts a
program. Every call raises OSError, with the call's name, where the kernel refuses.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from collections.abc import Iterable
from pathlib import Path

NEWNS, NEWUTS, NEWIPC = 0x00020000, 0x04000000, 0x08000000
NEWUSER, NEWPID, NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
PROT_READ, MAP_SHARED, MAP_FIXED = 1, 1, 16
SYS_MOUNT_SETATTR = 442  # the same on every machine
SYS_NEW_RULES, SYS_ADD_RULE, SYS_KEEP_RULES = 444, 445, 446  # Landlock's, on every machine
WRITE_FILES, SET_DEVICES, NO_SIGNALS_NOR_SOCKETS = 1 << 1, 1 << 15, 3
MADV_COLLAPSE, LARGE_PAGE = 25, 2**21
AT_FDCWD, AT_RECURSIVE = -100, 0x8000
SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
SYS_CAPSET = {"x86_64": 126, "aarch64": 91}
MACHINE = os.uname().machine if hasattr(os, "uname") else ""


def call(name: str, *args: object) -> int:
    """Call a function of libc; texts may be str, numbers are long."""
    plain = [a.encode() if isinstance(a, str) else a for a in args]
    plain = [ctypes.c_long(a) if isinstance(a, int) else a for a in plain]
    result = getattr(ctypes.CDLL(None, use_errno=True), name)(*plain)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def unshare(flags: int) -> None:
    """Leave the namespaces named; others stay shared."""
    call("unshare", flags)


def prctl(option: int, value: object = 0, third: object = 0) -> None:
    """Change something about this process."""
    call("prctl", option, value, third, 0, 0)


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Mount a file system, or bind a folder or file to another place."""
    call("mount", source, target, kind or None, flags, options or None)


def make_read_only(target: str) -> None:
    """A mount and all below it: no writing, no devices, no set-user-id."""
    wanted = (ctypes.c_uint64 * 4)(MS_RDONLY | MS_NOSUID | MS_NODEV, 0, 0, 0)
    call("syscall", SYS_MOUNT_SETATTR, AT_FDCWD, target, AT_RECURSIVE, wanted, 32)


def enter_root(folder: str) -> None:
    """Make `folder` the root of everything; what was there before is gone for good."""
    os.chdir(folder)
    call("syscall", SYS_PIVOT_ROOT[MACHINE], ".", ".")
    call("umount2", ".", MNT_DETACH)
    os.chdir("/")


def landlock() -> int:
    """Landlock's version in this kernel; 0 where there is none."""
    with contextlib.suppress(OSError):
        return call("syscall", SYS_NEW_RULES, None, 0, 1)
    return 0


def keep_to_oneself(writable: Iterable[str]) -> None:
    """From now on this process and its children cannot look into others, signal them, reach their
    sockets or change a terminal of theirs, nor open for writing what lies elsewhere.

    Args:
        writable: Folders; of one that is yet to be made, where it will be.
    """
    if not (version := landlock()):
        return
    files = WRITE_FILES | (SET_DEVICES if version >= 5 else 0)
    others = NO_SIGNALS_NOR_SOCKETS if version >= 6 else 0
    rules = call("syscall", SYS_NEW_RULES, (ctypes.c_uint64 * 3)(files, 0, others), 24, 0)
    for folder in map(Path, writable):
        there = next(one for one in (folder, *folder.parents) if one.exists())
        place = os.open(there, os.O_PATH)
        one = ctypes.create_string_buffer(struct.pack("=Qi", WRITE_FILES, place))
        call("syscall", SYS_ADD_RULE, rules, 1, one, 0)
        os.close(place)
    call("syscall", SYS_KEEP_RULES, rules, 0)
    os.close(rules)


def map_to_one_user(outside_uid: int, outside_gid: int, inside: int) -> None:
    """After unshare(NEWUSER): the only user there is, without rights over anything else."""
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{inside} {outside_uid} 1")
    Path("/proc/self/gid_map").write_text(f"{inside} {outside_gid} 1")


def drop_capabilities() -> None:
    """None left: not over this namespace either."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    call("syscall", SYS_CAPSET[MACHINE], header, (ctypes.c_uint32 * 6)())


def map_over(address: int, size: int, descriptor: int) -> None:
    """Have a file's bytes at an address, for reading only and for good, instead of what was there.

    No call makes them writable, as the descriptor is open for reading only.
    """
    mmap = ctypes.CDLL(None, use_errno=True).mmap
    mmap.restype = ctypes.c_void_p
    where = (ctypes.c_void_p(address), ctypes.c_size_t(size))
    mapped = mmap(*where, PROT_READ, MAP_SHARED | MAP_FIXED, descriptor, ctypes.c_long(0))
    if mapped != address:
        raise OSError(ctypes.get_errno(), f"mmap: {os.strerror(ctypes.get_errno())}")


def gather_into_large_pages() -> None:
    """Move this process's own memory into pages of 2 MiB, where the kernel does so.

    A fork copies an entry for each page: 200 instead of 100,000. What the child changes is still
    copied in small pages.
    """
    for line in Path("/proc/self/maps").read_text().splitlines():
        area, rights, _offset, _device, file, *name = line.split()
        start, end = (int(edge, 16) for edge in area.split("-"))
        start, end = -(-start // LARGE_PAGE) * LARGE_PAGE, end // LARGE_PAGE * LARGE_PAGE
        if rights == "rw-p" and file == "0" and name in ([], ["[heap]"]) and start < end:
            with contextlib.suppress(OSError):  # a reserve that nobody has touched, or no support
                call("madvise", start, end - start, MADV_COLLAPSE)
