"""The warm parent, which every student's process is a fork of: how it starts, and with what.

Light to import: a command asks for the parent first, and loads torch and nbgrader for itself while
the parent warms up.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver
from types import ModuleType

PRELOAD = ["autograde.sandbox.warm"]
"""What the warm parent imports before it forks; `start` may ask for more."""
MANY = "autograde.sandbox.warm_for_many"
FEW = 8
"""Submissions up to which a light parent is done sooner: to its 2 s of processor time, most of them
torch's import, a heavy one adds 4, and that saves a fork 0.01 s, or where scikit-learn is asked for
0.9 s."""


def start(submissions: int = 0) -> None:
    """Have the warm parent started, without waiting for it; a second call does nothing.

    Args:
        submissions: How many there may be to grade: for many, more is loaded beforehand.
    """
    if submissions > FEW and MANY not in PRELOAD:
        PRELOAD.append(MANY)
    if warm_context().get_start_method() == "forkserver":
        with quiet_environment(), _deaf_to_interrupts():
            forkserver._forkserver.ensure_running()  # as `share` left it


def warm_context() -> multiprocessing.context.BaseContext:
    """Forks of a warm parent, where the system can fork; else a fresh interpreter each time."""
    if sys.platform == "win32":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    return context


def begin(process: multiprocessing.process.BaseProcess) -> None:
    """Start a process of `warm_context`; once more where the warm parent was just dying, or where
    nothing is left of its socket.

    Before Python 3.14, who is killed while asking for a fork takes the fork server along. Who has
    started it starts another one then. The socket lies in /tmp, which others tidy up.
    """
    start()
    with quiet_environment():
        try:
            process.start()
        except (ConnectionError, EOFError):
            time.sleep(DIES_S)
            process.start()
        except FileNotFoundError:
            _forget()
            with _deaf_to_interrupts():
                process.start()


def _forget() -> None:
    """Leave a warm parent that can no longer be asked: the next is this process's own. The old one
    ends with the forks that it has made."""
    server = forkserver._forkserver
    if server._forkserver_alive_fd is not None:
        os.close(server._forkserver_alive_fd)
    server._forkserver_address = server._forkserver_alive_fd = server._forkserver_pid = None
    vars(server).pop("ensure_running", None)  # of `share`
    about = multiprocessing.current_process()._config
    folder = about.get("tempdir")
    if folder and not os.path.isdir(folder):
        try:
            os.mkdir(folder, 0o700)
        except OSError:
            about["tempdir"] = None  # another is made


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """What is started in here does not hear Ctrl-C: it would answer with tracebacks while it warms
    up. The command does hear it, and the parent ends when the command does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


DIES_S = 0.5
"""How long a dying parent may take to be gone."""


def key() -> bytes | None:
    """What the warm parent wants to be shown before it forks; None before Python 3.14."""
    return getattr(forkserver._forkserver, "_forkserver_authkey", None)


def share(key: bytes | None) -> None:
    """In a fork of the warm parent: have more forks made by it, not by a warm parent of our own.

    The standard library hands the parent's address down, but not its key, and then starts another
    parent anyway.
    """
    server = forkserver._forkserver
    if server._forkserver_address is not None and server._forkserver_pid is None:
        server._forkserver_authkey = key
        server.ensure_running = lambda: None


KEPT = ("PATH", "LANG", "LC_ALL", "HOME", "TMPDIR", "COURSE_DATA", "PYTHONPATH", "LD_LIBRARY_PATH")
ONE_THREAD = {
    "OMP_NUM_THREADS": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1", "MPLBACKEND": "agg",
    "OMP_THREAD_LIMIT": "1",  # torch.set_num_threads(2) would have two threads wait for one core
    "PYTHONHASHSEED": "0",  # the order of a set of strings is the same in a regrade
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",  # large pages: a fork has fewer of them to copy
}  # fmt: skip


@contextmanager
def quiet_environment() -> Iterator[None]:
    """What the warm parent starts with: one thread, and nothing of ours that it need not know.

    Its children could read it in /proc/self/environ. The main module stays out too: the standard
    library would import it again in every child.
    """
    before, main = dict(os.environ), sys.modules["__main__"]
    kept = {name: before[name] for name in KEPT if name in before}
    os.environ.clear()
    os.environ.update(kept, **ONE_THREAD)
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def without_address_grammar() -> Iterator[None]:
    """Import nbformat in here: the grammar of web addresses, which its schema checks do not ask
    for, takes more than half a second to build."""
    sys.modules["rfc3987_syntax"] = None
    try:
        yield
    finally:
        del sys.modules["rfc3987_syntax"]
