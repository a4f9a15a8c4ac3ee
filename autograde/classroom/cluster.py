"""Grading on other machines: the same jobs, done by the workers of a Dask cluster.

    autograde grade --scheduler tcp://HOST:8786
        └ Dask scheduler
            ├ dask worker     each grades one submission at a time,
            └ dask worker     in forks of a warm parent of its own

Jobs and results are the same plain data as for processes here, and cross as JSON. The journal, the
gradebook and the class directory stay with the run that hands the jobs out; workers must see the
submissions' folders (a shared file system) and have this project installed.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any

from autograde.classroom.crew import Job, Result, find

CONNECT_S = 15.0
"""How long a scheduler may take to answer."""
LOOK_S = 2.0
"""How often to count the workers: they come and go."""


class ClusterError(ValueError):
    """There is no scheduler, or it has gone; the message says what to do."""


class Cluster:
    """Dask workers that answer each job with a result.

    Args:
        address: Of the scheduler, e.g. `tcp://HOST:PORT`.
        work: A function of one job as `package.module:name`, imported on the workers.

    Raises:
        ClusterError: Nobody answers there.
    """

    def __init__(self, address: str, work: str) -> None:
        from distributed import Client

        self.address, self.work = address, work
        try:
            self.client = Client(address, timeout=CONNECT_S, set_as_default=False)
        except (OSError, ValueError, TypeError) as fault:
            raise ClusterError(
                f"no Dask scheduler answers at {address} ({fault}). Start one (dask scheduler), "
                f"then workers (dask worker {address}); or leave out --scheduler to grade on this "
                "machine."
            ) from None
        self.jobs: dict[str, tuple[Job, Any]] = {}
        """Jobs given and not yet collected, with their futures: a dropped future is a lost job."""
        self.done: SimpleQueue[Any] = SimpleQueue()
        self.bell, self._ring = multiprocessing.Pipe(duplex=False)
        self.counted_at, self.num_workers = -LOOK_S, 0
        self.num_given = 0
        self.has_asked_for_workers = False

    @property
    def pending(self) -> int:
        """Jobs given and not yet collected."""
        return len(self.jobs)

    @property
    def has_room(self) -> bool:
        """Whether another job would soon be started; feed no faster than this."""
        if time.monotonic() - self.counted_at >= LOOK_S:
            self._count_workers()
        return self.pending < 2 * max(1, self.num_workers)

    def give(self, job: Job) -> None:
        """Hand over a job."""
        self.num_given += 1
        key = f"grade-{self.num_given}-{time.time_ns()}"
        text = json.dumps(job, ensure_ascii=False)
        future = self.client.submit(work_here, self.work, text, key=key, pure=False)
        self.jobs[key] = (job, future)
        future.add_done_callback(self._note_done)

    def handles(self) -> list[Any]:
        """What `multiprocessing.connection.wait` can wait for."""
        return [self.bell]

    def collect(self) -> Iterator[tuple[Job, Result]]:
        """The results that are there, without waiting.

        Raises:
            ClusterError: The scheduler left.
        """
        while self.bell.poll():
            self.bell.recv_bytes()
        while True:
            try:
                future = self.done.get_nowait()
            except Empty:
                return
            if future.status in ("cancelled", "lost"):
                raise self._left()
            job, _ = self.jobs.pop(future.key)
            yield job, _result_of(future)

    def close(self) -> None:
        """Take back what is not yet graded and leave; scheduler and workers stay."""
        futures = [future for _, future in self.jobs.values()]
        self.jobs.clear()
        with suppress(Exception):  # the scheduler left: nothing to take back
            self.client.cancel(futures, force=True)
        self.client.close(timeout=2)
        self.bell.close()
        self._ring.close()

    def _note_done(self, future: Any) -> None:
        """In a thread of Dask's: put the result by and wake the run."""
        self.done.put(future)
        with suppress(OSError):  # the run is over
            self._ring.send_bytes(b".")

    def _count_workers(self) -> None:
        try:
            self.num_workers = len(self.client.nthreads())
        except Exception:
            raise self._left() from None
        self.counted_at = time.monotonic()
        if not self.num_workers and not self.has_asked_for_workers:
            self.has_asked_for_workers = True
            print(
                "autograde: the scheduler has no workers yet; start one: dask worker "
                f"{self.address}",
                file=sys.stderr,
            )

    def _left(self) -> ClusterError:
        return ClusterError(
            f"the Dask scheduler at {self.address} has gone. What was graded is kept: start it "
            "again, then run autograde grade again to continue."
        )


def _result_of(future: Any) -> Result:
    if future.status == "finished":
        return json.loads(future.result())
    fault = future.exception()
    return {"failed": f"{type(fault).__name__}: {fault}"}


def work_here(work: str, text: str) -> str:
    """Do a job on a Dask worker: JSON in, JSON out."""
    with _may_have_children():
        try:
            result = find(work)(json.loads(text))
        except Exception as fault:
            result = {"failed": f"{type(fault).__name__}: {fault}"}
    return json.dumps(result)


@contextmanager
def _may_have_children() -> Iterator[None]:
    """Dask's nanny makes its worker a daemon, which the standard library forbids to have children;
    a student's process is one, and is always ended with its session."""
    config = multiprocessing.current_process()._config
    before = config.get("daemon")
    config["daemon"] = False
    try:
        yield
    finally:
        config["daemon"] = before
