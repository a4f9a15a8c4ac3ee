"""A class graded by a real Dask scheduler and two workers, started and stopped here."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from autograde.classroom import example, grading
from autograde.classroom.cluster import Cluster, ClusterError
from autograde.classroom.example import ASSIGNMENT
from autograde.classroom.release import release
from autograde.classroom.report import read_rows
from autograde.demo import compare
from autograde.sandbox.limits import Limits
from tests.short_class import short_class

ROOT = Path(__file__).resolve().parents[2]
LIMITS = Limits(cell_s=20.0, answer_s=5.0)


def dask(*words: object) -> subprocess.Popen:
    """One of Dask's commands, in a process group of its own."""
    code = "from dask.__main__ import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, words)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def stop(process: subprocess.Popen) -> None:
    for end, patience_s in ((signal.SIGTERM, 3), (signal.SIGKILL, 10)):
        try:
            os.killpg(process.pid, end)
            process.wait(patience_s)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def processes():
    """A scheduler and two workers: one under a nanny, as `dask worker` starts it, one without."""
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    loopback = ("--host", "127.0.0.1", "--no-dashboard")
    started = {"address": address, "scheduler": dask("scheduler", "--port", port, *loopback)}
    for nanny in ("nanny", "no-nanny"):
        started[nanny] = dask("worker", address, *loopback, "--nthreads", 1, f"--{nanny}")
    try:
        wait_for_workers(address, 2)
        yield started
    finally:
        for name in ("no-nanny", "nanny", "scheduler"):
            stop(started[name])


@pytest.fixture(scope="module")
def scheduler(processes) -> str:
    return processes["address"]


def wait_for_workers(address: str, count: int) -> None:
    from distributed import Client

    deadline = time.monotonic() + 60
    while True:
        try:
            with Client(address, timeout=2, set_as_default=False) as client:
                client.wait_for_workers(count, timeout=deadline - time.monotonic())
                return
        except OSError:
            if time.monotonic() > deadline:
                raise


@pytest.mark.slow
def test_two_workers_grade_a_class_as_processes_here_do(scheduler, tmp_path, isolation):
    short_class(tmp_path)
    release(tmp_path, ASSIGNMENT)
    example.hand_in(tmp_path)
    students = ["ben", "cleo", "hana"]
    options = {"scheduler": scheduler, "trusted": isolation.trusted}
    outcomes = list(grading.grade(tmp_path, ASSIGNMENT, students, LIMITS, **options))
    assert sorted(outcome.student for outcome in outcomes) == students
    expected = {name: example.expected()[name] for name in students}
    assert compare(read_rows(tmp_path, ASSIGNMENT), expected) == []


def answers(cluster: Cluster, timeout_s: float = 30.0) -> dict[int, dict]:
    results = {}
    deadline = time.monotonic() + timeout_s
    while cluster.pending and time.monotonic() < deadline:
        results |= {job["number"]: result for job, result in cluster.collect()}
        time.sleep(0.05)
    return results


@pytest.mark.slow
def test_a_job_that_raises_comes_back_as_failed_and_the_others_with_their_results(scheduler):
    with closing(Cluster(scheduler, "tests.autograde.test_dask:work")) as cluster:
        for number in range(20):
            cluster.give({"number": number})
        results = answers(cluster)
    assert results.pop(7) == {"failed": "ValueError: seven"}
    assert results == {number: {"square": number**2} for number in range(20) if number != 7}


@pytest.mark.slow
def test_the_job_of_a_killed_worker_is_done_by_another(processes, tmp_path):
    with closing(Cluster(processes["address"], "tests.autograde.test_dask:work")) as cluster:
        for number in range(2):  # one each
            cluster.give({"number": number, "wait_for": str(tmp_path / "go")})
        time.sleep(1.0)
        processes["no-nanny"].kill()
        (tmp_path / "go").touch()
        assert answers(cluster) == {0: {"square": 0}, 1: {"square": 1}}


@pytest.mark.slow
def test_a_scheduler_that_leaves_ends_the_run_with_what_to_do(processes, tmp_path):
    with closing(Cluster(processes["address"], "tests.autograde.test_dask:work")) as cluster:
        cluster.give({"number": 1, "wait_for": str(tmp_path / "never")})
        processes["scheduler"].kill()
        with pytest.raises(ClusterError, match=r"What was graded is kept: start it again"):
            answers(cluster)


def work(job: dict) -> dict:
    if job["number"] == 7:
        raise ValueError("seven")
    deadline = time.monotonic() + 20
    while "wait_for" in job and not Path(job["wait_for"]).exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    return {"square": job["number"] ** 2}


def test_no_scheduler_is_one_line_that_says_what_to_start(monkeypatch):
    monkeypatch.setattr("autograde.classroom.cluster.CONNECT_S", 0.5)
    with pytest.raises(ClusterError, match=r"no Dask scheduler answers at tcp://127.*dask worker"):
        Cluster(f"tcp://127.0.0.1:{free_port()}", "x:y")
