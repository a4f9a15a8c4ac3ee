"""Two processes, killed inside an epoch and inside a window, end with the bits of a quiet run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from tiny_job import assert_same_bits, outcome

from course.engine import checkpoint

ROOT = Path(__file__).parents[2]
JOB = Path(__file__).with_name("ddp_job.py")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


class Launch:
    """torchrun with two processes, in a process group of its own."""

    def __init__(self, run_dir: Path, wait_at: tuple[int, int] | None = None) -> None:
        run_dir.parent.mkdir(exist_ok=True)
        self.wait_at = wait_at
        self.log = run_dir.with_name(f"log-{time.monotonic_ns()}")
        self.said = self.log.with_suffix(".err")
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        with open(self.said, "w", encoding="utf-8") as said:
            self.torchrun = subprocess.Popen(
                [*TORCHRUN, str(JOB), str(run_dir), str(self.log), *map(str, wait_at or ())],
                env=os.environ
                | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": path},
                stdout=subprocess.DEVNULL,
                stderr=said,
                start_new_session=True,
            )

    def places(self) -> list[tuple[int, ...]]:
        """(rank, pid, updates done, micro-step) of every forward pass so far."""
        if not self.log.is_file():
            return []
        whole = self.log.read_text(encoding="utf-8").rpartition("\n")[0]
        return [tuple(map(int, line.split())) for line in whole.splitlines()]

    def both_there(self) -> list[int]:
        """Process ids by rank, once both are at the place where they wait."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self.torchrun.poll() is None:
            pids = {
                rank: pid for rank, pid, *place in self.places() if tuple(place) == self.wait_at
            }
            if len(pids) == 2:
                return [pids[0], pids[1]]
            time.sleep(0.02)
        raise AssertionError(f"never at {self.wait_at}: {self.places()}\n{self.errors()}")

    def kill(self, *pids: int) -> None:
        """Kill -9 the launcher's whole group and the processes, which have groups of their own."""
        os.killpg(self.torchrun.pid, signal.SIGKILL)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.torchrun.wait()
        for pid in pids:
            while is_there(pid):
                time.sleep(0.01)

    def errors(self) -> str:
        """The end of what all of them wrote to standard error; they are killed first."""
        with suppress(ProcessLookupError):
            self.kill(*{pid for _, pid, *_ in self.places()})
        return self.said.read_text(encoding="utf-8")[-3000:]

    def finish(self) -> None:
        assert self.torchrun.wait(90) == 0, self.errors()


def is_there(pid: int) -> bool:
    """Whether the process lives; one that is dead and not yet buried (state Z) does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2]
    except OSError:
        return False
    return not state.startswith("Z")


@pytest.mark.slow
def test_two_killed_processes_resume_to_the_same_bits(tmp_path):
    """All killed at once in epoch 1; in epoch 2 one alone, which leaves the other to torchrun."""
    quiet = Launch(tmp_path / "quiet" / "run")
    killed = Launch(tmp_path / "killed" / "run", wait_at=(1, 2))
    quiet.finish()
    killed.kill(*killed.both_there())
    run_dir = tmp_path / "killed" / "run"
    assert checkpoint.load(checkpoint.find(run_dir))["progress"]["update"] == 1

    killed = Launch(run_dir, wait_at=(4, 1))
    pids = killed.both_there()
    assert killed.places()[0][2:] == (1, 0)  # it went on from its checkpoint, at the window's start
    os.kill(pids[1], signal.SIGKILL)
    assert killed.torchrun.wait(60) != 0  # torchrun ends the other process, which waits for this
    assert not is_there(pids[0])

    resumed = Launch(run_dir)
    resumed.finish()
    assert resumed.places()[0][2:] == (4, 0)

    found, expected = outcome(run_dir), outcome(tmp_path / "quiet" / "run")
    assert found["last"]["progress"]["update"] == 9
    assert len(found["last"]["processes"]) == 2
    assert_same_bits(found, expected)
