"""A second process in an exercise: a fork where a class is graded, a plain call elsewhere.

Exercises about resuming call a function again as a new process would: from what is in the file, and
nothing else. In the same process a global variable would hand everything on. On a laptop a fork is
unsafe beside the kernel's threads, and nobody gains by cheating there; a student's process that is
graded runs on one thread, so that it can be forked.
"""

from __future__ import annotations

import os
import pickle
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from autograde.sandbox.left_behind import nothing_left, share_nothing

if TYPE_CHECKING:
    from autograde.answers import Raised


class RaisedApart(Exception):
    """What a student's code raised in the other process, already in words."""

    def __init__(self, raised: Raised) -> None:
        super().__init__(raised.text)
        self.raised = raised


@dataclass
class _Now:
    forks: bool = False
    """Whether processes are really others."""
    pipe: int = -1
    """The descriptor on which the grader listens, open in those too."""
    places: tuple[str, ...] = ()
    """Folders that can be written to."""
    describe: Callable[[Exception], Raised] | None = None
    """Puts what the student's code raises into words, by whom it is asked at present."""


_now = _Now()


@contextmanager
def forking(pipe: int, places: tuple[str, ...]) -> Iterator[None]:
    """Inside, `in_a_process` forks.

    Args:
        pipe: The descriptor on which the grader listens.
        places: Folders that can be written to, each of a file system of its own.
    """
    _now.forks, _now.pipe, _now.places = True, pipe, places
    try:
        yield
    finally:
        _now.forks = False


@contextmanager
def describing(describe: Callable[[Exception], Raised]) -> Iterator[None]:
    """Inside, exceptions of other processes are put into words by this function."""
    before, _now.describe = _now.describe, describe
    try:
        yield
    finally:
        _now.describe = before


def in_a_process(job: Callable[[], Any], kept: Path | None = None) -> Any:
    """What a job returns, in a process of its own: nothing else that it leaves stays.

    A process that has a GPU in use cannot be forked; there the job is called as it is.

    Args:
        job: Called without arguments.
        kept: The folder whose files are handed on; in memory, elsewhere and in processes nothing
            is.

    Raises:
        RaisedApart: The job raised in the other process.
    """
    if not _now.forks or torch.cuda.is_initialized():
        return job()
    with nothing_left(_now.places, kept):
        return _of_another_process(job)


def _of_another_process(job: Callable[[], Any]) -> Any:
    reader, writer = os.pipe()
    with warnings.catch_warnings():  # of threads, which the student's code may have
        warnings.simplefilter("ignore")
        child = os.fork()
    if not child:
        _answer(job, writer)
    os.close(writer)
    try:
        with os.fdopen(reader, "rb") as pipe:
            raw = pipe.read()
    finally:  # also where an interrupt came
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    if not raw:
        os._exit(os.waitstatus_to_exitcode(status) % 256)  # as it would have ended here
    kind, said = pickle.loads(raw)  # from the student's own code, to where it runs as well
    if kind == "exit":
        raise SystemExit(said)
    if kind == "raised":
        raise RaisedApart(said)
    return said


def _answer(job: Callable[[], Any], writer: int) -> None:
    """In the fork: send what the job returns, or raises, and leave."""
    try:
        share_nothing({writer, _now.pipe})
        torch.set_num_threads(1)
        try:
            said = pickle.dumps(("value", job()))
        except SystemExit as leaving:
            said = pickle.dumps(("exit", str(leaving)))
        except Exception as fault:
            said = pickle.dumps(("raised", _now.describe(fault)))
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(said)
    finally:
        os._exit(1)
