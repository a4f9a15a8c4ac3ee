"""A busy machine costs nobody a point, and one submission cannot make it busy."""

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from autograde import bank
from autograde.referee import judge
from autograde.sandbox import protections, spent
from autograde.sandbox.isolation import Isolation
from autograde.sandbox.limits import Limits
from autograde.sandbox.session import GRACE_S, StudentSession
from autograde.sandbox.spent import Spent, Used
from tests.attacks.submissions import HONEST
from tests.attacks.test_keepers import student_of

CLIP = bank.load("03a.clip")
SLOW = HONEST.replace(
    "def clip_by_global_norm(parameters, max_norm):",
    "import time\ndef clip_by_global_norm(parameters, max_norm):\n"
    "    until = time.process_time() + 0.3\n    while time.process_time() < until: pass",
)
SPIN = "import os\nfor _ in range(5): os.fork()\nwhile True: pass"
LIMITS = Limits(cell_s=5.0, answer_s=0.8, notebook_s=60.0)


@contextmanager
def spinners(many: int):
    """So many processes that want a core each."""
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(many)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def verdict_of(source: str):
    """The verdict, and how long the answers took by the clock."""
    with StudentSession(None, LIMITS) as session:
        session.run(source)
        started = time.monotonic()
        found = judge(CLIP, lambda case: session.ask(CLIP.id, CLIP.name, case), seed=1)
        return found, time.monotonic() - started


@pytest.mark.slow
def test_the_same_submission_alone_and_beside_spinners_gets_the_same_points():
    assert "process_time" in SLOW
    alone, _ = verdict_of(SLOW)
    with spinners(2 * (os.cpu_count() or 1)):
        beside, seconds = verdict_of(SLOW)
    assert alone.points == alone.max_points == beside.points, beside
    assert seconds > LIMITS.answer_s  # by the clock alone its answers came too late


@pytest.mark.slow
@pytest.mark.parametrize("by_kernel", [True, False])
def test_many_spinning_processes_of_one_submission_get_one_core(by_kernel):
    if protections.missing() and not os.environ.get("CI"):
        pytest.skip("this machine gives no isolation: see autograde protections")
    limits = Limits(cell_s=2.0, notebook_s=60.0)
    with StudentSession(None, limits, Isolation(control_groups=by_kernel)) as session:
        student = student_of(session)
        moved = "import os; os.sched_setaffinity(0, range(os.cpu_count())); os.nice(0)\n"
        session.run(moved)
        grouped = session.folder.name in Path(f"/proc/{student}/cgroup").read_text()
        if by_kernel and not grouped:
            pytest.skip("no control groups to be had here")
        assert grouped or len(os.sched_getaffinity(student)) == 1
        assert grouped or os.getpriority(os.PRIO_PROCESS, student) >= 10
        started = time.monotonic()
        (output,) = session.run(moved + SPIN)
        elapsed = time.monotonic() - started
        assert elapsed < spent.STRETCH * (limits.cell_s + GRACE_S) + 5
        assert "no answer within 2 s" in output["evalue"]


def test_waiting_for_a_core_is_taken_off_and_work_is_not(monkeypatch):
    seen = [Used(1.0, 2.0), Used(1.5, 11.0)]
    monkeypatch.setattr(
        spent, "used_by", lambda _process: seen[0] if len(seen) == 1 else seen.pop(0)
    )
    clock = Spent.from_now(1)
    assert clock.own(10.0) == 0.75  # ran 0.5 s; 9 of 10 seconds somebody else had the core
    seen[:] = [Used(61.0, 600.0)]
    assert clock.own(10.0) == 60.0  # sixty processes of its own made each other wait
    assert clock.waited(10.0) == 0.0  # one of them always ran
    seen[:] = [Used(5.0, 600.0)]
    assert clock.waited(10.0) == 6.0  # and here a neighbour for six seconds
    seen[:] = [Used(1.0, 2.0)]
    assert clock.own(10.0) == 5.0  # asleep, or a machine that was paused


def test_what_a_process_used_is_read_from_the_kernel():
    before = spent.used_by(os.getpid())
    until = time.process_time() + 0.1
    while time.process_time() < until:
        pass
    assert spent.used_by(os.getpid()).cpu - before.cpu >= 0.09
    assert spent.used_by(2**22 + 1) == Used(0.0, 0.0)
