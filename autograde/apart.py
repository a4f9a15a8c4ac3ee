"""A second process in an exercise: a fork where a class is graded, a plain call elsewhere.

Exercises about resuming call a function again as a new process would: from what is in the file, and
nothing else. In the same process a global variable would hand everything on. On a laptop a fork is
unsafe beside the kernel's threads, and nobody gains by cheating there; a student's process that is
graded runs on one thread, so that it can be forked.
"""

from __future__ import annotations

import base64
import gc
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from autograde import plain
from autograde.sandbox import kernel
from autograde.sandbox.left_behind import end_all_but, nothing_left, opened_again, share_nothing

if TYPE_CHECKING:
    from autograde.answers import Raised


class RaisedApart(Exception):
    """What a student's code raised in the other process, already in words."""

    def __init__(self, raised: Raised) -> None:
        super().__init__(raised.text)
        self.raised = raised


def _called(function: Callable[..., Any], args: Any = ()) -> Any:
    return function(*args)


@dataclass
class _Now:
    forks: bool = False
    """Whether processes are really others."""
    pipe: int = -1
    """The descriptor on which the grader listens, open in those too."""
    places: tuple[str, ...] = ()
    """Folders that can be written to, and are put back."""
    others: tuple[str, ...] = ()
    """Folders that can be written to, and are left alone."""
    alone: Callable[..., Any] = _called
    """Calls what may run a student's code, where it has no callers."""
    put_back: Callable[[], Any] = bool
    """Puts back what a student's code may have replaced."""
    keeps: frozenset[int] | None = None
    """Descriptors that a fork keeps, while one is made."""
    kept: Path | None = None
    """The folder that the process hands on."""
    after_a_kill: ExitStack = field(default_factory=ExitStack)
    """What is undone of a process that was killed and goes on."""
    describe: Callable[[Exception], Raised] | None = None
    """Puts what the student's code raises into words, by whom it is asked at present."""


_now = _Now()


@contextmanager
def forking(
    forks: bool,
    pipe: int,
    places: tuple[str, ...],
    alone: Callable[..., Any],
    put_back: Callable[[], Any],
    others: tuple[str, ...] = (),
) -> Iterator[None]:
    """Inside, a student's code is graded, and `in_a_process` forks.

    Args:
        forks: False where the process has a GPU, with which it cannot be forked.
        pipe: The descriptor on which the grader listens.
        places: Folders that can be written to and are put back, each of a file system of its own.
        alone: See `stacks.Alone`.
        put_back: Puts back what a student's code may have replaced.
        others: Folders that can be written to and are not put back: they are not ours.
    """
    _now.forks, _now.pipe, _now.places, _now.others = forks, pipe, places, others
    _now.alone, _now.put_back = alone, put_back
    try:
        yield
    finally:
        _now.forks, _now.alone, _now.put_back = False, _called, bool


def by_itself(function: Callable[..., Any], *args: Any) -> Any:
    """Call what may run a student's code: while a class is graded, where it has no callers."""
    return _now.alone(function, args)


def killed() -> None:
    """From here on the process that runs hands nothing on: it was killed, whatever it catches."""
    if _now.kept is not None:
        _now.after_a_kill.enter_context(nothing_left([str(_now.kept)], None))


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
        job: Called without arguments. It returns plain data, in tuples and dictionaries too.
        kept: The folder whose files are handed on; in memory, elsewhere and in processes nothing
            is.

    Raises:
        RaisedApart: The job raised in the other process.
    """
    _now.kept = kept
    if not _now.forks:
        return _until_killed(job)
    _now.put_back()
    with opened_again(_now.places[0]), nothing_left(_now.places, kept):
        return _of_another_process(job)


def _until_killed(job: Callable[[], Any]) -> Any:
    with ExitStack() as _now.after_a_kill:
        return job()


def _of_another_process(job: Callable[[], Any]) -> Any:
    if not kernel.landlock():
        end_all_but(frozenset())  # whom it could reach
    reader, writer = os.pipe()
    _now.keeps = frozenset({writer, _now.pipe})
    with _shut():
        child = _forked()
        _now.keeps = None
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
    _now.put_back()
    kind, said = _read(raw)
    if kind == "exit":
        raise SystemExit(said)
    if kind == "raised":
        from autograde.answers import Raised

        raise RaisedApart(Raised(*map(str, said)))
    return said


def _forked() -> int:
    """`os.fork`, but for what the student's code has registered to be called in this process: that
    would run beside the other one, and could hand on what it writes.

    C's fork alone would not do: a thread that waits for this one to let it run is not in the child,
    which would wait for it for ever, unless Python has taken note of the fork before it runs on.
    """
    registered = registered_for_forks()
    kept = [list(functions) for functions in registered]
    for functions in registered:
        functions.clear()
    filters, warnings.filters = warnings.filters, IGNORES_ALL  # of threads, from Python 3.12 on
    try:
        return by_itself(os.fork)  # which calls what is registered for the child
    finally:
        warnings.filters = filters
        for functions, before in zip(registered, kept, strict=True):
            functions[:] = before


IGNORES_ALL = [("ignore", None, Warning, None, 0)]


@cache
def registered_for_forks() -> tuple[list[Any], list[Any]]:
    """Python's own lists of what a fork calls in this process, before it and afterwards. Nobody
    hands them out; they are found as what refers to a function that was just registered.

    The warm parent asks first: what it has frozen is not looked through.
    """

    def before() -> None:
        """Registered, and found by."""

    def in_parent() -> None:
        """Likewise."""

    os.register_at_fork(before=before, after_in_parent=in_parent)
    return _list_that_ends_with(before), _list_that_ends_with(in_parent)


def _list_that_ends_with(function: Callable[[], None]) -> list[Any]:
    (found,) = (one for one in gc.get_referrers(function) if type(one) is list)
    found.remove(function)
    return found


@contextmanager
def _shut() -> Iterator[None]:
    """Inside, forks of this process cannot open what it has in memory or has opened."""
    if sys.platform != "linux":
        yield
        return
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    try:
        yield
    finally:
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1)


NOT_APART = 249
"""Exit code of a process that could not be kept from the others."""


def _share_nothing() -> None:
    """In a fork, before it calls what a student's code has registered for that."""
    if _now.keeps is None:
        return
    try:
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
        share_nothing(_now.keeps)
        kept = filter(None, [_now.kept])
        kernel.keep_to_oneself((*_now.places, *_now.others, *kept, os.devnull))
    except BaseException:
        os._exit(NOT_APART)  # what is raised here would be let pass


if hasattr(os, "fork"):
    os.register_at_fork(after_in_child=_share_nothing)


def _answer(job: Callable[[], Any], writer: int) -> None:
    """In the fork: send what the job returns, or raises, and leave."""
    try:
        _now.put_back()
        torch.set_num_threads(1)
        try:
            said = _written("value", _until_killed(job))
        except SystemExit as leaving:
            said = _written("exit", str(leaving))
        except Exception as fault:
            raised = _now.describe(fault)
            said = _written("raised", [raised.kind, raised.text])
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(said)
    finally:
        os._exit(1)


DEPTH = 40
"""How deep lists and dictionaries may be nested in what a process says."""


def _written(kind: str, said: Any) -> bytes:
    """What a process says, as plain data: what comes from there is not run."""
    _now.put_back()
    return plain.to_bytes([kind, _packed(said)], depth=DEPTH)


def _read(raw: bytes) -> Any:
    kind, said = plain.from_bytes(raw, depth=DEPTH)
    return kind, _unpacked(said)


def _packed(value: Any) -> Any:
    if isinstance(value, dict):
        return {"keys": _packed(list(value)), "values": _packed(list(value.values()))}
    if isinstance(value, tuple):
        return {"tuple": _packed(list(value))}
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, np.generic):
        return value.item()
    return list(map(_packed, value)) if isinstance(value, list) else value


def _unpacked(value: Any) -> Any:
    if isinstance(value, list):
        return list(map(_unpacked, value))
    if not isinstance(value, dict):
        return value
    if "tuple" in value:
        return tuple(_unpacked(value["tuple"]))
    if "bytes" in value:
        return base64.b64decode(value["bytes"])
    return dict(zip(_unpacked(value["keys"]), _unpacked(value["values"]), strict=True))
