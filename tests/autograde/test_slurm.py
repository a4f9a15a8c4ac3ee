"""A class graded by workers that a real SLURM started, where `slurm-wlm` is installed.

A controller, a node and munge are started here on ports and sockets of their own, and stopped. The
job is what dask-jobqueue 0.9 writes for `SLURMCluster` of docs/instructors.md, on one machine.
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from autograde.classroom import example, grading
from autograde.classroom.example import ASSIGNMENT
from autograde.classroom.release import release
from autograde.classroom.report import read_rows
from autograde.demo import compare
from autograde.sandbox.limits import Limits
from tests.autograde.test_dask import ROOT, dask, free_port, stop, wait_for_workers
from tests.short_class import short_class

SBIN = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin"))
NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "sinfo", "srun")
STARTS_WITHIN_S = 60.0
LIMITS = Limits(cell_s=20.0, answer_s=5.0)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not all(shutil.which(name, path=SBIN) for name in NEEDED), reason="needs Debian's slurm-wlm"
    ),
]

CONF = """\
ClusterName=one
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/node.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
NodeName=localhost NodeAddr=127.0.0.1 CPUs={cores} State=UNKNOWN
PartitionName=short Nodes=localhost Default=YES MaxTime=INFINITE State=UP
"""
JOB = """\
#!/usr/bin/env bash
#SBATCH -J dask-worker -p short -n 1 --cpus-per-task=2 -t 00:30:00 -o {folder}/job.out
{python} -m distributed.cli.dask_worker {address} --nthreads 1 --nworkers 2 --nanny \
--death-timeout 60 --host 127.0.0.1
"""


class Slurm:
    """Its daemons in one folder, and its commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "state").mkdir()
        (folder / "spool").mkdir()
        conf = folder / "slurm.conf"
        conf.write_text(
            CONF.format(
                folder=folder, controller=free_port(), node=free_port(), user=Path.home().owner(),
                cores=max(2, os.cpu_count() or 1),
            )
        )  # fmt: skip
        self.environment = {**os.environ, "PATH": SBIN, "SLURM_CONF": str(conf),
                            "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}  # fmt: skip
        self.daemons: list[subprocess.Popen] = []

    def start(self) -> None:
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        self.folder.chmod(0o755)  # munge refuses a socket that others cannot reach
        places = {"key-file": key, "socket": self.folder / "munge.socket"}
        places |= {name: self.folder / f"munge.{name}" for name in ("pid-file", "log-file")}
        places["seed-file"] = self.folder / "munge.seed"
        self._daemon("munged", "--foreground", "--force",
                     *(f"--{name}={place}" for name, place in places.items()))  # fmt: skip
        self._until(lambda: places["socket"].exists())
        self._daemon("slurmctld", "-D")
        self._daemon("slurmd", "-D", "-N", "localhost")
        self._until(lambda: "idle" in self.run("sinfo", "--noheader", "--format=%T").stdout)

    def _daemon(self, *words: str) -> None:
        said = open(self.folder / f"{words[0]}.said", "wb")  # noqa: SIM115  (the daemon's own)
        with said:
            self.daemons.append(
                subprocess.Popen(
                    words, env=self.environment, stdout=said, stderr=said, start_new_session=True
                )
            )

    def _until(self, is_so) -> None:
        deadline = time.monotonic() + STARTS_WITHIN_S
        while not is_so():
            said = "".join(path.read_text("utf-8") for path in self.folder.glob("*.said"))
            assert time.monotonic() < deadline, said
            time.sleep(0.2)

    def run(self, *words: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*map(str, words)], env=self.environment, capture_output=True, text=True, timeout=120
        )

    def stop(self) -> None:
        self.run("scancel", "--full", "--name=dask-worker")
        for daemon in reversed(self.daemons):
            stop(daemon)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    slurm = Slurm(tmp_path_factory.mktemp("slurm"))
    try:
        slurm.start()
        yield slurm
    finally:
        slurm.stop()


@pytest.fixture
def scheduler():
    port = free_port()
    process = dask("scheduler", "--port", port, "--host", "127.0.0.1", "--no-dashboard")
    yield f"tcp://127.0.0.1:{port}"
    stop(process)


def test_a_job_of_two_workers_grades_a_class(slurm, scheduler, tmp_path, isolation):
    job = slurm.folder / "job.sh"
    job.write_text(JOB.format(folder=slurm.folder, python=sys.executable, address=scheduler))
    queued = slurm.run("sbatch", job)
    assert queued.returncode == 0, queued.stderr
    wait_for_workers(scheduler, 2)
    short_class(tmp_path)
    release(tmp_path, ASSIGNMENT)
    example.hand_in(tmp_path)
    students = ["dan", "hana"]
    options = {"scheduler": scheduler, "trusted": isolation.trusted}
    outcomes = list(grading.grade(tmp_path, ASSIGNMENT, students, LIMITS, **options))
    assert sorted(outcome.student for outcome in outcomes) == students
    expected = {name: example.expected()[name] for name in students}
    assert compare(read_rows(tmp_path, ASSIGNMENT), expected) == []


def test_a_node_can_be_asked_for_its_protections(slurm, isolation):
    asked = slurm.run("srun", sys.executable, "-m", "autograde.cli", "protections")
    assert (asked.returncode == 0) == (not isolation.trusted), asked.stdout + asked.stderr
    assert "own files" in asked.stdout
