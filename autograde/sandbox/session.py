"""The other side of the pipe: one submission's process as the referee sees it.

It starts a fork of the warm parent, sends cells and cases, keeps the time, and ends the process
group. A cell that takes too long is interrupted, as a student would; what does not heed that is
killed, and costs only what had not been answered by then.
"""

from __future__ import annotations

import base64
import json
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from autograde import plain
from autograde.exercise import Answer, Case
from autograde.referee import Raised
from autograde.sandbox.student import Limits, serve

GRACE_S = 2.0
"""How long an interrupted process may take to answer before it is killed."""
MAX_REPLY = 64 * 2**20


class StudentSession:
    """A student's process, from its start to its end.

    Args:
        submission: Folder whose plain files the process may see, as copies; None for none.
        limits: Time, memory and file size.
    """

    def __init__(self, submission: Path | None = None, limits: Limits = Limits()) -> None:  # noqa: B008
        self.limits = limits
        self.ended = ""
        """Why the process is no more; empty while it lives."""
        self.folder = Path(tempfile.mkdtemp(prefix="autograde-"))
        if submission is not None:
            _copy_plain_files(submission, self.folder)
        context = _warm_context()
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=serve, args=(theirs, str(self.folder), limits), daemon=True
        )
        with _quiet_environment():
            self.process.start()
        theirs.close()
        self.deadline = time.monotonic() + limits.notebook_s
        self.count = 0
        self.stuck: dict[str, Raised] = {}
        """Functions that did not answer in time, and are not asked again."""

    def run(self, source: str) -> list[dict[str, Any]]:
        """Run a cell and return its outputs; an error output where it was stopped."""
        if self.ended:
            return [_error("NotRun", f"This cell was not run: {self.ended}")]
        reply = self._request({"do": "run", "source": source}, self.limits.cell_s)
        if reply is None:
            return [_error("ProcessEnded", f"The process ended in this cell: {self.ended}")]
        if reply.get("interrupted"):
            return [_error("Timeout", f"Stopped: {self._out_of_time(self.limits.cell_s)}")]
        return [output for output in reply.get("outputs", []) if isinstance(output, dict)]

    def ask(self, exercise_id: str, function: str, case: Case) -> Answer | Raised:
        """Put a case to one of the student's functions."""
        if function in self.stuck:
            return self.stuck[function]
        if self.ended:
            return Raised("NotAsked", self.ended)
        packed = base64.b64encode(plain.to_bytes(case)).decode()
        request = {"do": "call", "exercise": exercise_id, "function": function, "case": packed}
        reply = self._request(request, self.limits.answer_s)
        if reply is None:
            self.stuck[function] = Raised("ProcessEnded", self.ended)
            return self.stuck[function]
        if reply.get("interrupted"):
            self.stuck[function] = Raised("Timeout", self._out_of_time(self.limits.answer_s))
            return self.stuck[function]
        return _read_answer(reply.get("answer"))

    def close(self) -> None:
        """End the process and all of its group, and remove its folder."""
        self._kill("")
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> StudentSession:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _request(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any] | None:
        """Send a request and wait for its reply; None if the process ended first."""
        self.count += 1
        timeout_s = max(0.0, min(timeout_s, self.deadline - time.monotonic()))
        try:
            self.pipe.send_bytes(json.dumps({"id": self.count, **request}).encode())
            if not self.pipe.poll(timeout_s):
                os.kill(self.process.pid, signal.SIGINT)
                if not self.pipe.poll(GRACE_S):
                    self._kill(self._out_of_time(timeout_s) + " It did not heed an interrupt.")
                    return None
            reply = json.loads(self.pipe.recv_bytes(MAX_REPLY))
        except (EOFError, OSError, ValueError, RecursionError):
            self.process.join(GRACE_S)
            code = self.process.exitcode
            self._kill(f"the process left by itself (exit code {code}).")
            return None
        if not isinstance(reply, dict) or reply.get("id") != self.count:
            self._kill("the process answered out of turn.")
            return None
        return reply

    def _out_of_time(self, seconds: float) -> str:
        return f"no answer within {seconds:g} s: is there a loop that never ends?"

    def _kill(self, reason: str) -> None:
        self.ended = self.ended or reason
        if self.process.pid is not None:
            for end in (os.killpg, os.kill):  # the group, and the leader if it has no group yet
                try:
                    end(self.process.pid, signal.SIGKILL)
                except (ProcessLookupError, PermissionError):
                    continue
        self.process.join(GRACE_S)
        self.pipe.close()


def _read_answer(answer: Any) -> Answer | Raised:
    """What a stranger's process sent, as plain data or as something raised."""
    try:
        if "raised" in answer:
            return Raised(str(answer["raised"])[:200], str(answer["text"])[:2000])
        value = plain.from_bytes(base64.b64decode(answer["value"]))
        if not isinstance(value, dict):
            raise plain.PlainDataError("an answer has fields")
        return value
    except (plain.PlainDataError, TypeError, KeyError, ValueError) as fault:
        return Raised("AnswerError", f"What came back cannot be read as an answer: {fault}")


def _error(name: str, text: str) -> dict[str, Any]:
    return {"output_type": "error", "ename": name, "evalue": text, "traceback": [text]}


def _copy_plain_files(source: Path, target: Path) -> None:
    """Ordinary files of a submission; links and anything that points elsewhere stay behind."""
    for path in source.rglob("*"):
        if path.is_file() and not any(p.is_symlink() for p in (path, *path.parents)):
            copy = target / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)


def _warm_context() -> multiprocessing.context.BaseContext:
    """Forks of a warm parent, where the system can fork; else a fresh interpreter each time."""
    if sys.platform == "win32":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["autograde.sandbox.warm"])
    return context


@contextmanager
def _quiet_environment() -> Iterator[None]:
    """One thread in the warm parent and its children, set before it starts."""
    wanted = {"OMP_NUM_THREADS": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1", "MPLBACKEND": "agg"}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
