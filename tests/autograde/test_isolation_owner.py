"""A grader killed with -9 leaves no student running, and the next one sweeps its folder."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from autograde.sandbox import owner

GRADER = """
import sys
from autograde.sandbox.session import StudentSession
from autograde.sandbox.limits import Limits
from autograde.sandbox.isolation import Isolation
if __name__ == "__main__":
    session = StudentSession(None, Limits(cell_s=100.0), Isolation())
    print(session.folder, session.process.pid, flush=True)
    session.run("import os, signal\\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\\n"
                "os.fork()\\nwhile True: pass")
"""


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """A temporary folder of the test's own: other graders' folders are not in it."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def linux_only() -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("processes are told apart by Linux's /proc")


def test_a_killed_grader_takes_its_student_along_and_its_folder_is_swept(
    tmp_path, scratch, isolation
):
    if isolation.trusted:
        pytest.skip("this machine gives no isolation: see autograde protections")
    script = tmp_path / "grader.py"
    script.write_text(GRADER)
    environment = {**os.environ, "TMPDIR": str(scratch)}
    grader = subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, text=True, env=environment
    )
    folder, keeper = grader.stdout.readline().split()
    inside = _children(int(keeper))
    time.sleep(1.0)  # its endless loop has begun
    assert inside and owner.sweep() == [] and Path(folder).is_dir()
    grader.send_signal(signal.SIGKILL)
    grader.wait()
    grader.stdout.close()
    deadline = time.monotonic() + 10
    while any(map(_runs, [int(keeper), *inside])) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(_runs, [int(keeper), *inside]))
    assert owner.sweep() == [Path(folder)] and not Path(folder).exists()


def _children(pid: int) -> list[int]:
    return [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _runs(pid: int) -> bool:
    return owner._started(pid) is not None


def test_only_folders_of_this_users_dead_processes_are_swept(scratch):
    linux_only()
    me = owner.this_process()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    kept = {
        "in use": owner.private_folder(),
        "of another namespace": scratch / f"autograde-{ended.pid}-1-{me.namespace + 1}-abc",
        "another's name": scratch / "autograde-notes",
        "not ours at all": scratch / f"{ended.pid}-1-{me.namespace}-abc",
    }
    for path in kept.values():
        path.mkdir(exist_ok=True)
    target = scratch / "somebody's"
    target.mkdir()
    link = scratch / f"autograde-{ended.pid}-1-{me.namespace}-link"
    link.symlink_to(target)
    dead = scratch / f"autograde-{ended.pid}-1-{me.namespace}-abc"
    reused = scratch / f"autograde-{me.pid}-{me.started + 1}-{me.namespace}-abc"
    for path in (dead, reused):
        path.mkdir()
    assert sorted(owner.sweep()) == sorted([dead, reused])
    assert all(path.is_dir() for path in (*kept.values(), target)) and link.is_symlink()
