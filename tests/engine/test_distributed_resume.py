"""Processes killed inside an epoch and inside a window end with the bits of a quiet run."""

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
from tests.sampling import sample

ROOT = Path(__file__).parents[2]
JOB = Path(__file__).with_name("ddp_job.py")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]


class Launch:
    """torchrun with its processes, in a process group of its own."""

    def __init__(
        self, run_dir: Path, ranks: int, accum_steps: int, wait_at: tuple[int, int] | None = None
    ) -> None:
        self.ranks = ranks
        run_dir.parent.mkdir(exist_ok=True)
        self.wait_at = wait_at
        self.log = run_dir.with_name(f"log-{time.monotonic_ns()}")
        self.said = self.log.with_suffix(".err")
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        job = (JOB, run_dir, self.log, accum_steps, *(wait_at or ()))
        command = [*TORCHRUN, str(ranks), *map(str, job)]
        with open(self.said, "w", encoding="utf-8") as said:
            self.torchrun = subprocess.Popen(
                command,
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

    def all_there(self) -> list[int]:
        """Process ids by rank, once all are at the place where they wait."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self.torchrun.poll() is None:
            pids = {
                rank: pid for rank, pid, *place in self.places() if tuple(place) == self.wait_at
            }
            if len(pids) == self.ranks:
                return [pids[rank] for rank in range(self.ranks)]
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
@pytest.mark.parametrize(
    "ranks,accum_steps,places",
    sample([(2, 3, [(4, 1)]), (2, 3, [(1, 2), (4, 1)]), (3, 2, [(6, 1)])], every=3),
)
def test_killed_processes_resume_to_the_same_bits(ranks, accum_steps, places, tmp_path):
    """Inside a window one is killed alone, which leaves the others to torchrun; before, all.

    Of three processes, in which order numbers are added up depends on where they lie in a bucket.
    """
    quiet, run_dir = tmp_path / "quiet" / "run", tmp_path / "killed" / "run"
    Launch(quiet, ranks, accum_steps).finish()
    start = 0
    for place in places:
        killed = Launch(run_dir, ranks, accum_steps, wait_at=place)
        pids = killed.all_there()
        assert killed.places()[0][2:] == (start, 0)  # it goes on from a window's start
        if place == places[-1]:
            os.kill(pids[-1], signal.SIGKILL)
            assert killed.torchrun.wait(60) != 0  # torchrun ends the others, which wait for this
            assert not any(map(is_there, pids))
        else:
            killed.kill(*pids)
        start = place[0]
        assert checkpoint.load(checkpoint.find(run_dir))["progress"]["update"] == start

    resumed = Launch(run_dir, ranks, accum_steps)
    resumed.finish()
    assert resumed.places()[0][2:] == (start, 0)

    found, expected = outcome(run_dir), outcome(quiet)
    assert found["last"]["progress"]["update"] == 3 * -(-8 // accum_steps)
    assert len(found["last"]["processes"]) == ranks
    assert_same_bits(found, expected)
