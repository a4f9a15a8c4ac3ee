"""A crew of processes that do the same work, one job at a time each, for one foreman.

Jobs and results are plain data on a pipe. A process that dies is replaced and its job given again;
after three times the job comes back as failed. So does at once a job that takes far too long, by
the clock or of the processor: it would again. When the foreman is gone,
however suddenly, the pipes close and the crew leaves: at once, with what it has started, or, where
half a job would leave half a write, when the job is done.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from autograde.sandbox import parent
from autograde.sandbox.bounds import cpu_seconds, limit_growth

TRIES = 3
MAX_GROWTH = 3 * 2**30
"""Bytes of memory that a process may take for its work, all jobs together."""
LEAVE_S = 10.0
"""How long a process may take to end what it has started."""
FINISH_S = 60.0
"""How long it may take to finish a job."""
Job = dict[str, Any]
Result = dict[str, Any]


@dataclass
class _Task:
    job: Job
    tries: int = 0
    since: float = 0.0
    used_before: float = 0.0
    """Processor time of its process when it got the job."""


class Crew:
    """Processes that return a result for each job.

    Args:
        work: A function of one job as `package.module:name`, imported in each process.
        size: How many processes.
        patience_s: How long one job may take before its process is ended.
        cpu_s: How much processor time one job may take of its process.
        finishes: Whether a job that has begun is finished when the foreman is gone.
    """

    def __init__(
        self,
        work: str,
        size: int,
        *,
        patience_s: float = 3600.0,
        cpu_s: float = 300.0,
        finishes: bool = False,
    ) -> None:
        self.work, self.size, self.patience_s, self.cpu_s = work, size, patience_s, cpu_s
        self.finishes = finishes
        self.members: list[_Member] = []
        self.waiting: deque[_Task] = deque()
        self.failed: deque[tuple[Job, Result]] = deque()

    @property
    def pending(self) -> int:
        """Jobs given and not yet collected."""
        return len(self.waiting) + len(self.failed) + sum(m.task is not None for m in self.members)

    @property
    def has_room(self) -> bool:
        """Whether another job would soon be started; feed no faster than this."""
        return self.pending < 2 * self.size

    def prepare(self) -> None:
        """Have a process load what it needs before there is a job for it."""
        if not self.members:
            self.members.append(_Member(self.work, self.finishes))

    def give(self, job: Job) -> None:
        """Hand over a job."""
        self.waiting.append(_Task(job))
        self._assign()

    def ask(self, job: Job) -> Result:
        """Have one job done before there are others, and wait for its result."""
        self.give(job)
        while True:
            wait(self.handles(), 1.0)
            for _, result in self.collect():
                return result

    def handles(self) -> list[Any]:
        """What `multiprocessing.connection.wait` can wait for: results and deaths."""
        return [handle for member in self.members for handle in (member.pipe, member.sentinel)]

    def collect(self) -> Iterator[tuple[Job, Result]]:
        """The results that are there, without waiting."""
        for member in list(self.members):
            task, result = member.task, member.receive()
            if result is not None:
                yield task.job, result
            elif member.gone:
                self._bury(member)
            elif task is not None and (why := self._too_slow(member, task)):
                self._bury(member, why, again=False)
        while self.failed:
            yield self.failed.popleft()
        self._assign()

    def close(self) -> None:
        """End all processes; unfinished jobs are lost."""
        for member in self.members:
            member.pipe.close()
        for member in self.members:
            member.end(FINISH_S if self.finishes else LEAVE_S)
        self.members.clear()

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _assign(self) -> None:
        idle = [member for member in self.members if member.task is None and not member.gone]
        while self.waiting:
            if not idle:
                if len(self.members) >= self.size:
                    return
                idle.append(_Member(self.work, self.finishes))
                self.members.append(idle[-1])
            idle.pop(0).start(self.waiting.popleft())

    def _too_slow(self, member: _Member, task: _Task) -> str:
        if time.monotonic() - task.since > self.patience_s:
            return f"was ended after {self.patience_s:g} s"
        if cpu_seconds(member.process.pid) - task.used_before > self.cpu_s:
            return f"was ended after {self.cpu_s:g} s of processor time"
        return ""

    def _bury(self, member: _Member, why: str = "", *, again: bool = True) -> None:
        """Take a process out that died, or that is ended now and `why`; give its job again."""
        self.members.remove(member)
        member.pipe.close()
        member.end(0.1)
        task = member.task
        if task is None:
            return
        task.tries += 1
        if again and task.tries < TRIES:
            self.waiting.appendleft(task)
            return
        why = why or f"died with exit code {member.process.exitcode}"
        text = f"{TRIES} processes worked on it, and the last one {why}"
        text = text if again else f"the process that worked on it {why}"
        self.failed.append((task.job, {"failed": text}))


def once(work: str, job: Job) -> Result:
    """Do one job in a fork of the warm parent, without importing here what it needs."""
    with Crew(work, size=1) as crew:
        return crew.ask(job)


class _Member:
    """One process of a crew, and what it is doing."""

    def __init__(self, work: str, finishes: bool) -> None:
        parent.start()
        context = parent.warm_context()
        self.pipe, theirs = context.Pipe()
        about = (theirs, work, finishes, dict(os.environ), parent.key())
        self.process = context.Process(target=serve, args=about)
        parent.begin(self.process)
        theirs.close()
        self.sentinel = self.process.sentinel
        self.task: _Task | None = None
        self.gone = False

    def start(self, task: _Task) -> None:
        self.task, task.since = task, time.monotonic()
        task.used_before = cpu_seconds(self.process.pid)
        try:
            self.pipe.send_bytes(json.dumps(task.job).encode())
        except OSError:
            self.gone = True

    def receive(self) -> Result | None:
        """A result if there is one."""
        self.gone = self.gone or self.process.exitcode is not None  # before the last look
        try:
            if self.pipe.poll():
                result = json.loads(self.pipe.recv_bytes())
                self.task = None
                return result
        except (EOFError, OSError, ValueError):
            self.gone = True
        return None

    def end(self, patience_s: float) -> None:
        self.process.join(patience_s)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()


def serve(
    pipe: Connection, work: str, finishes: bool, environment: dict[str, str], key: bytes | None
) -> None:
    """Do jobs until the foreman is gone. Runs in a fork of the warm parent.

    Args:
        pipe: Jobs come, results go, as JSON.
        work: What to do, e.g. `package.module:name`.
        finishes: Whether a job that has begun is finished when the foreman is gone.
        environment: The foreman's; the warm parent was started with next to none.
        key: With which the warm parent is asked for more processes, see `parent.key`.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the foreman's to handle
    os.environ.update({**environment, **parent.ONE_THREAD})
    parent.share(key)
    _import_ours_anew()
    gc.disable()
    try:
        do = find(work)
    except Exception as fault:
        do = _refuse(fault)
    gc.freeze()  # what was imported stays: the collector need not look through it for each job
    gc.enable()
    limit_growth(MAX_GROWTH)
    if not finishes:
        _leave_with_the_foreman(pipe)
    while True:
        try:
            job = json.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            return
        try:
            result = do(job)
        except Exception as fault:
            result = {"failed": f"{type(fault).__name__}: {fault}"}
        try:
            pipe.send_bytes(json.dumps(result).encode())
        except OSError:
            return


def _refuse(fault: Exception) -> Callable[[Job], Result]:
    """What cannot be imported fails each job by name; a process that left would be replaced."""

    def do(_job: Job) -> Result:
        raise fault

    return do


def _leave_with_the_foreman(pipe: Connection) -> None:
    """Leave in the middle of a job when the other end closes, ending what the job has started."""
    signal.signal(signal.SIGTERM, _leave)

    def watch() -> None:
        hangup = select.poll()
        hangup.register(pipe.fileno(), 0)
        hangup.poll()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def _leave(*_signal: object) -> None:
    """In the main thread, as an exception: a student's process is ended on the way out."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(0)


def _import_ours_anew() -> None:
    """Forget the project's own modules: in the warm parent, which is the students', their answers
    are gone, and a referee needs them. The catalogue, which has read the bank, holds none."""
    for name in list(sys.modules):
        if name.partition(".")[0] in ("autograde", "course") and name != "course.catalogue":
            del sys.modules[name]


def find(work: str) -> Any:
    """The function named `package.module:name`."""
    module, _, name = work.partition(":")
    return getattr(importlib.import_module(module), name)
