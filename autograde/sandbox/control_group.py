"""A control group for each student's process: the kernel limits its memory, processes and cores.

Where this user may make such groups, every byte and process is counted when it is asked for, of all
that the process has started and of its files in memory. As root that is nearly everywhere; else in
a part of the tree that systemd has handed down (`systemd-run --user --scope -p Delegate=yes`).
Where it is not available, the keeper counts (`isolation`).

Groups carry the name of the private folder, and so of the grader whose they are (`owner`).
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from autograde.sandbox.owner import owner_of, this_process

CONTROLLERS = ("memory", "pids")
WHERE_GIVEN = ("cpu",)
"""Used where it is handed down; else niceness and a single core do (`isolation`)."""
PERIOD_US = 100_000
LEAVE_S = 1.0
"""How long the kernel may take to see that a group's last process is gone."""


@dataclass(frozen=True)
class Files:
    """The control files of one version, by what is written into them."""

    memory: tuple[str, ...]
    """Bytes that the group may hold; the first must be there."""
    zero: tuple[str, ...]
    one: tuple[str, ...]
    processes: str
    cores: tuple[str, str]
    """File, and what is written for a quota of so many microseconds a period."""
    killed: str
    """Where a line `oom_kill N` says how many processes were ended for the memory."""


VERSIONS = {
    2: Files(
        memory=("memory.max",),
        zero=("memory.swap.max",),
        one=("memory.oom.group",),  # all of the group at once
        processes="pids.max",
        cores=("cpu.max", f"{{}} {PERIOD_US}"),
        killed="memory.events",
    ),
    1: Files(
        memory=("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
        zero=(),
        one=(),
        processes="pids.max",
        cores=("cpu.cfs_quota_us", "{}"),
        killed="memory.oom_control",
    ),
}


@dataclass(frozen=True)
class Places:
    """Folders of the kernel's tree in which this user may make groups."""

    version: int
    folders: Mapping[str, Path]
    """By controller; under version 2 they are the same."""


@dataclass(frozen=True)
class ControlGroup:
    """One student's group: made before its process, entered by it, removed after it."""

    files: Files
    folders: Mapping[str, Path]

    @classmethod
    def made(
        cls, name: str, *, memory_bytes: int, processes: int, cores: float = 1.0
    ) -> ControlGroup | None:
        """A new group with these bounds; None where none can be made."""
        found = places()
        try:
            return found and cls._in(found, name, memory_bytes, processes, cores)
        except OSError:
            return None

    @classmethod
    def _in(
        cls, found: Places, name: str, memory_bytes: int, processes: int, cores: float = 1.0
    ) -> ControlGroup:
        group = cls(VERSIONS[found.version], {c: f / name for c, f in found.folders.items()})
        try:
            for folder in group._each_folder():
                folder.mkdir()
            group._set(memory_bytes, processes)
            if group.bounds_cores:
                file, quota = group.files.cores
                (group.folders["cpu"] / file).write_text(quota.format(int(cores * PERIOD_US)))
        except OSError:
            group.remove()
            raise
        return group

    @property
    def bounds_cores(self) -> bool:
        """Whether the kernel bounds processor time here."""
        return "cpu" in self.folders

    def take(self, process: int = 0) -> None:
        """Move a process in, or the calling one; what it starts from now on belongs to the group.

        The kernel takes some 10 ms for that, most of which it waits.

        Raises:
            OSError: The kernel refused.
        """
        for folder in self._each_folder():
            (folder / "cgroup.procs").write_text(str(process))

    def ran_out_of_memory(self) -> bool:
        """Whether the kernel ended a process of the group for the memory it held."""
        with suppress(OSError, ValueError):
            for line in (self.folders["memory"] / self.files.killed).read_text().splitlines():
                name, _, count = line.partition(" ")
                if name == "oom_kill":
                    return int(count) > 0
        return False

    def remove(self) -> None:
        """Take the group out of the tree; its processes must have ended."""
        _clear(self._each_folder())

    def _each_folder(self) -> tuple[Path, ...]:
        return tuple(dict.fromkeys(self.folders.values()))

    def _set(self, memory_bytes: int, processes: int) -> None:
        memory = self.folders["memory"]
        (memory / self.files.memory[0]).write_text(str(memory_bytes))
        for names, value in (
            (self.files.memory[1:], memory_bytes),
            (self.files.zero, 0),
            (self.files.one, 1),
        ):
            for path in (memory / name for name in names):
                if path.exists():  # swap is not counted everywhere
                    path.write_text(str(value))
        (self.folders["pids"] / self.files.processes).write_text(str(processes))


@cache
def places() -> Places | None:
    """Where groups can be made, proven by a process that enters one; None where it can't.

    Forks, so it is asked in the warm parent, which has one thread.
    """
    found = _likely_places()
    return found if found is not None and _works(found) else None


def sweep() -> None:
    """Remove the groups of graders that are dead, once their processes have ended."""
    found = _likely_places()
    if found is None:
        return
    here = this_process().namespace
    for folder in dict.fromkeys(found.folders.values()):
        for group in folder.glob("autograde-*"):
            owner = owner_of(group)
            if owner and owner.namespace == here and not owner.is_alive:
                _end_all(group)
                _removed(group)


def clear(name: str) -> None:
    """End whatever is in the group of this name, and remove it: for a keeper that could not."""
    if found := _likely_places():
        _clear({folder / name for folder in found.folders.values()})


def _clear(groups: Iterable[Path]) -> None:
    until = time.monotonic() + LEAVE_S
    for group in groups:
        while not _removed(group) and time.monotonic() < until:
            _end_all(group)
            time.sleep(0.002)


def _end_all(group: Path) -> None:
    """Kill the processes of a group; a process that is starting another is in it again."""
    with suppress(OSError, ValueError):
        for number in (group / "cgroup.procs").read_text().split():
            if int(number) > 0:  # 0 is somebody whom we cannot see
                os.kill(int(number), signal.SIGKILL)


def _likely_places() -> Places | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        trees = mounted(Path("/proc/self/mountinfo").read_text())
        own = own_groups(Path("/proc/self/cgroup").read_text())
    except OSError:
        return None
    return _second_version(trees, own) or _first_version(trees, own)


def _works(found: Places) -> bool:
    try:
        group = ControlGroup._in(found, f"autograde-probe-{os.getpid()}", 2**30, 16)
    except OSError:
        return False
    child = os.fork()
    if not child:
        try:
            group.take()
        except OSError:
            os._exit(1)
        os._exit(0)
    entered = os.waitpid(child, 0)[1] == 0
    group.remove()
    return entered


def mounted(mountinfo: str) -> dict[str, tuple[str, Path]]:
    """Trees of control groups by controller, `""` for version 2: (their root, where it is seen)."""
    trees = {}
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        root, place = before.split()[3:5]
        kind, _, options = after.split()[:3]
        if kind == "cgroup2":
            trees[""] = (root, Path(place))
        elif kind == "cgroup":
            ours = {*CONTROLLERS, *WHERE_GIVEN}
            trees |= {c: (root, Path(place)) for c in options.split(",") if c in ours}
    return trees


def own_groups(text: str) -> dict[str, str]:
    """The group of this process by controller, `""` for version 2, from /proc/self/cgroup."""
    groups = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        groups |= dict.fromkeys(controllers.split(","), path)
    return groups


def _second_version(trees: dict[str, tuple[str, Path]], own: dict[str, str]) -> Places | None:
    """The nearest group, from our own upwards, that hands both controllers down to its children."""
    if "" not in trees or "" not in own:
        return None
    here = _seen(trees[""], own[""])
    for folder in (here, *here.parents):
        with suppress(OSError):
            handed_down = (folder / "cgroup.subtree_control").read_text().split()
            if {*CONTROLLERS} <= {*handed_down} and os.access(folder, os.W_OK):
                given = [c for c in WHERE_GIVEN if c in handed_down]
                return Places(2, dict.fromkeys([*CONTROLLERS, *given], folder))
        if folder == trees[""][1]:
            return None
    return None


def _first_version(trees: dict[str, tuple[str, Path]], own: dict[str, str]) -> Places | None:
    if not all(c in trees and c in own for c in CONTROLLERS):
        return None
    given = [c for c in WHERE_GIVEN if c in trees and c in own]
    return Places(1, {c: _seen(trees[c], own[c]) for c in [*CONTROLLERS, *given]})


def _seen(tree: tuple[str, Path], group: str) -> Path:
    """Where a group's folder lies; a container may see a part of the tree only."""
    root, place = tree
    inside = group.removeprefix(root) if root != "/" else group
    return place / inside.lstrip("/")


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
