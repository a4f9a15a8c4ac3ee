"""A student's process can't kill, stop or starve what watches it, and doesn't outlive it.

Each attempt is tried as root and as an ordinary user, whose processes all belong to one user.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from autograde.sandbox import protections
from autograde.sandbox.limits import Limits
from autograde.sandbox.session import StudentSession
from tests.autograde.test_sandbox import as_ordinary_user
from tests.sampling import sample

LIMITS = Limits(cell_s=6.0, answer_s=3.0, notebook_s=40.0, memory_bytes=2**30, disk_bytes=2**26)
HEAD = "import ctypes, os, signal, socket, sys, fcntl, threading\nlibc = ctypes.CDLL(None)\n"
STOPS = {
    "group-killed": "os.kill(0, signal.SIGKILL)",
    "group-stopped": "os.kill(0, signal.SIGSTOP)",
    "group-ended": "signal.signal(signal.SIGTERM, signal.SIG_IGN); os.kill(0, signal.SIGTERM)",
    "group-interrupted": "signal.signal(signal.SIGINT, signal.SIG_IGN); os.kill(0, signal.SIGINT)",
    "own-group-by-number": "os.killpg(os.getpgrp(), signal.SIGSTOP)",
    "all-killed": "os.kill(-1, signal.SIGKILL)",
    "parent-killed": "os.kill(os.getppid() or 1, signal.SIGSTOP)",
    "by-number": "for n in range(2, 40_000):\n"
    "    try: os.kill(n, signal.SIGSTOP)\n    except OSError: pass",
    "group-by-number": "for n in range(2, 40_000):\n"
    "    try: os.killpg(n, signal.SIGSTOP)\n    except OSError: pass",
    "by-a-socket": "a, b = socket.socketpair()\n"
    "for who in (-os.getpgrp(), 0, os.getppid()):\n"
    "    try: fcntl.fcntl(a, fcntl.F_SETOWN, who); fcntl.fcntl(a, 10, 19)\n"
    "    except OSError: pass\n"
    "fcntl.fcntl(a, fcntl.F_SETFL, os.O_ASYNC); b.send(b'x')",
    "from-a-child": "if not os.fork():\n    os.kill(0, signal.SIGSTOP); os._exit(0)",
}
STARVES = {
    "processes": "import time\nfor _ in range(2000):\n"
    "    try:\n        if not os.fork(): time.sleep(60)\n    except OSError: break",
    "threads": "for _ in range(2000):\n"
    "    try: threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    "    except RuntimeError: break",
    "files": "kept = []\nfor _ in range(5000):\n    try: kept += os.pipe()\n"
    "    except OSError: break\nfor fd in kept[1::2]:\n"
    "    try: fcntl.fcntl(fd, 1031, 2**20)\n    except OSError: pass",
    "watches": "n = sum(libc.inotify_init() >= 0 for _ in range(400))",
    "signals": "signal.pthread_sigmask(signal.SIG_BLOCK, range(34, 64))\n"
    "for _ in range(200_000): libc.sigqueue(os.getpid(), 40, None)",
    "disk": "try:\n    with open('/tmp/x', 'wb') as f:\n"
    "        for _ in range(400): f.write(bytes(2**20))\nexcept OSError: pass",
    "memory": "x = []\nwhile True: x.append(bytearray(2**24))",
}
OUTLIVES = {
    "no-death-signal": "libc.prctl(1, 0, 0, 0, 0)",
    "a-death-signal-of-its-own": "libc.prctl(1, 18, 0, 0, 0)",
    "deaf": "for n in range(1, 64):\n    try: signal.signal(n, signal.SIG_IGN)\n"
    "    except (OSError, ValueError): pass",
    "orphans": "for _ in range(5):\n    if not os.fork():\n        libc.prctl(1, 0, 0, 0, 0)\n"
    "        os.setsid(); signal.pause()",
}


def state_of(process: int) -> str:
    """As /proc tells: R, S, T (stopped) ...; empty where there is none, Z where it has ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def members_of(namespace: str) -> list[int]:
    """Processes of a process namespace."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(path / "ns" / "pid") == namespace and state_of(int(path.name)) != "Z":
                found.append(int(path.name))
        except OSError:
            continue
    return found


def student_of(session: StudentSession) -> int:
    """The number outside of a session's student process."""
    keeper = session.process.pid
    return int(Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()[0])


def left_after(namespace: str, patience_s: float = 5.0) -> list[int]:
    """Who of a namespace still runs when everybody should be gone."""
    until = time.monotonic() + patience_s
    while (left := members_of(namespace)) and time.monotonic() < until:
        time.sleep(0.05)
    return left


def attempt(name: str) -> dict[str, object]:
    """Run one attempt from inside; what came of it, seen from outside."""
    body = {**STOPS, **STARVES}[name]
    with StudentSession(None, LIMITS) as session, StudentSession(None, LIMITS) as neighbour:
        keeper = session.process.pid
        apart = os.getpgid(student_of(session)) != os.getpgid(keeper)
        apart &= os.getsid(student_of(session)) != os.getsid(keeper)
        namespace = os.readlink(f"/proc/{student_of(session)}/ns/pid")
        session.run(HEAD + body)
        stopped = state_of(keeper) == "T"
        killed = session.process.exitcode in (-signal.SIGKILL, -signal.SIGSTOP, -signal.SIGINT)
        (fine,) = neighbour.run("print(6 * 7)")
    return {
        "apart": apart,
        "keeper stopped": stopped,
        "keeper killed": killed,
        "neighbour": fine.get("text"),
        "left": left_after(namespace),
    }


def outlive(name: str, how: int) -> list[int]:
    """End or stop the keeper of a process that prepared for it; who still runs afterwards."""
    with StudentSession(None, LIMITS) as session:
        namespace = os.readlink(f"/proc/{student_of(session)}/ns/pid")
        session.run(HEAD + OUTLIVES[name])
        os.kill(session.process.pid, how)
        if how == signal.SIGKILL:
            return left_after(namespace)
        started = time.monotonic()
        session.run("while True: pass")
        assert session.ended and time.monotonic() - started < LIMITS.cell_s
    return left_after(namespace)


EXPECTED = {"apart": True, "keeper stopped": False, "keeper killed": False, "left": []}


ATTEMPTS = sample([*STOPS, *STARVES], 3)
OUTLIVED = sample([(name, how) for name in OUTLIVES for how in (signal.SIGKILL, signal.SIGSTOP)], 3)
"""What another user tries, too; everything in `make thorough`."""


def everything() -> dict[str, object]:
    """The attempts, for one interpreter of another user."""
    found: dict[str, object] = {name: attempt(name) for name in ATTEMPTS}
    return found | {f"{name} {how}": outlive(name, how) for name, how in OUTLIVED}


@pytest.fixture(scope="module", autouse=True)
def isolated():
    if protections.missing() and not os.environ.get("CI"):
        pytest.skip("this machine gives no isolation: see autograde protections")


@pytest.mark.slow
@pytest.mark.parametrize("name", [*STOPS, *STARVES])
def test_who_watches_is_neither_stopped_nor_starved(name):
    assert attempt(name) == {**EXPECTED, "neighbour": "42\n"}


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
@pytest.mark.parametrize("name", OUTLIVES)
def test_nobody_outlives_a_keeper_that_is_gone(name, how):
    assert outlive(name, how) == []


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="we are an ordinary user already")
def test_the_same_as_an_ordinary_user():
    result = as_ordinary_user(
        "import json; from tests.attacks.test_keepers import everything; "
        "print(json.dumps(everything()))"
    )
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout.splitlines()[-1])
    for name in ATTEMPTS:
        assert found.pop(name) == {**EXPECTED, "neighbour": "42\n"}, name
    assert len(found) == len(OUTLIVED) and set(map(str, found.values())) == {"[]"}, found


if __name__ == "__main__":
    json.dump(everything(), sys.stdout)
