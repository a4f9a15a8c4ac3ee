"""A student's process, locked away: what it cannot see, reach, outlive or use up.

    warm parent
      └ keeper       outside: waits, passes an interrupt on, watches the memory, ends everything
          └ student  inside: first of its own process namespace; ends with all it has started

The fork of the warm parent locks itself away, without exec, before any student code runs: its own
user, process, network, ipc and mount namespaces, a file system of its own (`view`), an unprivileged
user without capabilities, a filter on system calls (`seccomp`), limits on everything countable.
As root the real user changes too; as an ordinary user all of this works without rights.

Straight after the fork the student has a session and a process group of its own: signals to its
group reach nobody else. It ends with its keeper (a death signal, which `seccomp` lets nobody
change), and the grader ends both where it finds the keeper stopped.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from autograde.sandbox import kernel, seccomp, view
from autograde.sandbox.control_group import ControlGroup
from autograde.sandbox.owner import Owner, is_stopped, owner_of

RLIMIT_SIGPENDING, RLIMIT_MSGQUEUE = 11, 12
NICE = 10
MAX_PID = 2**22
"""No process of Linux has a higher number."""
INSIDE = 1000
"""The user's number inside."""
FIRST_UID = 2**30
"""As root, each student's process has a user of its own, above those that systems hand out."""
TOO_MUCH_MEMORY = 250
"""Exit code of a keeper that ended its student for the memory used."""
CHECK_EVERY_S = 0.25
COUNT_AGAIN_S = 1.0
GROWN = 64 * 2**20
"""Bytes that a rough count has grown by where it is worth to count with care again."""


class IsolationError(RuntimeError):
    """A protection could not be set up: none of the student's code has run."""


@dataclass(frozen=True, kw_only=True)
class Isolation:
    """Whether a student's process is locked away, and what else it must not see."""

    trusted: bool = False
    """Run with this user's own rights: only for code that one would run oneself."""
    hidden: tuple[Path, ...] = ()
    """Folders to cover even where they lie inside a readable one, as the class directory."""
    devices: tuple[str, ...] = ()
    """Files of /dev that are let in besides the few that every program needs, e.g. `nvidia0`."""
    control_groups: bool = True
    """Let the kernel bound memory and processes, where it grants that; else the keeper counts."""


def lock_away(
    folder: Path, isolation: Isolation, limits: object, kept: int, covered: Sequence[Path]
) -> None:
    """Return in the student's process, locked away; the process that called keeps it.

    Args:
        folder: The private folder, whose files the process may see.
        isolation: What to hide.
        limits: `processes`, `disk_bytes` and `memory_bytes` are read here.
        kept: The one descriptor that stays open in the student's process alone.
        covered: Files and folders of our own packages to replace by empty ones.

    Raises:
        OSError: The kernel refused; the message names the call.
    """
    if not sys.platform.startswith("linux") or kernel.MACHINE not in seccomp.AUDIT_ARCH:
        raise OSError(f"isolation needs Linux on x86_64 or aarch64; this is {sys.platform}")
    signal.pthread_sigmask(signal.SIG_BLOCK, KEEPERS_SIGNALS)
    keeper = os.getpid()
    is_root, outside = hands_out_users(), FIRST_UID + keeper
    group = _group_for(folder, limits) if isolation.control_groups else None
    if not is_root:
        uid, gid = os.geteuid(), os.getegid()
        kernel.unshare(kernel.NEWUSER)
        kernel.map_to_one_user(uid, gid, INSIDE)
    here, taken = _leave_the_keeper(folder, limits, kept, group)
    if group is None or not group.bounds_cores:
        _stay_on_a_core(keeper)
    kernel.unshare(kernel.NEWNS | kernel.NEWIPC | kernel.NEWNET | kernel.NEWUTS)
    view.enter(
        folder,
        disk_bytes=limits.disk_bytes,
        owner=outside if is_root else INSIDE,
        hidden=isolation.hidden,
        covered=covered,
        devices=isolation.devices,
        before_files=partial(_wait_until_taken, taken),
    )
    if is_root:
        _become(outside)
    kernel.drop_capabilities()
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)  # a change of user forgets it
    if select.select([here], [], [], 0)[0]:
        os._exit(0)  # the keeper was gone before that
    os.close(here)
    _bound_what_is_counted(limits.processes)
    seccomp.install()


def _group_for(folder: Path, limits: object) -> ControlGroup | None:
    return ControlGroup.made(
        folder.name,
        memory_bytes=limits.memory_bytes,
        processes=limits.processes,
        cores=limits.cores,
    )


def _leave_the_keeper(
    folder: Path, limits: object, kept: int, group: ControlGroup | None
) -> tuple[int, int]:
    """Go on as a child in a session of its own; who called keeps it, and never returns.

    Returns:
        A descriptor that can be read once the keeper is gone, and one from which the keeper's word
        can be read that the child is in its control group.
    """
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGTERM)  # unshare(NEWUSER) would forget it
    kernel.unshare(kernel.NEWPID)
    here, keepers_end = os.pipe()
    taken, says = os.pipe()
    if student := os.fork():
        for descriptor in (kept, here, taken):
            os.close(descriptor)
        _take(student, group, says)
        _keep(student, group or _Meter(student, limits.memory_bytes), owner_of(folder))
    os.setsid()  # before anything else: a signal to its group reaches no keeper
    os.close(keepers_end)
    os.close(says)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    return here, taken


TAKEN = b"taken"


def _take(student: int, group: ControlGroup | None, says: int) -> None:
    """In the keeper: move the student into its control group, and say so, or what went wrong. The
    student meanwhile makes its view of the files."""
    try:
        if group is not None:
            group.take(student)
        os.write(says, TAKEN)
    except OSError as refused:
        os.write(says, str(refused).encode())
    os.close(says)


def _wait_until_taken(taken: int) -> None:
    """In the student's process: until it is in its control group.

    Raises:
        OSError: It cannot be.
    """
    with os.fdopen(taken, "rb") as keeper:
        if (said := keeper.read()) != TAKEN:
            raise OSError(f"no control group takes it in ({said.decode() or 'its keeper is gone'})")


def _bound_what_is_counted(processes: int) -> None:
    for kind, most in (
        (resource.RLIMIT_NPROC, processes),
        (resource.RLIMIT_NOFILE, 512),
        (RLIMIT_SIGPENDING, 1024),  # counted by user, as the next two are: the keeper's, too
        (resource.RLIMIT_MEMLOCK, 2**16),
        (RLIMIT_MSGQUEUE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, KEEPERS_SIGNALS)


def _stay_on_a_core(keeper: int) -> None:
    """Where no control group bounds processor time: however many processes, one core, after all
    others. `seccomp` lets nobody change that."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[keeper % len(cores)]})
    os.nice(NICE)


def hands_out_users() -> bool:
    """Whether each student's process can get a user of its own: root may, with numbers to give.

    In a rootless container root is an ordinary user outside, and has few numbers or just one.
    """
    return os.geteuid() == 0 and all(
        holds_users(Path(f"/proc/self/{kind}_map").read_text()) for kind in ("uid", "gid")
    )


def holds_users(id_map: str) -> bool:
    """Whether /proc/PID/uid_map, lines of `inside outside count`, has the numbers we hand out."""
    lines = [[int(number) for number in line.split()] for line in id_map.splitlines()]
    return any(
        first <= FIRST_UID and first + count >= FIRST_UID + MAX_PID for first, _, count in lines
    )


def _become(uid: int) -> None:
    """From root to a user that owns nothing, in a user namespace of its own where granted."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1)  # else /proc/self would belong to root
    try:
        kernel.unshare(kernel.NEWUSER)
    except OSError:
        return  # the number of users may be limited; the change of user stands without
    kernel.map_to_one_user(uid, uid, INSIDE)


KEEPERS_SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT) if os.name == "posix" else ()


def _keep(student: int, memory: ControlGroup | _Meter, owner: Owner | None) -> None:
    """Wait for the student's process and leave as it left; never returns.

    When the grader that asked for it is gone, killed perhaps, the student's process is ended.
    """
    look_at = time.monotonic()
    while True:
        seen = signal.sigtimedwait(KEEPERS_SIGNALS, CHECK_EVERY_S)
        if seen is not None and seen.si_signo == signal.SIGINT:
            os.kill(student, signal.SIGINT)
        if seen is not None and seen.si_signo == signal.SIGTERM:
            _leave_with(student, -signal.SIGTERM, memory)
        ended, status = os.waitpid(student, os.WNOHANG)
        if ended:
            out = memory.ran_out_of_memory()
            memory.remove()
            _leave(TOO_MUCH_MEMORY if out else os.waitstatus_to_exitcode(status))
        if time.monotonic() < look_at:
            continue
        if owner is not None and not owner.is_alive:
            _leave_with(student, -signal.SIGTERM, memory)
        if memory.ran_out_of_memory():
            _leave_with(student, TOO_MUCH_MEMORY, memory)
        look_at = time.monotonic() + CHECK_EVERY_S


def _leave_with(student: int, code: int, memory: ControlGroup | _Meter) -> None:
    os.kill(student, signal.SIGKILL)  # as the first of its namespace it takes all others along
    os.waitpid(student, 0)
    memory.remove()
    _leave(code)


def _leave(code: int) -> None:
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        signal.pthread_sigmask(signal.SIG_UNBLOCK, KEEPERS_SIGNALS)
        os.kill(os.getpid(), -code)
    os._exit(code)


class _Meter:
    """What a namespace's processes hold together, where no control group says; shared counts once.

    Careful counting takes milliseconds a process, in which fifty of them fill gigabytes: so they
    stand still meanwhile. It is done only where a rough count, which is never too low, could be too
    much, and not over and over for the workers of a data loader that stay as they are.
    """

    def __init__(self, student: int, limit: int) -> None:
        self.namespace, self.limit = os.readlink(f"/proc/{student}/ns/pid"), limit
        self.last_rough, self.again_at = 0, 0.0

    def ran_out_of_memory(self) -> bool:
        """Whether they hold more than the limit; of processes that have ended nothing is held."""
        rough = sum(_resident(path) for path in self._members())
        if rough <= self.limit:
            return False
        if rough - self.last_rough < GROWN and time.monotonic() < self.again_at:
            return False
        with self._standing_still() as members:
            held = sum(_proportional(path) for path in members)
        self.last_rough, self.again_at = rough, time.monotonic() + COUNT_AGAIN_S
        return held > self.limit

    def remove(self) -> None:
        """There is nothing to remove."""

    def _members(self) -> list[Path]:
        return [p for p in Path("/proc").glob("[0-9]*") if _namespace(p) == self.namespace]

    @contextmanager
    def _standing_still(self) -> Iterator[list[Path]]:
        """All members stopped, those too that others started while they were being stopped; what
        the grader has stopped (`still`) goes on when the grader says so."""
        members: list[Path] = []
        stopped: list[Path] = []
        try:
            while new := [path for path in self._members() if path not in members]:
                members += new
                for path in new:
                    if not is_stopped(int(path.name)):
                        stopped.append(path)
                        _send(path, signal.SIGSTOP)
            yield members
        finally:
            for path in stopped:
                _send(path, signal.SIGCONT)


def _send(process: Path, what: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(int(process.name), what)


def _namespace(process: Path) -> str:
    try:
        return os.readlink(process / "ns" / "pid")
    except OSError:
        return ""


def _resident(process: Path) -> int:
    try:
        return int((process / "statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return 0


def _proportional(process: Path) -> int:
    try:
        for line in (process / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return _resident(process)
