"""The referee's side of the pipe: one submission's process.

It starts a fork of the warm parent, sends cells and cases, keeps the time, and ends the process
group. A cell that takes too long is interrupted, as a student would do; a process that ignores that
is killed, which affects only what was not answered by then.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from autograde import plain
from autograde.answers import Raised
from autograde.apart import NOT_APART
from autograde.compare import CHANGED
from autograde.devices import advice, is_lost
from autograde.exercise import UNFIT, Answer, AnswerError, Case
from autograde.kinds.value import plain_value
from autograde.reported import Reported, on_a_line, reported
from autograde.sandbox import control_group, owner, parent
from autograde.sandbox.board import Board
from autograde.sandbox.channel import Channel, TooLongError
from autograde.sandbox.isolation import TOO_MUCH_MEMORY, Isolation, IsolationError
from autograde.sandbox.limits import Limits
from autograde.sandbox.outputs import MAX_VALUES, plain_outputs, values_in
from autograde.sandbox.owner import private_folder
from autograde.sandbox.reaching import WOKEN, WORDS
from autograde.sandbox.spent import STRETCH, Spent
from autograde.sandbox.still import descendants, standing_still
from autograde.sandbox.student import not_defined, serve
from autograde.words import AT_THE_LINE, UNJUDGED

GRACE_S = 2.0
"""How long an interrupted process may take to answer before it is killed."""
INTERRUPTS = 4
"""How often it is interrupted within that time, unless it answers."""
START_S = 120.0
"""How long the warm parent, or a cold process, may take to start."""
LOOK_S = 0.5
"""How often to look after the keeper while waiting."""
MAX_REPLY = 16 * 2**20
NOTES = {json.dumps({"noted": what}).encode(): what for what in WORDS}
"""What is noted, by the message that says so."""
MAX_NOTES = 1000
"""Notes of one submission that are read; each of its processes tells each kind once."""
MAX_FILES = 2000
MAX_TEXT = 100_000
"""Bytes of a file beside the notebook in which the line that raised is looked for."""
MAX_WHY = 200
"""Characters of why an answer cannot be read."""


class StudentSession:
    """A student's process, from its start to its end.

    Args:
        submission: Folder whose plain files the process may see, as copies; None for none.
        limits: Time, memory and everything else that is counted.
        isolation: Locked away, unless it says that the code is trusted.
        device: Where answers are computed, e.g. `cuda:0`.

    Raises:
        IsolationError: The process could not be locked away; nothing has run.
    """

    def __init__(
        self,
        submission: Path | None = None,
        limits: Limits = Limits(),  # noqa: B008
        isolation: Isolation = Isolation(),  # noqa: B008
        device: str = "cpu",
    ) -> None:
        self.limits, self.isolation, self.device = limits, isolation, device
        self.ended = ""
        """Why the process ended; empty while it runs."""
        self.noted: set[str] = set()
        """What its code reached for, to be read by a person: keys of `reaching.WORDS`."""
        self.notes = 0
        self.board = Board()
        _sweep_once()
        self.folder = private_folder()
        try:
            if submission is not None:
                _copy_plain_files(submission, self.folder, limits.file_bytes)
            self._start()
        except BaseException:  # a full disk, say, which must not stay full for the next one
            self.board.close()
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        self.output_left = limits.output_bytes
        self._wait_until_ready()
        self.idle_since = time.monotonic()
        """Since when nothing is asked of the process: that time is the grader's, not its own."""
        self.deadline = self.idle_since + limits.notebook_s
        self.last_deadline = self.idle_since + STRETCH * limits.notebook_s
        self.count = self.last_bytes = 0
        self.late = False
        """Whether the last request was interrupted by us, as it took too long."""
        self.is_last = False
        """Whether it had only what was left of the whole notebook's time."""
        self.ran: list[str] = []
        """Cells so far, to be run again where an answer has cost the process its device."""
        self.has_lost_device = False
        self.stuck: dict[str, Raised] = {}
        """Functions that did not answer in time, and are not asked again."""

    def run(self, source: str) -> list[dict[str, Any]]:
        """Run a cell and return its outputs; an error output where it was stopped."""
        if self.ended:
            return [_error("NotRun", f"This cell was not run: {self.ended}")]
        self._regain_device()
        self.ran.append(source)
        reply = self._request({"do": "run", "source": source}, self.limits.cell_s)
        if reply is None:
            return [_error("ProcessEnded", f"The process ended in this cell: {self.ended}")]
        if reply.get("interrupted") and not self.late:
            return [_error("KeyboardInterrupt", "Raised by the cell itself.")]
        if reply.get("interrupted"):
            return [_error("Timeout", f"Stopped: {self._out_of_time(self.limits.cell_s)}")]
        outputs = plain_outputs(reply.get("outputs"))
        self.output_left -= self.last_bytes
        if self.output_left < 0:
            text = f"Outputs beyond {self.limits.output_bytes:,} bytes per notebook are not kept."
            return [{"output_type": "stream", "name": "stdout", "text": text}]
        for output in outputs:
            if output.get("ename") in OURS:
                output["ename"] = f"Own{output['ename']}"
        return outputs

    def ask(self, exercise_id: str, function: str, case: Case) -> Answer | Raised:
        """Call one of the student's functions on a case."""
        if function in self.stuck:
            return self.stuck[function]
        if self.ended:
            return Raised("NotAsked", self.ended)
        self._regain_device()
        packed = base64.b64encode(plain.to_bytes(case)).decode()
        request = {"do": "call", "exercise": exercise_id, "function": function, "case": packed}
        woken = partial(self.noted.add, WOKEN)
        with standing_still(self.process.pid, self.isolation.trusted, woken):
            reply = self._request(request, self.limits.answer_s)
        if reply is None:
            self.stuck[function] = Raised("ProcessEnded", self.ended)
            return self.stuck[function]
        if reply.get("interrupted") and not self.late:
            return Raised("KeyboardInterrupt", "by the function itself")
        if reply.get("interrupted"):
            self.stuck[function] = Raised("Timeout", self._out_of_time(self.limits.answer_s))
            return self.stuck[function]
        answer = self._with_a_line_of_its_own(_read_answer(reply.get("answer")))
        if self.device != "cpu" and isinstance(answer, Raised) and is_lost(answer.text):
            self.has_lost_device = True
        undefined = Raised("NameError", not_defined(function))
        return undefined if answer == undefined else answer

    def _with_a_line_of_its_own(self, answer: Answer | Raised) -> Answer | Raised:
        """An answer; of something raised without the line, if that is not written anywhere in what
        was handed in: the process may say what it likes."""
        if not isinstance(answer, Raised) or AT_THE_LINE not in answer.text:
            return answer
        said, _, line = answer.text.partition(AT_THE_LINE)
        hint = advice(said)
        files = (path for path in self.folder.rglob("*.py") if path.is_file())
        written = chain(self.ran, map(_beginning, islice(files, MAX_FILES)))
        if any(line.removesuffix(hint) in text for text in written):
            return answer
        return Raised(answer.kind, Reported(said + hint))

    def value_of(self, name: str) -> tuple[Any, str]:
        """A variable of the student's as plain data, and the name typed in the notebook.

        The value is None where there is no such variable, and a Raised where it cannot be read.
        """
        if self.ended:
            return Raised("NotAsked", self.ended), ""
        reply = self._request({"do": "value", "name": name}, self.limits.answer_s)
        if reply is None:
            return Raised("ProcessEnded", self.ended), ""
        if reply.get("interrupted"):
            return Raised("Timeout", self._out_of_time(self.limits.answer_s)), ""
        answer = _read_answer(reply.get("answer"))
        if isinstance(answer, Raised):
            return answer, ""
        typed = answer.get("typed")
        try:
            return plain_value(answer.get("value")), typed if isinstance(typed, str) else ""
        except AnswerError as fault:
            return Raised("AnswerError", reported(fault)), ""

    def close(self) -> None:
        """End the process and all that it has started, and remove its folder."""
        self._kill("")
        self.board.close()
        if self.process.exitcode in (None, -signal.SIGKILL):  # its keeper could not clear away
            control_group.clear(self.folder.name)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> StudentSession:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _request(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any] | None:
        """Send a request and wait for its reply; None if the process ended first."""
        self.count += 1
        started, spent = time.monotonic(), Spent.from_now(self.process.pid)
        idle_s = started - self.idle_since
        self.deadline, self.last_deadline = self.deadline + idle_s, self.last_deadline + idle_s
        try:
            return self._request_in_time(request, timeout_s, spent)
        finally:  # what others had of the machine is not of this notebook's time
            self.idle_since = time.monotonic()
            waited_s = spent.waited(self.idle_since - started)
            self.deadline = min(self.deadline + waited_s, self.last_deadline)

    def _request_in_time(
        self, request: dict[str, Any], timeout_s: float, spent: Spent
    ) -> dict[str, Any] | None:
        left_s = max(0.0, self.deadline - time.monotonic())
        self.is_last = left_s < timeout_s
        if not left_s:
            self._kill(self._out_of_time(timeout_s))
            return None
        try:
            self.board.show(request.get("exercise", ""))
            raw = self._exchange({"id": self.count, **request}, min(timeout_s, left_s), spent)
        except TimeoutError:
            others = len(descendants(self.process.pid)) - (not self.isolation.trusted)
            self._kill(
                self._out_of_time(timeout_s) + NO_HEED + (BUSY.format(others) if others > 0 else "")
            )
            return None
        except (TooLongError, FloodError) as fault:
            self._kill(f"the process sent {fault}.")
            return None
        except (EOFError, OSError):
            self.process.join(GRACE_S)
            self._kill(_why_left(self.process.exitcode, self.limits))
            return None
        try:
            reply = _read_reply(raw)
        except FloodError as fault:
            self._kill(f"the process sent {fault}.")
            return None
        except (ValueError, RecursionError):
            self._kill("what the process sent is not a reply: something else wrote to its pipe.")
            return None
        if not isinstance(reply, dict) or reply.get("id") != self.count:
            self._kill("the process answered out of turn.")
            return None
        told = reply.get("noted")
        self.noted.update(WORDS.keys() & set(map(str, told if isinstance(told, list) else ())))
        self.last_bytes = len(raw)
        return reply

    def _exchange(self, request: dict[str, Any], timeout_s: float, spent: Spent) -> bytes:
        """Send, and wait for the answer: as long as granted, and then after an interrupt."""
        self.late = False
        try:
            self.pipe.send(json.dumps(request).encode(), time.monotonic() + timeout_s + GRACE_S)
            return self._received_within(timeout_s, spent)
        except TimeoutError:
            self.late = True
            return self._interrupted()

    def _interrupted(self) -> bytes:
        """What comes after an interrupt, given again where none has come: Python drops one that
        rings in a finalizer or a callback."""
        for _ in range(INTERRUPTS - 1):
            with suppress(TimeoutError):
                return self._after_an_interrupt()
        return self._after_an_interrupt()

    def _after_an_interrupt(self) -> bytes:
        os.kill(self.process.pid, signal.SIGINT)
        return self._received_within(GRACE_S / INTERRUPTS, Spent.from_now(self.process.pid))

    def _received_within(self, timeout_s: float, spent: Spent) -> bytes:
        """The next message, within so many seconds that are the process's own."""
        started = time.monotonic()
        deadline = started + timeout_s
        while True:
            try:
                return self._received(deadline)
            except TimeoutError:
                elapsed = time.monotonic() - started
                left_s = timeout_s - spent.own(elapsed)
                if left_s < 0.01 or elapsed > STRETCH * timeout_s:
                    raise
                deadline = time.monotonic() + left_s

    def _received(self, deadline: float) -> bytes:
        """The next message; who waits looks now and then whether the keeper still keeps."""
        while True:
            try:
                raw = self.pipe.receive(min(deadline, time.monotonic() + LOOK_S), MAX_REPLY)
                if not self._is_a_note(raw):
                    return raw
                if time.monotonic() >= deadline:
                    raise TimeoutError("no answer in time")
            except TimeoutError:
                if time.monotonic() >= deadline:
                    raise
                if owner.is_stopped(self.process.pid):
                    _send(os.kill, self.process.pid, signal.SIGKILL)
                    raise EOFError("its keeper was stopped") from None

    def _is_a_note(self, raw: bytes) -> bool:
        """Whether a message only tells what was noted of the student's code; it is kept."""
        if raw not in NOTES:
            return False
        self.noted.add(NOTES[raw])
        self.notes += 1
        if self.notes > MAX_NOTES:
            raise FloodError(f"more than {MAX_NOTES:,} messages that nobody had asked for")
        return True

    def _start(self) -> None:
        context = parent.warm_context()
        ours, theirs = context.Pipe()
        seen = self.board.reading_end()
        about = (theirs, str(self.folder), self.limits, self.isolation, self.device, seen)
        self.process = context.Process(target=serve, args=about, daemon=True)
        try:
            parent.begin(self.process)
        finally:
            theirs.close()
            if seen is not None:
                seen.close()
        self.pipe = Channel(ours)

    def _wait_until_ready(self) -> None:
        """Read the first message, sent before any student code runs."""
        try:
            hello = json.loads(self.pipe.receive(time.monotonic() + START_S, MAX_REPLY))
        except (EOFError, OSError, ValueError) as fault:
            hello = {"fault": f"the process did not start ({fault or 'it ended'})"}
        if "ready" not in hello:
            self.close()
            raise IsolationError(
                f"A student's process could not be locked away: {hello['fault']}. Nothing was run. "
                "`autograde protections` shows what this machine lacks."
            )

    def _regain_device(self) -> None:
        """Begin again in a fresh process where an answer has left the old one without its GPU.

        The cells are run again, on the notebook's own time: the fault costs that answer alone.
        """
        if not self.has_lost_device:
            return
        self.has_lost_device = False
        self._kill("")
        self._start()
        self._wait_until_ready()
        for source in self.ran:
            if not self.ended:
                self._request({"do": "run", "source": source}, self.limits.cell_s)

    def _out_of_time(self, seconds: float) -> str:
        if self.is_last:
            return f"the {self.limits.notebook_s:g} s of the whole notebook were over."
        return f"no answer within {seconds:g} s. (Is there a loop that never ends?)"

    def _kill(self, reason: str) -> None:
        if self.pipe.is_closed:
            return
        self.ended = self.ended or reason
        leader = self.process.pid
        if not self.isolation.trusted:  # a keeper, who takes its student along and clears away
            _send(os.kill, leader, signal.SIGTERM)
            self.process.join(GRACE_S)
        if self.isolation.trusted or self.process.exitcode is None:
            _send(os.killpg, leader, signal.SIGKILL)  # also what a leader that left has started
            _send(os.kill, leader, signal.SIGKILL)  # too young, perhaps, to have a group
        self.process.join(GRACE_S)
        self.pipe.close()


@cache
def _sweep_once() -> None:
    """Clear away, once a process, what killed graders have left."""
    owner.sweep()
    control_group.sweep()


def _send(kill: Callable[[int, int], None], number: int, what: signal.Signals) -> None:
    """Signal a process or a group, which may be gone."""
    with suppress(ProcessLookupError, PermissionError):
        kill(number, what)


def _why_left(code: int | None, limits: Limits) -> str:
    if code == TOO_MUCH_MEMORY:
        return (
            f"it used more than {limits.memory_bytes / 2**30:.3g} GiB of memory: all its processes "
            "count together, and so may files in /tmp and /dev/shm."
        )
    if code == NOT_APART:
        return (
            "a second process, in which an answer was to be called, ended with the code which says "
            "that it could not be kept apart on this machine: the answer need not be the cause."
        )
    if code is None:
        return "the process closed the pipe on which it is asked, and ran on."
    return f"the process left by itself (exit code {code})."


NO_HEED = f" It did not react to an interrupt within {GRACE_S:g} s."
BUSY = " It then had {} other processes, which share its core."
OURS = ("Timeout", "ProcessEnded", "NotAsked", "NotRun", UNJUDGED)
"""What we say of a process ourselves: an exception of a student's may not borrow these names."""


class FloodError(ValueError):
    """There is more in a reply, or of the notes before it, than anybody reads."""


def _read_reply(raw: bytes) -> Any:
    """A reply in JSON that can be written to a file again: no NaN, no half of a character."""
    if (count := values_in(raw)) > MAX_VALUES:
        raise FloodError(f"{count:,} values in one reply; at most {MAX_VALUES:,} are read")
    reply = json.loads(raw, parse_constant=str)
    if b"\\ud" in raw.lower():
        reply = json.loads(json.dumps(reply, ensure_ascii=False).encode("utf-8", "replace"))
    return reply


def _read_answer(answer: Any) -> Answer | Raised:
    """What a stranger's process sent, as plain data or as something raised."""
    try:
        if "raised" in answer:
            kind = str(answer["raised"])
            kind = kind if kind.isidentifier() and len(kind) <= 60 else "AnOddlyNamedException"
            kind = f"Own{kind}" if kind in OURS else kind
            return Raised(kind, reported(answer["text"]))
        value = plain.from_bytes(base64.b64decode(answer["value"]))
        if not isinstance(value, dict):
            raise plain.PlainDataError("an answer has fields")
        return {field: _told(field, item) for field, item in value.items()}
    except (plain.PlainDataError, TypeError, KeyError, ValueError, RecursionError) as fault:
        why = on_a_line(str(fault), MAX_WHY)
        return Raised("AnswerError", f"What came back cannot be read as an answer: {why}")


def _beginning(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(MAX_TEXT).decode("utf-8", "replace")


def _told(field: str, item: Any) -> Any:
    """A field; what it tells about itself in words is marked as the process's own."""
    if isinstance(item, dict) and UNFIT in item:
        return {UNFIT: reported(item[UNFIT])}
    if field == CHANGED and isinstance(item, list):
        return list(map(reported, item))
    return item


def _error(name: str, text: str) -> dict[str, Any]:
    return {"output_type": "error", "ename": name, "evalue": text, "traceback": [text]}


def _copy_plain_files(source: Path, target: Path, max_bytes: int) -> None:
    """Ordinary files of a submission; links, what they lead to and what is too much stay behind.

    So does a `__pycache__`: Python would run what is compiled there, and a person reads the text.
    """
    left, count = max_bytes, 0
    for place, folders, files in os.walk(source, followlinks=False):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for path in (Path(place) / name for name in sorted(files)):
            count += 1
            if path.is_symlink() or not path.is_file() or count > MAX_FILES:
                continue
            if (size := path.stat().st_size) <= left:
                left -= size
                copy = target / path.relative_to(source)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy, follow_symlinks=False)
