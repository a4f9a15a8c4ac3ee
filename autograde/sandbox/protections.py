"""Which protections this machine provides, tested with a real student's process, not assumed.

One process is started as for a submission, and a probe in it tries what must not succeed: each line
of `autograde protections` is a result.
"""

from __future__ import annotations

import json
import os
import socket
import tempfile
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import NamedTuple

from autograde.sandbox.isolation import Isolation, IsolationError, hands_out_users
from autograde.sandbox.limits import Limits
from autograde.sandbox.session import StudentSession


class Protection(NamedTuple):
    """One line of the list."""

    name: str
    given: bool
    why: str
    """What was tried and with what result; for a missing protection, how to get it."""


PROBE = """
import ctypes, json, os, resource, socket
def tried(action):
    try: action()
    except BaseException as fault: return type(fault).__name__
    return ""
libc = ctypes.CDLL(None, use_errno=True)
def call(*args):
    if libc.syscall(*args) < 0: raise OSError(ctypes.get_errno(), "refused")
status = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
found = {
    "read": tried(lambda: open(%(canary)r).read()),
    "write": tried(lambda: open(%(package)r, "a")),
    "connect": tried(lambda: socket.create_connection(("127.0.0.1", %(port)d), 2)),
    "others": sum(name.isdigit() for name in os.listdir("/proc")) - 1,
    "number": os.getpid(),
    "capabilities": int(status["CapEff"], 16),
    "seccomp": int(status["Seccomp"]),
    "unshare": tried(lambda: call(%(unshare)d, 0x10000000)),
    "processes": resource.getrlimit(resource.RLIMIT_NPROC)[1],
    "data": resource.getrlimit(resource.RLIMIT_DATA)[1],
    "bank": os.listdir(%(bank)r),
}
print(json.dumps(found))
"""
BY_KERNEL = "counted by a control group of the kernel"
BY_KEEPER = (
    "counted by the keeper, four times a second (for exact counting by a control group, start the "
    "command with systemd-run --user --scope -p Delegate=yes)"
)
NAMESPACES = (
    "Needs Linux with user namespaces: as root, sysctl user.max_user_namespaces=15000 and, where "
    "they exist, kernel.unprivileged_userns_clone=1 and "
    "kernel.apparmor_restrict_unprivileged_userns=0; "
    "in a container, docker run --security-opt seccomp=unconfined --cap-add SYS_ADMIN."
)


@cache
def tried() -> list[Protection]:
    """Start a student's process and test everything it must not be able to do."""
    try:
        found = _probe()
    except (IsolationError, ValueError) as fault:
        return [Protection(name, False, f"{fault} {NAMESPACES}") for name in NAMES]
    unshare = "a new namespace was refused" if found["unshare"] else "a namespace could be made"
    tests = {
        "own files": (
            found["read"] and found["write"],
            f"a file outside: {found['read'] or 'read'}; ours: {found['write'] or 'changed'}",
        ),
        "no answers": (not found["bank"], f"{len(found['bank'])} files of the exercise bank seen"),
        "no network": (
            found["connect"],
            f"a listener on this machine: {found['connect'] or 'reached'}",
        ),
        "own processes": (
            found["others"] == 0 and found["number"] == 1,
            f"{found['others']} processes of others seen",
        ),
        "no rights": (
            found["user"] != 0 if hands_out_users() else found["capabilities"] == 0,
            f"user {found['user']} outside, capabilities {found['capabilities']:#x}",
        ),
        "few system calls": (found["seccomp"] == 2 and found["unshare"], unshare),
        "bounded processes": (found["processes"] <= 1000, f"at most {found['processes']}"),
        "bounded memory": (
            0 < found["data"] < 2**50,
            f"at most {found['data'] / 2**30:.3g} GiB per process and in total, {found['counted']}",
        ),
    }
    return [
        Protection(name, bool(given), why if given else f"{why}. {NAMESPACES}")
        for name, (given, why) in tests.items()
    ]


NAMES = (
    "own files", "no answers", "no network", "own processes", "no rights", "few system calls",
    "bounded processes", "bounded memory",
)  # fmt: skip


def missing() -> list[Protection]:
    """Protections that this machine does not provide."""
    return [protection for protection in tried() if not protection.given]


def tell(_job: object) -> dict[str, list[Protection]]:
    """The protections, as a job for a crew."""
    return {"protections": tried()}


def _probe() -> dict[str, object]:
    from autograde import bank

    with (
        tempfile.NamedTemporaryFile(dir=_place_outside(), prefix=".autograde-") as canary,
        closing(socket.create_server(("127.0.0.1", 0))) as listener,
        StudentSession(limits=Limits(), isolation=Isolation()) as session,
    ):
        folder = next(iter(bank.__path__))
        outputs = session.run(
            PROBE
            % {
                "canary": canary.name,
                "package": str(Path(folder).parent / "plain.py"),
                "port": listener.getsockname()[1],
                "unshare": 272 if os.uname().machine == "x86_64" else 97,
                "bank": folder,
            }
        )
        if not outputs or "text" not in outputs[0]:
            raise ValueError(f"The probe did not answer: {outputs}")
        return {**json.loads(outputs[0]["text"]), **_seen_from_outside(session)}


def _place_outside() -> str:
    """Where a file lies that must not be seen: the home folder, or /tmp of a user without one."""
    home = os.path.expanduser("~")
    return home if os.access(home, os.W_OK) else tempfile.gettempdir()


def _seen_from_outside(session: StudentSession) -> dict[str, object]:
    """Which user the student's process is, and what counts its memory."""
    keeper = session.process.pid
    child = Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()[0]
    grouped = session.folder.name in Path(f"/proc/{child}/cgroup").read_text()
    return {
        "user": os.stat(f"/proc/{child}").st_uid,
        "counted": BY_KERNEL if grouped else BY_KEEPER,
    }
