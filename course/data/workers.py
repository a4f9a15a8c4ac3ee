"""Workers that die: what killed them, and what to try, instead of `exited unexpectedly`.

A DataLoader's workers are processes. One may be killed from outside (usually for lack of memory),
crash in native code, or call `exit`. torch then raises a RuntimeError from wherever the main
process is at that moment, even in the middle of a training step, and sometimes there is only a
broken connection. Here the exit status of the process is read, and the error explains it.

Source: Lecture 3, "DataLoader"; ledger C17, T09.
"""

from __future__ import annotations

import re
import signal
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from torch.utils.data import DataLoader

TORCHS_WORDS = re.compile(r"DataLoader worker \(pid(?:\(s\))? (?P<pids>[\d, ]+)\)|DataLoader timed")
BROKEN_CONNECTION = (OSError, EOFError)
"""What fetching a tensor from a process that has gone raises; OSError holds ConnectionError."""
CAUSES = {
    "SIGKILL": (
        "killed from outside, nearly always by the system because memory ran out",
        "fewer workers or a smaller prefetch_factor (each worker holds its copy of what the data "
        "set has in Python lists), and search the system log for 'out of memory'",
    ),
    "SIGBUS": (
        "it could not use shared memory, usually because /dev/shm is full",
        "a larger shared memory (docker run --shm-size=2g), fewer workers, or "
        "torch.multiprocessing.set_sharing_strategy('file_system')",
    ),
    "SIGSEGV": (
        "a crash in native code: a decoder, an extension, or a library that was used before the "
        "worker was forked",
        "num_workers=0 under `python -X faulthandler` to see the line, or "
        "multiprocessing_context='spawn'",
    ),
    "SIGABRT": (
        "native code aborted (a failed assertion, or memory that was freed twice)",
        "num_workers=0 under `python -X faulthandler` to see the line",
    ),
    "SIGTERM": (
        "it was told to end from outside, by a job scheduler or a person",
        "check the job's time and memory limits, and resume from the last checkpoint",
    ),
}
"""How a worker was killed: what this means, and what to try."""


class WorkerDiedError(RuntimeError):
    """A worker of a DataLoader is gone, or does not answer; the message says why."""


class GuardedLoader(DataLoader):
    """A DataLoader that says how a worker died.

    If a worker dies while the loop waits for a batch, the error explains it. If one dies while the
    loop body runs, torch's own error interrupts that body: put the loop into `with
    workers_explained(loader)` to have both explained.
    """

    _workers_of: Any = None

    def __iter__(self) -> Iterator[Any]:
        batches = super().__iter__()
        if not self.num_workers:
            return batches
        self._workers_of = weakref.ref(batches)
        return self._guarded(batches)

    def _guarded(self, batches: Iterator[Any]) -> Iterator[Any]:
        while True:
            with workers_explained(self):
                try:
                    batch = next(batches)
                except StopIteration:
                    return
            yield batch

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_workers_of"}


@contextmanager
def workers_explained(loader: Any = None) -> Iterator[None]:
    """Inside, the death of a DataLoader's worker is raised as `WorkerDiedError`, with its cause.

    Args:
        loader: The loader whose workers to check. Without it, or for a loader that is not a
            `GuardedLoader`, the cause is read from torch's message.

    Raises:
        WorkerDiedError: A worker died or did not answer in time. torch's error is its `__cause__`.
            Other errors pass through.
    """
    loader = loader if isinstance(loader, DataLoader) else None
    try:
        yield
    except WorkerDiedError:
        raise
    except (RuntimeError, *BROKEN_CONNECTION) as error:
        if (message := _explanation(error, loader)) is None:
            raise
        raise WorkerDiedError(message) from error


def _explanation(error: Exception, loader: DataLoader | None) -> str | None:
    """What to say; None where no worker has to do with it."""
    by_torch = isinstance(error, RuntimeError) and TORCHS_WORDS.search(str(error))
    if not by_torch and not isinstance(error, BROKEN_CONNECTION):
        return None
    batches = _batches_of(loader) or _batches_in(error)
    try:
        dead = _dead_workers(batches, patience_s=2.0 if by_torch else 0.5)
    except RuntimeError as told:  # from torch's handler of SIGCHLD, behind the broken connection
        if (by_torch := TORCHS_WORDS.search(str(told))) is None:
            raise
        error, dead = told, _dead_workers(batches, patience_s=0.0)
    if dead:
        _end(batches, loader)
        pid, code = dead[0]
        what, why, remedy = _cause_by_exit_code(code)
    elif not by_torch:
        return None
    elif "timed out" in str(error):
        what, why, remedy = _too_slow(loader)
        pid = None
    else:
        pid = by_torch["pids"]
        what, why, remedy = _cause_by_words(error)
    many = f" of {loader.num_workers}" if loader is not None else ""
    who = f"a worker{many} (pid {pid})" if pid else f"the workers{many}"
    return (
        f"{who} of the DataLoader {what}: {why}. Try: {remedy}. Batches already trained on are not "
        "lost if a checkpoint was written."
    )


def _batches_of(loader: DataLoader | None) -> Any:
    """The loader's pass under way; None where only the pass itself would know."""
    batches = getattr(loader, "_workers_of", None)
    return batches() if batches else getattr(loader, "_iterator", None)


def _batches_in(error: Exception) -> Any:
    """The pass over a DataLoader that an error went through, from its traceback."""
    trace = error.__traceback__
    while trace is not None:
        owner = trace.tb_frame.f_locals.get("self")
        if hasattr(owner, "_workers") and hasattr(owner, "_worker_result_queue"):
            return owner
        trace = trace.tb_next
    return None


def _dead_workers(batches: Any, *, patience_s: float) -> list[tuple[int, int]]:
    """(pid, exit code) of the workers that ended by themselves with anything but 0."""
    workers = getattr(batches, "_workers", [])
    until = time.monotonic() + patience_s
    while workers:  # a process that broke the connection may still be on its way out
        dead = [(worker.pid, worker.exitcode) for worker in workers if worker.exitcode]
        if dead or time.monotonic() > until:
            return dead
        time.sleep(0.02)
    return []


def _end(batches: Any, loader: DataLoader | None) -> None:
    """End the other workers of a pass; torch would raise for the dead one again, at any moment."""
    with suppress(RuntimeError, *BROKEN_CONNECTION):
        batches._shutdown_workers()
    if getattr(loader, "_iterator", None) is batches:  # persistent workers: start new ones
        loader._iterator = None


def _cause_by_exit_code(code: int) -> tuple[str, str, str]:
    if code < 0:
        return _cause_by_signal(signal.Signals(-code).name)
    return (
        f"ended itself with exit code {code}",
        "the data set, its transform or collate_fn called exit(), or a library it uses did",
        "num_workers=0, which shows the line that does so",
    )


def _cause_by_signal(name: str) -> tuple[str, str, str]:
    unknown = (
        "it was killed by a signal",
        "num_workers=0, to see whether the same happens in the main process",
    )
    return f"died of {name}", *CAUSES.get(name, unknown)


def _cause_by_words(error: BaseException) -> tuple[str, str, str]:
    """From torch's own words, in the error or in the one that it came from."""
    words = f"{error} {error.__cause__ or ''}"
    if code := re.search(r"exit code (\d+)", words):
        return _cause_by_exit_code(int(code[1]))
    for number in signal.Signals:
        if f"signal: {signal.strsignal(number)}" in words:
            return _cause_by_signal(number.name)
    return "is gone", "torch does not say why", "num_workers=0, which shows the error itself"


def _too_slow(loader: DataLoader | None) -> tuple[str, str, str]:
    seconds = f" of {loader.timeout:g} s" if loader is not None else ""
    return (
        f"yielded no batch within the timeout{seconds}",
        "an example takes too long, or a worker waits for ever (for a lock that was held when it "
        "was forked, or a network disk)",
        "num_workers=0 and time each dataset[index], a larger timeout, or "
        "multiprocessing_context='spawn'",
    )
